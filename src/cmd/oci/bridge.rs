//! `org.saggar.…`: annotations that ask for an agent's bridge beside the container (DECISIONS 12).

use crate::error::{Code, Error, Result};
use std::collections::BTreeMap;

/// What the names of our annotations begin with.
const OURS: &str = "org.saggar.";

/// Refuses a container that asks for a bridge: it would run without what its maker counts on.
///
/// # Errors
/// [`Code::Unsupported`], naming the annotation.
pub(super) fn refuse(annotations: &BTreeMap<String, String>) -> Result<()> {
    match annotations.keys().find(|name| name.starts_with(OURS)) {
        None => Ok(()),
        Some(name) => Err(Error::new(
            Code::Unsupported,
            format!("annotations[{name:?}]: this version has no bridge for containers"),
        )
        .hint("leave the annotation out; saggar agent has the bridge")),
    }
}
