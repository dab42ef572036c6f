//! `saggar session events`: prints the stored events of a session.

use crate::app::session::read_events;
use crate::cli::session::SessionEventsArgs;
use crate::cmd::print_raw;
use crate::error::Result;

pub(super) fn run(args: &SessionEventsArgs) -> Result<u8> {
    // Events are lines of JSON, and so text.
    read_events(&args.id, args.after, &mut |line| print_raw(&String::from_utf8_lossy(line)))?;
    Ok(0)
}
