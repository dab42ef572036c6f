//! Entries of git indices at paths that the policy hides. While a sandbox runs they have the skip-worktree bit
//! (git-update-index(1)), so that git leaves the hidden files alone; then they lose it again.
//!
//! The index is in the work tree, where programs write. Workers find it and change it, as the owner of the work tree.

mod index_file;
mod repositories;

use super::beneath;
use super::worker::{self, Confinement, FileAccess, WorkerLimits};
use crate::error::{Code, Error, Result};
use crate::host::git_index::{self, EditedIndex, IndexError, ObjectFormat, SkipWorktree};
use crate::host::workspace_scan::baseline::Base64Bytes;
use index_file::{ChangeError, INDEX, change_index, read_index};
use repositories::repositories;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most bytes of the paths of all entries. They are recorded.
const MAX_PATH_BYTES: usize = 256 << 10;

/// The entries of one index that have the bit because of a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SkippedEntries {
    /// Path of the workspace.
    workspace: Base64Bytes,
    /// The directory of the index, relative to the workspace.
    directory: Base64Bytes,
    /// The paths of the entries, relative to the top of the work tree of git.
    paths: Vec<Base64Bytes>,
}

impl SkippedEntries {
    /// The entries at `hidden` paths, or below them, that do not have the bit. The paths are relative to the workspace.
    ///
    /// # Errors
    /// [`Code::Invalid`] for an index that git does not write, and for too many such entries; the errors of
    /// [`worker::run_worker`].
    pub fn find(workspace: &Path, hidden: &[PathBuf]) -> Result<Vec<Self>> {
        in_worker(workspace, FileAccess::Read, |root, task| {
            let mut found = Vec::new();
            for (directory, hidden) in
                repositories(root, workspace, hidden).map_err(|e| Error::system(task, e))?
            {
                let paths = paths_at(root, &directory, &hidden).map_err(|e| e.into_error(task))?;
                if !paths.is_empty() {
                    let (workspace, directory) =
                        (Base64Bytes::from_path(workspace), Base64Bytes::from_path(&directory));
                    found.push(SkippedEntries { workspace, directory, paths });
                }
            }
            let paths = found.iter().flat_map(|entries| &entries.paths);
            if paths.map(|path| path.as_path().as_os_str().len()).sum::<usize>() > MAX_PATH_BYTES {
                return Err(Error::new(Code::Invalid, format!("{task}: too many of its files are hidden")));
            }
            Ok(found)
        })
    }

    /// Gives the entries the bit. Waits for at most `patience` while git has the index locked.
    ///
    /// # Errors
    /// [`Code::State`] if it is still locked; as [`Self::find`].
    pub fn skip(&self, patience: Duration) -> Result<()> {
        self.change(SkipWorktree::Set, patience)
    }

    /// Takes the bit from the entries. An index that is gone has none.
    ///
    /// # Errors
    /// As [`Self::skip`].
    pub fn restore(&self, patience: Duration) -> Result<()> {
        self.change(SkipWorktree::Clear, patience)
    }

    fn change(&self, change: SkipWorktree, patience: Duration) -> Result<()> {
        let directory = self.directory.as_path();
        let paths: BTreeSet<&[u8]> =
            self.paths.iter().map(|path| path.as_path().as_os_str().as_bytes()).collect();
        in_worker(self.workspace.as_path(), FileAccess::Write, |root, task| {
            change_index(root, directory, patience, |index| edit(index, change, |path| paths.contains(path)))
                .map_err(|e| e.into_error(task))
        })
    }
}

/// Runs a job in a worker that can access the workspace alone.
fn in_worker<T: Serialize + serde::de::DeserializeOwned>(
    workspace: &Path,
    access: FileAccess,
    job: impl FnOnce(BorrowedFd<'_>, &str) -> Result<T>,
) -> Result<T> {
    let task = format!("the git index of {}", workspace.display());
    let fail = |e: io::Error| Error::system(&task, e);
    let root = beneath::open_root(workspace).map_err(fail)?;
    let confinement = Confinement {
        task: &task,
        owner: worker::worker_owner(root.as_fd()).map_err(fail)?,
        capabilities: 0,
        directories: &[(root.as_fd(), access)],
        files: &[],
        limits: WorkerLimits::default(),
    };
    worker::run_worker(&confinement, || job(root.as_fd(), &task))
}

/// The paths of the entries at `hidden` paths, or below them, that do not have the bit.
fn paths_at(
    root: BorrowedFd<'_>,
    directory: &Path,
    hidden: &[PathBuf],
) -> std::result::Result<Vec<Base64Bytes>, ChangeError> {
    let index = match read_index(root, &directory.join(INDEX)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        index => index?.0,
    };
    let is_hidden = |path: &[u8]| {
        hidden.iter().any(|hidden| git_index::is_at_or_below(path, hidden.as_os_str().as_bytes()))
    };
    let Some(edited) = edit(&index, SkipWorktree::Set, is_hidden).map_err(ChangeError::Index)? else {
        return Ok(Vec::new());
    };
    let path = |bytes: Vec<u8>| Base64Bytes::from_path(Path::new(OsStr::from_bytes(&bytes)));
    Ok(edited.changed.into_iter().map(path).collect())
}

/// Edits an index of either format. Which one it has is in a configuration; an index of the other format is malformed.
fn edit(
    index: &[u8],
    change: SkipWorktree,
    mut is_wanted: impl FnMut(&[u8]) -> bool,
) -> std::result::Result<Option<EditedIndex>, IndexError> {
    git_index::edit(index, ObjectFormat::Sha1, change, &mut is_wanted).or_else(|error| {
        git_index::edit(index, ObjectFormat::Sha256, change, &mut is_wanted).map_err(|_| error)
    })
}
