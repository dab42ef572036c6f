//! Exclusion between processes: flock(2) on a file of its own, which is never replaced, as the files that it protects
//! are. The kernel releases the lock when its holder dies.

use crate::directory::Directory;
use crate::error::{Error, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A lock file that is open.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    name: &'static str,
    path: PathBuf,
}

impl LockFile {
    /// Opens the lock file `name`, and creates it if it is missing.
    pub(crate) fn open(directory: &Directory, name: &'static str) -> Result<Self> {
        Ok(LockFile { file: directory.open_or_create_file(name)?, name, path: directory.path_of(name) })
    }

    /// Locks the file for as long as it is open; false if another process has locked it.
    pub(crate) fn try_hold(&self) -> Result<bool> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(cause) => Err(Error::system(format_args!("lock {}", self.path.display()), cause)),
        }
    }

    /// Writes into the file that this process holds it.
    pub(crate) fn record_holder(&self) -> Result<()> {
        let pid = format!("{:<10}\n", std::process::id());
        self.file
            .write_all_at(pid.as_bytes(), 0)
            .map_err(|cause| Error::system(format_args!("write {}", self.path.display()), cause))
    }

    /// Whether the process that recorded itself last with [`LockFile::record_holder`] lives.
    pub(crate) fn is_holder_alive(&self) -> bool {
        let mut text = [0; 16];
        let Ok(length) = self.file.read_at(&mut text, 0) else { return true };
        let text = text.get(..length).and_then(|text| std::str::from_utf8(text).ok());
        let pid = text.and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw);
        pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
    }

    /// Whether another process has locked the file with [`LockFile::try_hold`]. Processes that ask do not disturb each other.
    pub(crate) fn is_held(&self) -> Result<bool> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                drop(LockGuard(&self.file));
                Ok(false)
            }
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(cause) => Err(Error::system(format_args!("lock {}", self.path.display()), cause)),
        }
    }

    /// Waits for the lock, and holds it until the result is dropped. If the file was removed from `directory`, other
    /// processes lock a new one, and so does this one.
    pub(crate) fn acquire(&mut self, directory: &Directory) -> Result<LockGuard<'_>> {
        let failed = |path: &Path, cause| Error::system(format_args!("lock {}", path.display()), cause);
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::LockExclusive) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(cause) => return Err(failed(&self.path, cause)),
            }
            let stat = rustix::fs::fstat(&self.file).map_err(|cause| failed(&self.path, cause))?;
            if stat.st_nlink > 0 {
                return Ok(LockGuard(&self.file));
            }
            self.file = directory.open_or_create_file(self.name)?;
        }
    }
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct LockGuard<'a>(&'a File);

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        // It cannot fail on an open descriptor, and closing the descriptor unlocks as well.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}
