//! `saggar session apply`.

use crate::cli::session::files::ApplyArgs;
use crate::cmd::say;
use crate::error::Result;
use crate::session::apply::{Allowed, apply, check};
use crate::session::diff::compare;
use crate::session::workspace::Place;
use crate::session::{choose, discard};
use std::os::fd::AsFd;

pub(super) fn run(args: &ApplyArgs) -> Result<u8> {
    let paths = choose::relative(&args.paths)?;
    let (session, _held) = super::held(&args.id)?;
    let Some((mut trees, changes)) = super::differences(&session)? else {
        say("nothing has changed\n")?;
        return Ok(0);
    };
    let changes = choose::with_parents(changes, &paths)?;
    let allowed = Allowed { protected: args.allow_protected, conflicts: args.force };
    check(&changes, &allowed)?;
    // Also without changes: what one that was killed has left in the folder is removed.
    if !args.dry_run {
        let applied = apply(&mut trees, &changes, &allowed);
        // Also what was done until something failed is known.
        let stored = trees.manifest.store(&session);
        applied.and(stored)?;
        if trees.origin.place == Place::Overlay && compare(&trees)?.is_empty() {
            // The folder has it all: what stayed would hide what is changed there later.
            discard::clear(trees.left.as_fd())?;
        }
    }
    let lines: String = changes.iter().map(|change| change.line() + "\n").collect();
    say(if changes.is_empty() { "nothing has changed\n" } else { &lines })?;
    Ok(0)
}
