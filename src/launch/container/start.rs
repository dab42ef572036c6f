//! The program of a created container.

use super::Start;
use crate::error::{Code, Error, Result};

/// Runs startContainer hooks and lets the init become the program; returns when it has.
///
/// # Errors
/// [`Code::NotFound`], [`Code::NotExecutable`] for the program; what failed, and the init is gone.
pub fn start(_request: &Start<'_>) -> Result<()> {
    Err(Error::new(Code::Unsupported, "start a container: not built yet"))
}
