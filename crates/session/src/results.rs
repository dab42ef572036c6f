//! What a session has that would be missed: the changes of its agent, files in quarantine, snapshots. Its home, its logs
//! and its conversation are not among it.

use super::Session;
use super::diff::WorkspaceTrees;
use super::snapshot::SNAPSHOTS_DIRECTORY;
use super::tree_workers::diff_in_worker;
use super::workspace_origin::WorkspaceOrigin;
use saggar_sys::beneath;
use saggar_sys::error::{Error, Result};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;

/// Whether the session has results. In a tree that cannot be compared there may be some. The session is locked, and no
/// program of it runs.
///
/// # Errors
/// [`saggar_sys::error::Code::System`], as [`WorkspaceOrigin::load`], and as [`diff_in_worker`].
pub fn has_results(session: &Session) -> Result<bool> {
    let directory = session.directory();
    // What is in a disk image is not compared.
    if session.data_directory() != directory {
        return Ok(true);
    }
    for place in [session.quarantine_directory(), directory.join(SNAPSHOTS_DIRECTORY)] {
        if has_files(&place)? {
            return Ok(true);
        }
    }
    if WorkspaceOrigin::keeps_no_changes(directory) {
        return Ok(false);
    }
    let origin = WorkspaceOrigin::load(directory)?;
    if origin.has_no_changes(directory) {
        return Ok(false);
    }
    let trees = WorkspaceTrees::open(directory, origin)?;
    diff_in_worker(&trees, &[], |changes, _| Ok(!changes.is_empty()), |_| Ok(()))
}

fn has_files(directory: &Path) -> Result<bool> {
    match beneath::open_root(directory).and_then(|opened| beneath::is_empty(opened.as_fd())) {
        Ok(empty) => Ok(!empty),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::system(format_args!("list {}", directory.display()), error)),
    }
}
