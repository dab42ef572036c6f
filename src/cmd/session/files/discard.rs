//! `saggar session discard`.

use crate::cli::session::files::DiscardArgs;
use crate::cmd::say;
use crate::error::Result;
use crate::session::choose;
use crate::session::discard::discard;

pub(super) fn run(args: &DiscardArgs) -> Result<u8> {
    let paths = choose::relative(&args.paths)?;
    let (session, _held) = super::held(&args.id)?;
    let Some((mut trees, changes)) = super::differences(&session)? else {
        say("nothing has changed\n")?;
        return Ok(0);
    };
    let changes = choose::chosen(changes, &paths)?;
    discard(&session, &mut trees, &paths)?;
    let lines: String = changes.iter().map(|change| change.line() + "\n").collect();
    say(if changes.is_empty() { "nothing has changed\n" } else { &lines })?;
    Ok(0)
}
