//! `saggar session discard`.

use crate::cli::session::files::DiscardArgs;
use crate::error::Result;
use crate::session::{choose, trees};

pub(super) fn run(args: &DiscardArgs) -> Result<u8> {
    let paths = choose::relative(&args.paths)?;
    let (session, _held) = super::held(&args.id)?;
    let lines = match super::trees(&session)? {
        Some(trees) => trees::discard(&session, &trees, &paths)?,
        None => Vec::new(),
    };
    super::show(&lines)?;
    Ok(0)
}
