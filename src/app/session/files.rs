//! What a session has changed in its workspace.

use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::apply::ApplyOptions;
use crate::session::diff::{FileChange, WorkspaceTrees, patch};
use crate::session::image::DiskImage;
use crate::session::workspace_origin::WorkspaceOrigin;
use crate::session::{self, select, snapshot, tree_workers};
use crate::sys::file_worker::WorkerOutput;
use std::path::{Path, PathBuf};

/// Size of the text that is passed on at a time, in bytes: patches can be long.
const CHUNK: usize = 1 << 16;

/// Passes the changes at `paths` (all without one) on as text: a line for each, and its patch.
///
/// # Errors
/// As [`tree_workers::diff_in_worker`]; those of `pass_on`, which end the comparison.
pub(crate) fn diff_as_text(
    id: &str,
    paths: &[PathBuf],
    has_patches: bool,
    pass_on: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let paths = select::relative_paths(paths)?;
    let Some(trees) = open_trees(&directory(id)?)? else { return Ok(()) };
    let job = |changes: &[FileChange], output: &WorkerOutput| {
        let mut text = String::new();
        for change in changes {
            text.push_str(&change.to_line());
            text.push('\n');
            if has_patches {
                text.push_str(&patch::unified_diff(change, &trees));
            }
            if text.len() > CHUNK {
                output.write(&std::mem::take(&mut text))?;
            }
        }
        output.write(&text)
    };
    tree_workers::diff_in_worker(&trees, &paths, job, pass_on)
}

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

/// As [`apply`], after `consent` to the folder and the changes. The session is locked until then, so that its sandbox
/// does not start meanwhile. Returns the folder and the changes; without changes nothing is asked.
///
/// # Errors
/// As [`apply`]; those of `consent`; [`Code::State`] when there are other changes than those that were consented to.
pub(crate) fn apply_after_consent(
    id: &str,
    paths: &[PathBuf],
    options: &ApplyOptions,
    consent: impl FnOnce(&Path, &[String]) -> Result<()>,
) -> Result<(PathBuf, Vec<String>)> {
    let paths = select::relative_paths(paths)?;
    let (session, _held) = lock_session(id)?;
    let folder = WorkspaceOrigin::load(&session)?.folder;
    let Some(trees) = open_trees(&session)? else { return Ok((folder, Vec::new())) };
    let apply = |dry_run| tree_workers::apply_in_worker(&session, &trees, &paths, options, dry_run);
    let asked = apply(true)?;
    if asked.is_empty() {
        return Ok((folder, asked));
    }
    consent(&folder, &asked)?;
    if apply(true)? != asked {
        return Err(Error::new(Code::State, "the changes are no longer those that were asked about")
            .hint("nothing was done; ask again"));
    }
    apply(false).map(|lines| (folder, lines))
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
