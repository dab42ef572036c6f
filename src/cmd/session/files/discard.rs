//! `saggar session discard`: discards a session's changes.

use crate::app::session::files;
use crate::cli::session::files::DiscardArgs;
use crate::error::Result;

pub(super) fn run(args: &DiscardArgs) -> Result<u8> {
    super::print_changes(&files::discard(&args.id, &args.paths)?)?;
    Ok(0)
}
