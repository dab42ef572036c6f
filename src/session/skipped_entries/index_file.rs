//! The file of an index: read whole, and replaced as git replaces it.

use super::beneath::{self, FileMeta};
use crate::error::{Code, Error};
use crate::host::git_index::{EditedIndex, IndexError};
use rustix::fs::{AtFlags, Mode};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The name of the index, and of its lock, in which a new index is written.
pub(super) const INDEX: &str = "index";
const LOCK: &str = "index.lock";
/// Largest index that is read, in bytes.
const MAX_SIZE: u64 = 512 << 20;
/// How often to look whether a lock of the index is gone.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// Why an index was not changed.
#[derive(Debug)]
pub(super) enum ChangeError {
    Io(io::Error),
    Index(IndexError),
    Locked,
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
    pub(super) fn into_error(self, task: &str) -> Error {
        match self {
            ChangeError::Io(error) => Error::system(task, error),
            ChangeError::Index(error) => Error::new(Code::Invalid, format!("{task}: {error}")),
            ChangeError::Locked => Error::new(Code::State, format!("{task}: git has locked it"))
                .hint("end the git command, or remove index.lock if none runs"),
        }
    }
}

/// Reads an index.
pub(super) fn read_index(at: BorrowedFd<'_>, path: &Path) -> io::Result<(Vec<u8>, FileMeta)> {
    let (file, meta) = beneath::open_file(at, path)?;
    if meta.size > MAX_SIZE {
        return Err(io::Error::other("it is larger than 512 MiB"));
    }
    let mut index = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut index)?;
    Ok((index, meta))
}

/// Replaces the index in `directory` by an edited one, as git does: the lock becomes the new index. It keeps its time,
/// because git compares the files that are not older than the index.
pub(super) fn change_index(
    root: BorrowedFd<'_>,
    directory: &Path,
    patience: Duration,
    edit: impl FnOnce(&[u8]) -> Result<Option<EditedIndex>, IndexError>,
) -> Result<(), ChangeError> {
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
        rustix::fs::futimens(&lock, &beneath::timestamps(meta.mtime_parts()))?;
        rustix::fs::renameat(directory, LOCK, directory, INDEX)?;
        Ok(true)
    })();
    if !matches!(changed, Ok(true)) {
        let _ = rustix::fs::unlinkat(directory, LOCK, AtFlags::empty());
    }
    changed.map(drop)
}

fn lock_index(directory: BorrowedFd<'_>, patience: Duration) -> Result<File, ChangeError> {
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
