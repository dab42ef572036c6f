//! `saggar session prune`: removes sessions by state, age and number.

use super::report_failures;
use crate::app::session::{PruneSelection, prune};
use crate::cli::session::SessionPruneArgs;
use crate::cmd::print_text;
use crate::error::Result;
use std::time::Duration;

pub(super) fn run(args: &SessionPruneArgs) -> Result<u8> {
    let selection = PruneSelection {
        states: args.states.iter().map(|state| (*state).into()).collect(),
        older_than: args.older_than.map_or(Duration::ZERO, |age| Duration::from_millis(age.milliseconds())),
        keep: args.keep,
    };
    let pruned = prune(&selection, !args.dry_run)?;
    let verb = if args.dry_run { "would remove" } else { "removed" };
    let done = pruned.iter().filter(|one| one.outcome.is_ok());
    let lines: String =
        done.map(|one| format!("{verb} {} ({})\n", one.record.id, one.record.state)).collect();
    print_text(if pruned.is_empty() { "nothing to remove\n" } else { &lines })?;
    report_failures(pruned.into_iter().map(|one| one.outcome))
}
