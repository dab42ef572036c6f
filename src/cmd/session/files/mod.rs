//! The files of a session: the agent's changes, and snapshots.

mod apply;
mod diff;
mod discard;
mod snapshot;
mod workspace_files;

use crate::cli::session::files::FilesCommand;
use crate::cmd::print_text;
use crate::error::Result;

pub(super) fn run(command: FilesCommand) -> Result<u8> {
    match command {
        FilesCommand::Diff(args) => diff::run(&args),
        FilesCommand::Apply(args) => apply::run(&args),
        FilesCommand::Discard(args) => discard::run(&args),
        FilesCommand::Snapshot(args) => snapshot::run(&args),
        FilesCommand::Restore(args) => snapshot::restore(&args),
        FilesCommand::Files(args) => workspace_files::run(&args.command),
    }
}

/// Prints the lines of changes.
fn print_changes(lines: &[String]) -> Result<()> {
    let text: String = lines.iter().map(|line| line.clone() + "\n").collect();
    print_text(if lines.is_empty() { "nothing has changed\n" } else { &text })
}
