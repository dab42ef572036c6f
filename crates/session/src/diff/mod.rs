//! The changes of an agent: the names that differ between its workspace and the folder from which the workspace was
//! made.
//!
//! ```text
//! overlay   <session>/upper/changes   against the folder below it             (overlay.rs)
//! copy      <session>/workspace       against the folder it was copied from   (copied.rs)
//! ```
//! No link is followed, and all work is bounded. Names that cannot be compared or must not be applied are listed with
//! the reason.

mod copied;
mod links;
mod overlay;
pub mod patch;
pub mod text;

pub(super) use overlay::{hidden_by, is_opaque, is_whiteout};

use super::manifest::Manifest;
use super::workspace_origin::{ChangeStorage, WorkspaceOrigin};
use saggar_sys::beneath::{self, FileKind, FileMeta};
use saggar_sys::error::{Code, Error, Result};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Most names that are compared, on both sides together.
const MAX_NAMES: usize = 1_000_000;
/// Most levels of directories.
const MAX_DEPTH: usize = 128;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// Deleted. Sorts before the others: a deleted name may be added again with another type.
    Deleted,
    /// Added.
    Added,
    /// Modified: content, target or mode.
    Modified,
}

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeSide {
    /// Metadata.
    pub meta: FileMeta,
    /// Target of a symbolic link.
    pub target: Option<PathBuf>,
}

/// One name that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Path relative to the workspace.
    pub path: PathBuf,
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The file in the folder.
    pub before: Option<ChangeSide>,
    /// The file that the agent left.
    pub after: Option<ChangeSide>,
    /// Why it can never be applied: its type, or that it cannot be read.
    pub rejected: Option<String>,
    /// How the folder has changed meanwhile.
    pub conflict: Option<String>,
    /// Why the name is protected.
    pub protected_because: Option<String>,
    /// Target of a symbolic link that leads out of the folder or to a protected name.
    pub escapes: Option<String>,
}

/// The open trees of a workspace.
#[derive(Debug)]
pub struct WorkspaceTrees {
    /// The changes of the agent: the upper layer, or the copy.
    pub changed_tree: OwnedFd,
    /// The parent of [`Self::changed_tree`] in the session; for an overlay the directory above the upper layer.
    pub session_directory: OwnedFd,
    /// The folder.
    pub folder: OwnedFd,
    /// The state of its names at the time of the copy.
    pub manifest: Manifest,
    /// How the workspace was made.
    pub origin: WorkspaceOrigin,
}

impl WorkspaceTrees {
    /// Opens the trees.
    ///
    /// # Errors
    /// [`Code::Invalid`] when one does not exist; [`Code::System`].
    pub fn open(session: &Path, origin: WorkspaceOrigin) -> Result<Self> {
        let place = match origin.storage {
            ChangeStorage::Overlay => session.join("upper"),
            ChangeStorage::Copy => session.join("workspace"),
        };
        let open = |path: &Path| beneath::open_root(path).map_err(|e| open_error(path, &e));
        let folder = open(&origin.folder)?;
        let opened = open(&place)?;
        let left = match origin.storage {
            ChangeStorage::Overlay => beneath::open_directory(opened.as_fd(), "changes"),
            ChangeStorage::Copy => opened.try_clone(),
        };
        let left = left.map_err(|e| open_error(&place, &e))?;
        Ok(WorkspaceTrees {
            folder,
            changed_tree: left,
            session_directory: opened,
            manifest: Manifest::load(session),
            origin,
        })
    }

    /// Duplicates the descriptors.
    ///
    /// # Errors
    /// [`Code::System`] when there are too many descriptors.
    pub fn try_clone(&self) -> Result<Self> {
        let again = |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::system("open the trees again", e));
        let (left, place, folder) =
            (again(&self.changed_tree)?, again(&self.session_directory)?, again(&self.folder)?);
        Ok(WorkspaceTrees {
            changed_tree: left,
            session_directory: place,
            folder,
            manifest: self.manifest.clone(),
            origin: self.origin.clone(),
        })
    }
}

fn open_error(path: &Path, error: &io::Error) -> Error {
    let code = if error.kind() == io::ErrorKind::NotFound { Code::Invalid } else { Code::System };
    Error::new(code, format!("open {}: {error}", path.display()))
}

/// All changes sorted by path, a directory before its content.
///
/// # Errors
/// [`Code::Invalid`] for trees that are too large; [`Code::System`] naming a path in the folder that cannot be read.
pub fn compare_trees(trees: &WorkspaceTrees) -> Result<Vec<FileChange>> {
    let mut found = ChangeList { changes: Vec::new(), remaining_names: MAX_NAMES };
    let (left, folder) = (trees.changed_tree.as_fd(), trees.folder.as_fd());
    match trees.origin.storage {
        ChangeStorage::Overlay => overlay::compare(&mut found, left, folder, trees)?,
        ChangeStorage::Copy => copied::compare(&mut found, left, folder, trees)?,
    }
    let mut changes = found.changes;
    for change in &mut changes {
        change.protected_because = trees.origin.protection_reason(change);
        change.escapes = links::escape_reason(change, trees);
        if change.rejected.is_none()
            && let Some(after) = &change.after
        {
            change.rejected = rejection_reason(&after.meta);
        }
    }
    protect_bare_repositories(&mut changes);
    changes.sort_by(|one, other| (&one.path, one.kind).cmp(&(&other.path, other.kind)));
    Ok(changes)
}

/// Why a file of this type is never applied.
fn rejection_reason(meta: &FileMeta) -> Option<String> {
    match meta.kind {
        FileKind::Other(name) => Some(format!("it is a {name}")),
        _ if meta.has_set_id() => Some(format!("it has a set-id bit (mode {:o})", meta.mode)),
        _ => None,
    }
}

/// The names in a bare repository make it one: git obeys the `config` of the directory in which it is started.
fn protect_bare_repositories(changes: &mut [FileChange]) {
    let made: std::collections::BTreeSet<PathBuf> =
        changes.iter().filter(|change| change.after.is_some()).map(|change| change.path.clone()).collect();
    for change in changes.iter_mut().filter(|change| change.path.ends_with("config")) {
        let Some(parent) = change.path.parent() else { continue };
        let has = |name: &str| made.contains(&parent.join(name));
        if change.protected_because.is_none() && (has("HEAD") || has("objects")) {
            change.protected_because =
                Some("together with the files next to it, it makes a directory a git repository".into());
        }
    }
}

struct ChangeList {
    changes: Vec<FileChange>,
    remaining_names: usize,
}

impl ChangeList {
    /// The names of a directory, within the limit of all names.
    fn names(&mut self, directory: BorrowedFd<'_>, path: &Path) -> Result<Vec<OsString>> {
        let names = beneath::read_names(directory, self.remaining_names).map_err(|e| {
            if self.remaining_names < MAX_NAMES && e.raw_os_error().is_none() {
                let message = format!("compare {}: more than {MAX_NAMES} names", text::show_path(path));
                return Error::new(Code::Invalid, message);
            }
            io_error(path, &e)
        })?;
        self.remaining_names -= names.len();
        Ok(names)
    }

    fn push(
        &mut self,
        path: &Path,
        act: ChangeKind,
        before: Option<ChangeSide>,
        after: Option<ChangeSide>,
        conflict: Option<&str>,
    ) {
        let conflict = conflict.map(str::to_owned);
        let path = path.to_owned();
        self.changes.push(FileChange {
            path,
            kind: act,
            before,
            after,
            rejected: None,
            conflict,
            protected_because: None,
            escapes: None,
        });
    }

    /// Adds a name of the workspace that cannot be read.
    fn push_rejected(
        &mut self,
        path: &Path,
        act: ChangeKind,
        before: Option<ChangeSide>,
        after: ChangeSide,
        why: String,
    ) {
        self.push(path, act, before, Some(after), None);
        if let Some(last) = self.changes.last_mut() {
            last.rejected = Some(why);
        }
    }
}

/// One side of a change.
fn read_side(at: BorrowedFd<'_>, name: impl AsRef<Path>, meta: FileMeta) -> ChangeSide {
    let target = (meta.kind == FileKind::Symlink).then(|| beneath::read_link(at, name).ok()).flatten();
    ChangeSide { meta, target }
}

fn io_error(path: &Path, error: &io::Error) -> Error {
    Error::system(format_args!("compare {}", text::show_path(path)), error)
}

/// Whether two files are the same for a reader. Errors are those of the workspace's side, whose files may deny access
/// even to their owner.
fn is_unchanged(
    left: (BorrowedFd<'_>, &ChangeSide),
    folder: (BorrowedFd<'_>, &ChangeSide),
    name: &Path,
) -> io::Result<bool> {
    let (a, b) = (&left.1.meta, &folder.1.meta);
    if a.kind != b.kind || (a.kind != FileKind::Symlink && a.mode & 0o7777 != b.mode & 0o7777) {
        return Ok(false);
    }
    match a.kind {
        FileKind::Symlink => Ok(left.1.target == folder.1.target && left.1.target.is_some()),
        FileKind::File if a.size != b.size => Ok(false),
        FileKind::File => {
            let (one, _) = beneath::open_file(left.0, name)?;
            let (other, _) = beneath::open_file(folder.0, name)?;
            beneath::has_same_content(&one, &other)
        }
        FileKind::Directory => Ok(true),
        FileKind::Other(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests;
