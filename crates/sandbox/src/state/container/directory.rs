//! The directory of one container: claim, lock, read and remove it, safely even if its content is hostile.

use super::record::ContainerRecord;
use crate::state::lock_options;
use nix::fcntl::{Flock, FlockArg};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use saggar_sys::read;
use saggar_sys::replace_file::{SyncPolicy, Writers, replace_file};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Largest record that is read in bytes; annotations come from the bundle.
const MAX_RECORD_SIZE: u64 = 16 << 20;

/// Interval at which a lock that another command holds is retried.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How long a directory may keep getting new files before its removal fails.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The directory of an existing container.
#[derive(Debug, Clone)]
pub struct ContainerDirectory {
    path: PathBuf,
    id: SandboxId,
}

/// The lock of a directory. Dropping it releases the lock.
#[derive(Debug)]
pub struct ContainerLock {
    _lock: Flock<File>,
}

/// A directory that this process has just created, locked. Dropping it without [`ContainerClaim::commit`] removes it.
#[derive(Debug)]
pub struct ContainerClaim {
    directory: ContainerDirectory,
    lock: Option<ContainerLock>,
}

impl ContainerClaim {
    pub(super) fn new(path: PathBuf, id: &SandboxId) -> Result<Self> {
        let taken = || {
            Error::new(Code::Exists, format!("container {:?}: an id that already exists", id.as_str()))
                .hint("choose another id, or delete that container first")
        };
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => taken(),
            _ => Error::system(format_args!("make the directory {}", path.display()), e),
        })?;
        let directory = ContainerDirectory::new(path, id.clone());
        // A `delete --force` may have removed the directory as half created in between: then the id is free again, and
        // this create has failed.
        let held = directory.lock(Duration::ZERO)?.ok_or_else(taken)?;
        Ok(ContainerClaim { directory, lock: Some(held) })
    }

    /// The claimed directory.
    pub fn directory(&self) -> &ContainerDirectory {
        &self.directory
    }

    /// The container is created: returns the directory and the lock to the caller.
    pub fn commit(mut self) -> (ContainerDirectory, Option<ContainerLock>) {
        (self.directory.clone(), self.lock.take())
    }
}

impl Drop for ContainerClaim {
    fn drop(&mut self) {
        if self.lock.is_some()
            && let Err(error) = self.directory.remove()
        {
            log::warn!("{error}");
        }
    }
}

impl ContainerDirectory {
    pub(super) fn new(path: PathBuf, id: SandboxId) -> Self {
        ContainerDirectory { path, id }
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Id of the container.
    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    /// Takes the lock, and waits for it at most `max_wait`; `None` when another command holds it for all that time.
    ///
    /// # Errors
    /// [`Code::NotFound`] when the directory was removed meanwhile; [`Code::System`].
    pub fn lock(&self, max_wait: Duration) -> Result<Option<ContainerLock>> {
        let path = self.path.join("lock");
        let end = Instant::now() + max_wait;
        let fails = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => self.not_found_error(),
            _ => Error::system(format_args!("open {}", path.display()), e),
        };
        // Only the first command creates the file: the keeper of a bridge takes the lock too, and its seccomp filter
        // has no system call that creates files.
        let mut file = match lock_options().open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => lock_options().create(true).open(&path),
            opened => opened,
        }
        .map_err(fails)?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    // The lock of a directory that was removed, and perhaps created again, has no effect.
                    let is = |meta: fs::Metadata| (meta.dev(), meta.ino());
                    let held = lock.metadata().map(is).ok();
                    if held.is_none() || held != path.symlink_metadata().map(is).ok() {
                        return Err(self.not_found_error());
                    }
                    return Ok(Some(ContainerLock { _lock: lock }));
                }
                Err((_, nix::errno::Errno::EWOULDBLOCK)) if Instant::now() >= end => return Ok(None),
                Err((unlocked, nix::errno::Errno::EWOULDBLOCK)) => {
                    file = unlocked;
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                Err((_, errno)) => return Err(Error::system(format_args!("lock {}", path.display()), errno)),
            }
        }
    }

    /// Like [`ContainerDirectory::lock`], for a command that requires the lock.
    ///
    /// # Errors
    /// [`Code::System`] when another command holds it for 30 seconds; as [`ContainerDirectory::lock`].
    pub fn lock_or_fail(&self) -> Result<ContainerLock> {
        self.lock(Duration::from_secs(30))?.ok_or_else(|| {
            Error::new(
                Code::System,
                format!("container {:?}: another command is changing it", self.id.as_str()),
            )
            .hint("wait for that command, or end it; delete --force does not wait for it")
        })
    }

    /// Removes any file in the place of the lock: for [`ContainerDirectory::remove`], when [`ContainerDirectory::lock`]
    /// cannot open it.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn repair_lock(&self) -> Result<()> {
        let path = self.path.join("lock");
        let is_dir = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::system(format_args!("remove {}", path.display()), e))
            }
            _ => Ok(()),
        }
    }

    fn not_found_error(&self) -> Error {
        Error::new(Code::NotFound, format!("container {:?} does not exist", self.id.as_str()))
    }

    /// Reads the record; if it is damaged, its copy.
    ///
    /// # Errors
    /// [`Code::Invalid`] when neither can be read: only `delete --force` helps. [`Code::NotFound`] when the directory
    /// was removed.
    pub fn read_record(&self) -> Result<ContainerRecord> {
        let first = self.read_record_file("state.json");
        let error = match first {
            Ok(record) => return Ok(record),
            Err(error) => error,
        };
        if let Ok(record) = self.read_record_file("state.copy.json") {
            return Ok(record);
        }
        if self.path.symlink_metadata().is_err() {
            return Err(self.not_found_error());
        }
        Err(Error::new(Code::Invalid, format!("container {:?}: {error}", self.id.as_str()))
            .hint("saggar delete --force removes it"))
    }

    fn read_record_file(&self, name: &str) -> Result<ContainerRecord> {
        let path = self.path.join(name);
        let bad = |why: &str| Error::new(Code::Invalid, format!("read {}: {why}", path.display()));
        let bytes = read::small_file(&path, MAX_RECORD_SIZE).ok_or_else(|| bad("it is no readable file"))?;
        let record = ContainerRecord::parse(&bytes).map_err(|why| bad(&why))?;
        if record.id != self.id.as_str() {
            return Err(bad("it is of another container"));
        }
        Ok(record)
    }

    /// Whether neither the record nor its copy was ever written.
    pub fn has_no_record(&self) -> bool {
        ["state.json", "state.copy.json"].iter().all(|name| self.path.join(name).symlink_metadata().is_err())
    }

    /// Writes the record; also its copy once the container is complete and the record no longer changes.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn write_record(&self, record: &ContainerRecord) -> Result<()> {
        let bytes = record.encode()?;
        self.write_file("state.json", &bytes)?;
        if !record.complete {
            return Ok(());
        }
        self.write_file("state.copy.json", &bytes)?;
        self.write_record_to_lock(&bytes);
        Ok(())
    }

    /// The lock file is permanent, so it also holds the record for when both other files are lost. A failed write to
    /// the lock is ignored, like a damaged record in it.
    fn write_record_to_lock(&self, bytes: &[u8]) {
        let path = self.path.join("lock");
        let write = || -> std::io::Result<()> {
            let mut file = lock_options().open(&path)?;
            file.set_len(0)?;
            file.write_all(bytes)
        };
        if let Err(error) = write() {
            log::debug!("write {}: {error}", path.display());
        }
    }

    /// The record in the lock file of a complete container, to delete one for which [`ContainerDirectory::read_record`]
    /// fails.
    pub fn read_record_from_lock(&self) -> Option<ContainerRecord> {
        self.read_record_file("lock").ok()
    }

    /// Writes one file of the directory atomically.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_atomically(&self.path.join(name), bytes, 0o600)
    }

    /// Removes the directory and all of its content. It is not an error if the directory no longer exists.
    ///
    /// The supervisor of a bridge whose `create` was killed may still be making its sockets there, until it finds that out.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn remove(&self) -> Result<()> {
        let end = Instant::now() + REMOVE_TIMEOUT;
        loop {
            match fs::remove_dir_all(&self.path) {
                Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty && Instant::now() < end => {
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::system(format_args!("remove {}", self.path.display()), e));
                }
                _ => return Ok(()),
            }
        }
    }
}

/// Writes `path` through a temporary file in the same directory, which is then renamed. A reader, or a crash of the
/// writer, sees the old content or the new. The file is not synced: its content has no meaning after a reboot.
///
/// # Errors
/// [`Code::System`].
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    replace_file(path, Writers::Many, mode, SyncPolicy::None, |file| file.write_all(bytes))
        .map_err(|e| Error::system(format_args!("write {}", path.display()), e))
}

#[cfg(test)]
mod tests;
