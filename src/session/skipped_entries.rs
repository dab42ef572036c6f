//! Entries of git indices at paths that the policy hides. While a sandbox runs they have the skip-worktree bit
//! (git-update-index(1)), so that git leaves the hidden files alone; then they lose it again.
//!
//! The index is in the work tree, where programs write. Workers find it and change it, as the owner of the work tree.

use super::beneath::{self, FileKind};
use super::worker::{self, Confinement, FileAccess, WorkerLimits};
use crate::error::{Code, Error, Result};
use crate::host::git_index::{self, EditedIndex, IndexError, ObjectFormat, SkipWorktree};
use crate::host::workspace_scan::baseline::Base64Bytes;
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of the index, and of its lock, in which a new index is written.
const INDEX: &str = "index";
const LOCK: &str = "index.lock";
/// Largest index that is changed, in bytes.
const MAX_INDEX_SIZE: u64 = 512 << 20;
/// Longest `.git` file, in bytes.
const MAX_LINK_SIZE: u64 = 8 << 10;
/// Most bytes of all paths of the entries of one index. They are recorded.
const MAX_PATH_BYTES: usize = 256 << 10;
/// How often to look whether a lock of the index is gone.
const LOCK_POLL: Duration = Duration::from_millis(10);

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
    /// [`Code::Invalid`] for an index that git does not write, and for one with too many such entries; the errors of
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

/// Why an index was not changed.
#[derive(Debug)]
enum ChangeError {
    Io(io::Error),
    Index(IndexError),
    Locked,
    TooMany,
}

impl From<io::Error> for ChangeError {
    fn from(error: io::Error) -> Self {
        ChangeError::Io(error)
    }
}

impl From<rustix::io::Errno> for ChangeError {
    fn from(errno: rustix::io::Errno) -> Self {
        ChangeError::Io(errno.into())
    }
}

impl ChangeError {
    fn into_error(self, task: &str) -> Error {
        match self {
            ChangeError::Io(error) => Error::system(task, error),
            ChangeError::Index(error) => Error::new(Code::Invalid, format!("{task}: {error}")),
            ChangeError::TooMany => {
                Error::new(Code::Invalid, format!("{task}: too many of its files are hidden"))
            }
            ChangeError::Locked => Error::new(Code::State, format!("{task}: git has locked it"))
                .hint("end the git command, or remove index.lock if none runs"),
        }
    }
}

/// The directories with an index of a repository that has hidden paths in its work tree, and these paths relative to
/// the top of the work tree.
fn repositories(
    root: BorrowedFd<'_>,
    workspace: &Path,
    hidden: &[PathBuf],
) -> io::Result<BTreeMap<PathBuf, Vec<PathBuf>>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for path in hidden.iter().filter(|path| !path.iter().any(|name| name == ".git")) {
        // git uses the nearest repository above a path.
        for top in path.ancestors().skip(1) {
            let Some(meta) = beneath::stat_beneath(root, top.join(".git"))? else { continue };
            if let Some(directory) = git_directory(root, workspace, top, meta.kind)
                && let Ok(below) = path.strip_prefix(top)
            {
                found.entry(directory).or_default().push(below.to_owned());
            }
            break;
        }
    }
    Ok(found)
}

/// The directory of the index, relative to the workspace: `.git` in `top`, or the one that a file of this name refers to
/// (gitrepository-layout(5)). `None` if that is outside the workspace.
fn git_directory(root: BorrowedFd<'_>, workspace: &Path, top: &Path, kind: FileKind) -> Option<PathBuf> {
    let link = top.join(".git");
    if kind != FileKind::File {
        return (kind == FileKind::Directory).then_some(link);
    }
    let mut text = Vec::new();
    beneath::open_file(root, &link).ok()?.0.take(MAX_LINK_SIZE).read_to_end(&mut text).ok()?;
    let target = Path::new(std::ffi::OsStr::from_bytes(text.strip_prefix(b"gitdir: ")?.trim_ascii_end()));
    let target = match target.is_absolute() {
        true => target.strip_prefix(workspace).ok()?.to_owned(),
        false => top.join(target),
    };
    let mut path = PathBuf::new();
    for part in target.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
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
    if edited.changed.iter().map(Vec::len).sum::<usize>() > MAX_PATH_BYTES {
        return Err(ChangeError::TooMany);
    }
    let path = |bytes: Vec<u8>| Base64Bytes::from_path(Path::new(std::ffi::OsStr::from_bytes(&bytes)));
    Ok(edited.changed.into_iter().map(path).collect())
}

fn read_index(at: BorrowedFd<'_>, path: &Path) -> io::Result<(Vec<u8>, beneath::FileMeta)> {
    let (file, meta) = beneath::open_file(at, path)?;
    if meta.size > MAX_INDEX_SIZE {
        return Err(io::Error::other("it is larger than 512 MiB"));
    }
    let mut index = Vec::new();
    file.take(MAX_INDEX_SIZE).read_to_end(&mut index)?;
    Ok((index, meta))
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

/// Replaces the index in `directory` by an edited one, as git does: the lock becomes the new index. It keeps its time,
/// because git compares the files that are not older than the index.
fn change_index(
    root: BorrowedFd<'_>,
    directory: &Path,
    patience: Duration,
    edit: impl FnOnce(&[u8]) -> std::result::Result<Option<EditedIndex>, IndexError>,
) -> std::result::Result<(), ChangeError> {
    let directory = match beneath::open_directory(root, directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        directory => directory?,
    };
    let directory = directory.as_fd();
    let mut lock = lock_index(directory, patience)?;
    let changed = (|| {
        let (index, meta) = match read_index(directory, Path::new(INDEX)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            index => index?,
        };
        let Some(edited) = edit(&index).map_err(ChangeError::Index)? else { return Ok(false) };
        lock.write_all(&edited.bytes)?;
        rustix::fs::fchmod(&lock, Mode::from_raw_mode(meta.mode & 0o777))?;
        rustix::fs::futimens(&lock, &timestamps(meta.mtime))?;
        rustix::fs::renameat(directory, LOCK, directory, INDEX)?;
        Ok(true)
    })();
    if !matches!(changed, Ok(true)) {
        let _ = rustix::fs::unlinkat(directory, LOCK, AtFlags::empty());
    }
    changed.map(drop)
}

fn lock_index(
    directory: BorrowedFd<'_>,
    patience: Duration,
) -> std::result::Result<std::fs::File, ChangeError> {
    let until = Instant::now() + patience;
    loop {
        match beneath::create_file(directory, LOCK, 0o600) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && Instant::now() < until => {
                std::thread::sleep(LOCK_POLL);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(ChangeError::Locked),
            lock => return Ok(lock?),
        }
    }
}

/// This time for both, in nanoseconds since the Unix epoch.
fn timestamps(mtime: i128) -> Timestamps {
    const SECOND: i128 = 1_000_000_000;
    let seconds = i64::try_from(mtime.div_euclid(SECOND)).unwrap_or(0);
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::try_from(mtime.rem_euclid(SECOND)).unwrap_or(0) };
    Timestamps { last_access: time, last_modification: time }
}
