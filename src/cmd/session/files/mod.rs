//! What a session has on disk: what the agent changed, and snapshots.

mod apply;
mod diff;
mod discard;
mod snapshot;

use crate::cli::session::files::FilesCommand;
use crate::cmd::say;
use crate::error::Result;
use crate::id::SandboxId;
use crate::session::diff::Trees;
use crate::session::image::Image;
use crate::session::workspace::Origin;
use crate::session::{self, snapshot as snapshots};
use std::path::{Path, PathBuf};

pub(super) fn run(command: FilesCommand) -> Result<u8> {
    match command {
        FilesCommand::Diff(args) => diff::run(&args),
        FilesCommand::Apply(args) => apply::run(&args),
        FilesCommand::Discard(args) => discard::run(&args),
        FilesCommand::Snapshot(args) => snapshot::run(&args),
        FilesCommand::Restore(args) => snapshot::restore(&args),
    }
}

/// The directory of a session, whoever serves it.
fn directory(id: &str) -> Result<PathBuf> {
    session::directory(&SandboxId::parse(id)?)
}

/// The same, held: nobody serves it, and nobody will until the lock is dropped.
fn held(id: &str) -> Result<(PathBuf, session::Held)> {
    let id = SandboxId::parse(id)?;
    let held = session::hold(&id)?;
    let directory = session::directory(&id)?;
    Image::of(&directory).refuse()?;
    snapshots::finish(&directory)?;
    Ok((directory, held))
}

/// Its trees, open. An overlay without a place for changes has none.
fn trees(session: &Path) -> Result<Option<Trees>> {
    Image::of(session).refuse()?;
    let origin = Origin::load(session)?;
    if origin.has_no_changes(session) {
        return Ok(None);
    }
    Trees::open(session, origin).map(Some)
}

/// The lines of changes.
fn show(lines: &[String]) -> Result<()> {
    let text: String = lines.iter().map(|line| line.clone() + "\n").collect();
    say(if lines.is_empty() { "nothing has changed\n" } else { &text })
}
