//! Entries of git indices at paths that the policy hides. While a sandbox runs they have the skip-worktree bit
//! (git-update-index(1)), so that git leaves the hidden files alone; then they lose it again.
//!
//! The index is in the work tree, where programs write. Workers find it and change it, as the owner of the work tree.

mod index_file;
mod repositories;

use crate::host::git_index::{self, SkipWorktree};
use crate::state::base64_bytes::Base64Bytes;
use index_file::{ChangeError, INDEX, ReadIndex, change_index};
use repositories::repositories;
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file_worker::{self, Confinement, FileAccess, WorkerLimits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
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

/// An index in which hidden entries have the bit, for a tree that shows the index of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippingIndex {
    /// Its content.
    pub content: Base64Bytes,
    /// Permission bits of the file.
    pub mode: u32,
    /// Time of the last change of the file: seconds since the Unix epoch, and nanoseconds. git compares the files that are
    /// not older than the index.
    pub mtime: (i64, u32),
}

impl SkippedEntries {
    /// The entries at `hidden` paths, or below them, that do not have the bit, or have it because of `others`: sandboxes
    /// that run. The paths are relative to the workspace.
    ///
    /// # Errors
    /// [`Code::Invalid`] for an index that git does not write, and for too many such entries; the errors of
    /// [`file_worker::run_worker`].
    pub fn find(workspace: &Path, hidden: &[PathBuf], others: &[Self]) -> Result<Vec<Self>> {
        in_worker(workspace, FileAccess::Read, |root, task| {
            let found = find_edited(root, workspace, hidden, others, task)?;
            Ok(found.into_iter().map(|(entries, _)| entries).collect())
        })
    }

    /// As [`Self::find`], with the indices as [`Self::skip`] would make them.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn find_with_indices(
        workspace: &Path,
        hidden: &[PathBuf],
        others: &[Self],
    ) -> Result<Vec<(Self, SkippingIndex)>> {
        in_worker(workspace, FileAccess::Read, |root, task| {
            find_edited(root, workspace, hidden, others, task)
        })
    }

    /// Those of these entries that none of `others` has; `None` if there are none.
    pub fn without(&self, others: &[Self]) -> Option<Self> {
        let is_others = |path: &&Base64Bytes| others.iter().any(|other| other.has(self, path));
        let paths: Vec<_> = self.paths.iter().filter(|path| !is_others(path)).cloned().collect();
        (!paths.is_empty()).then(|| SkippedEntries { paths, ..self.clone() })
    }

    /// Whether these entries have this path of the index that `index` is of.
    fn has(&self, index: &Self, path: &Base64Bytes) -> bool {
        let is_same = self.workspace == index.workspace && self.directory == index.directory;
        is_same && self.paths.contains(path)
    }

    /// The same entries in an index at the same path of another tree.
    #[must_use]
    pub fn in_tree(self, tree: &Path) -> Self {
        SkippedEntries { workspace: Base64Bytes::from_path(tree), ..self }
    }

    /// The directory of the index, relative to the workspace.
    pub fn directory(&self) -> &Path {
        self.directory.as_path()
    }

    /// Whether the tree has an index there, or something that is not to be replaced by one, such as a link on the way.
    pub fn has_index(&self) -> bool {
        let path = self.directory().join(INDEX);
        let found = beneath::open_root(self.workspace.as_path())
            .and_then(|root| beneath::stat_beneath(root.as_fd(), path));
        match found {
            Ok(meta) => meta.is_some(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
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
            change_index(root, directory, patience, change, |path| paths.contains(path))
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
        owner: file_worker::worker_owner(root.as_fd()).map_err(fail)?,
        capabilities: 0,
        directories: &[(root.as_fd(), access)],
        files: &[],
        limits: WorkerLimits::default(),
    };
    file_worker::run_worker(&confinement, || job(root.as_fd(), &task))
}

/// The entries that do not have the bit, or have it because of others, and the indices with it.
fn find_edited(
    root: BorrowedFd<'_>,
    workspace: &Path,
    hidden: &[PathBuf],
    others: &[SkippedEntries],
    task: &str,
) -> Result<Vec<(SkippedEntries, SkippingIndex)>> {
    let (mut found, mut path_bytes) = (Vec::new(), 0);
    for (directory, hidden) in repositories(root, workspace, hidden).map_err(|e| Error::system(task, e))? {
        let is_same = |other: &&SkippedEntries| {
            other.workspace.as_path() == workspace && other.directory() == directory
        };
        let of_others: BTreeSet<&[u8]> = others
            .iter()
            .filter(is_same)
            .flat_map(|other| &other.paths)
            .map(|path| path.0.as_slice())
            .collect();
        let edited = edit_at(root, &directory, &hidden, &of_others).map_err(|e| e.into_error(task))?;
        let Some((paths, index)) = edited else { continue };
        path_bytes += paths.iter().map(|path| path.0.len()).sum::<usize>();
        if path_bytes > MAX_PATH_BYTES {
            return Err(Error::new(Code::Invalid, format!("{task}: too many of its files are hidden")));
        }
        let (workspace, directory) = (Base64Bytes::from_path(workspace), Base64Bytes::from_path(&directory));
        found.push((SkippedEntries { workspace, directory, paths }, index));
    }
    Ok(found)
}

/// The paths of the entries at `hidden` paths, or below them, that do not have the bit, or have it because of others, and
/// the index with it; `None` if there are none.
fn edit_at(
    root: BorrowedFd<'_>,
    directory: &Path,
    hidden: &[PathBuf],
    of_others: &BTreeSet<&[u8]>,
) -> std::result::Result<Option<(Vec<Base64Bytes>, SkippingIndex)>, ChangeError> {
    let Some(mut index) = ReadIndex::read(root, directory)? else { return Ok(None) };
    let is_hidden = |path: &[u8]| {
        hidden.iter().any(|hidden| git_index::is_at_or_below(path, hidden.as_os_str().as_bytes()))
    };
    let edited = index.edit(SkipWorktree::Set, is_hidden)?;
    let shared = match of_others.is_empty() {
        true => None,
        false => index.edit(SkipWorktree::Clear, |path| is_hidden(path) && of_others.contains(path))?,
    };
    let shared = shared.map(|shared| shared.changed).unwrap_or_default();
    let ReadIndex { bytes, meta, .. } = index;
    let (content, changed) = edited.map_or((bytes, Vec::new()), |edited| (edited.bytes, edited.changed));
    let paths: Vec<Base64Bytes> = changed.into_iter().chain(shared).map(Base64Bytes).collect();
    let index =
        SkippingIndex { content: Base64Bytes(content), mode: meta.mode & 0o777, mtime: meta.mtime_parts() };
    Ok((!paths.is_empty()).then_some((paths, index)))
}
