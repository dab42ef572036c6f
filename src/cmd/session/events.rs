//! `saggar session events`: prints the stored events of a session, or of the bridge of a container.

use crate::app::session::{read_events, read_events_in};
use crate::cli::session::SessionEventsArgs;
use crate::cmd::print_raw;
use crate::error::Result;

pub(super) fn run(args: &SessionEventsArgs) -> Result<u8> {
    // Events are lines of JSON, and so text.
    let show = &mut |line: &[u8]| print_raw(&String::from_utf8_lossy(line));
    match (&args.spool, &args.id) {
        (Some(directory), _) => read_events_in(directory, args.after, show)?,
        (None, Some(id)) => read_events(id, args.after, show)?,
        // clap requires one of them.
        (None, None) => {}
    }
    Ok(0)
}
