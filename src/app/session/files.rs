//! What a session has changed in its workspace.

use crate::error::Result;
use crate::id::SandboxId;
use crate::session::apply::ApplyOptions;
use crate::session::diff::WorkspaceTrees;
use crate::session::image::DiskImage;
use crate::session::workspace_origin::WorkspaceOrigin;
use crate::session::{self, select, snapshot, tree_workers};
use std::path::{Path, PathBuf};

/// Brings the changes at `paths` (all without one) to the real tree; a line for each.
///
/// # Errors
/// [`crate::error::Code::Refused`] for what `options` do not allow, [`crate::error::Code::State`] for a session that is
/// served.
pub fn apply(id: &str, paths: &[PathBuf], options: &ApplyOptions, dry_run: bool) -> Result<Vec<String>> {
    let paths = select::relative_paths(paths)?;
    let (session, _held) = lock_session(id)?;
    match open_trees(&session)? {
        Some(trees) => tree_workers::apply_in_worker(&session, &trees, &paths, options, dry_run),
        None => Ok(Vec::new()),
    }
}

/// Takes the changes at `paths` (all without one) back; a line for each.
///
/// # Errors
/// [`crate::error::Code::State`] for a session that is served.
pub fn discard(id: &str, paths: &[PathBuf]) -> Result<Vec<String>> {
    let paths = select::relative_paths(paths)?;
    let (session, _held) = lock_session(id)?;
    match open_trees(&session)? {
        Some(trees) => tree_workers::discard_in_worker(&session, &trees, &paths),
        None => Ok(Vec::new()),
    }
}

/// The directory of a session, whoever serves it.
pub(crate) fn directory(id: &str) -> Result<PathBuf> {
    session::session_directory(&SandboxId::parse(id)?)
}

/// The same, held: nobody serves it, and nobody will until the lock is dropped.
pub(super) fn lock_session(id: &str) -> Result<(PathBuf, session::SessionLock)> {
    let id = SandboxId::parse(id)?;
    let held = session::lock_session(&id)?;
    let directory = session::session_directory(&id)?;
    DiskImage::for_session(&directory).reject_if_present()?;
    snapshot::finish_restore(&directory)?;
    Ok((directory, held))
}

/// Its trees, open. An overlay without a place for changes has none.
pub(crate) fn open_trees(session: &Path) -> Result<Option<WorkspaceTrees>> {
    DiskImage::for_session(session).reject_if_present()?;
    let origin = WorkspaceOrigin::load(session)?;
    if origin.has_no_changes(session) {
        return Ok(None);
    }
    WorkspaceTrees::open(session, origin).map(Some)
}
