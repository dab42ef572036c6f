//! The file of an index: read whole, and replaced as git replaces it.

use crate::host::git_index::{self, EditedIndex, IndexError, ObjectFormat, SkipWorktree};
use rustix::fs::{AtFlags, Mode};
use saggar_sys::beneath::{self, FileMeta};
use saggar_sys::error::{Code, Error};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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

/// An index that was read.
pub(super) struct ReadIndex {
    /// Its content. That of a split index becomes whole when it is edited.
    pub(super) bytes: Vec<u8>,
    pub(super) meta: FileMeta,
    directory: OwnedFd,
}

impl ReadIndex {
    /// Reads the index in this directory; `None` if there is none.
    pub(super) fn read(at: BorrowedFd<'_>, directory: &Path) -> io::Result<Option<Self>> {
        let read = beneath::open_directory(at, directory).and_then(|directory| {
            let (bytes, meta) = read_file(directory.as_fd(), Path::new(INDEX))?;
            Ok(ReadIndex { bytes, meta, directory })
        });
        match read {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// [`git_index::edit`], in the format that the index has. Which one that is says a configuration; an index of the
    /// other format is malformed.
    pub(super) fn edit(
        &mut self,
        change: SkipWorktree,
        mut is_wanted: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<EditedIndex>, ChangeError> {
        let mut first_error = None;
        for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let edited = match git_index::edit(&self.bytes, format, change, &mut is_wanted) {
                Err(IndexError::Split) => {
                    self.join(format)?;
                    git_index::edit(&self.bytes, format, change, &mut is_wanted)
                }
                edited => edited,
            };
            match edited {
                Ok(edited) => return Ok(edited),
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        Err(ChangeError::Index(first_error.unwrap_or(IndexError::NotAnIndex)))
    }

    fn join(&mut self, format: ObjectFormat) -> Result<(), ChangeError> {
        let shared = git_index::shared_file_name(&self.bytes, format).map_err(ChangeError::Index)?;
        let (shared, _) = read_file(self.directory.as_fd(), Path::new(&shared.unwrap_or_default()))?;
        self.bytes = git_index::join(&self.bytes, &shared, format).map_err(ChangeError::Index)?;
        Ok(())
    }
}

fn read_file(at: BorrowedFd<'_>, path: &Path) -> io::Result<(Vec<u8>, FileMeta)> {
    let (file, meta) = beneath::open_file(at, path)?;
    if meta.size > MAX_SIZE {
        return Err(io::Error::other("it is larger than 512 MiB"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut bytes)?;
    Ok((bytes, meta))
}

/// Replaces the index in `directory` by an edited one, as git does: the lock becomes the new index. It keeps its time,
/// because git compares the files that are not older than the index.
pub(super) fn change_index(
    root: BorrowedFd<'_>,
    directory: &Path,
    patience: Duration,
    change: SkipWorktree,
    is_wanted: impl FnMut(&[u8]) -> bool,
) -> Result<(), ChangeError> {
    let directory = match beneath::open_directory(root, directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        directory => directory?,
    };
    let directory = directory.as_fd();
    let mut lock = lock_index(directory, patience)?;
    let changed = (|| {
        let Some(mut index) = ReadIndex::read(directory, Path::new("."))? else { return Ok(false) };
        let Some(edited) = index.edit(change, is_wanted)? else { return Ok(false) };
        lock.write_all(&edited.bytes)?;
        rustix::fs::fchmod(&lock, Mode::from_raw_mode(index.meta.mode & 0o777))?;
        rustix::fs::futimens(&lock, &beneath::timestamps(index.meta.mtime_parts()))?;
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
