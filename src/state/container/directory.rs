//! One container's directory: claimed, locked, read without harm, removed.

use super::record::Record;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::state::lock_options;
use crate::sys::read;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest record that is read: annotations are the bundle's.
const RECORD_LIMIT: u64 = 16 << 20;

/// How often a lock that another verb holds is asked for.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// The directory of a container that is there.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    id: SandboxId,
}

/// The lock of a directory. Dropping it lets others in.
#[derive(Debug)]
pub struct Held {
    _lock: Flock<File>,
}

/// A directory that this process has just made, locked. Dropping it without [`Claim::keep`] removes it.
#[derive(Debug)]
pub struct Claim {
    directory: Directory,
    held: Option<Held>,
}

impl Claim {
    pub(super) fn new(path: PathBuf, id: &SandboxId) -> Result<Self> {
        let taken = || {
            Error::new(Code::Exists, format!("container {:?}: an id that already exists", id.as_str()))
                .hint("choose another id, or delete that container first")
        };
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => taken(),
            _ => Error::system(format_args!("make the directory {}", path.display()), e),
        })?;
        let directory = Directory::new(path, id.clone());
        // A delete --force may have come between and removed what seemed to be half made: then the id is
        // nobody's, and this create has lost.
        let held = directory.lock(Duration::ZERO)?.ok_or_else(taken)?;
        Ok(Claim { directory, held: Some(held) })
    }

    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The container stands: directory and lock are the caller's.
    pub fn keep(mut self) -> (Directory, Option<Held>) {
        (self.directory.clone(), self.held.take())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.held.is_some()
            && let Err(error) = self.directory.remove()
        {
            log::warn!("{error}");
        }
    }
}

impl Directory {
    pub(super) fn new(path: PathBuf, id: SandboxId) -> Self {
        Directory { path, id }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The container's id.
    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    /// Takes the lock, waiting at most for `patience`; `None` when another verb has it all that time.
    ///
    /// # Errors
    /// [`Code::NotFound`] when the directory has gone meanwhile; [`Code::System`].
    pub fn lock(&self, patience: Duration) -> Result<Option<Held>> {
        let path = self.path.join("lock");
        let end = Instant::now() + patience;
        let fails = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => self.gone(),
            _ => Error::system(format_args!("open {}", path.display()), e),
        };
        let mut file = lock_options().create(true).open(&path).map_err(fails)?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    // The lock of a directory that was removed, and perhaps made anew, is nothing.
                    let is = |meta: fs::Metadata| (meta.dev(), meta.ino());
                    let held = lock.metadata().map(is).ok();
                    if held.is_none() || held != path.symlink_metadata().map(is).ok() {
                        return Err(self.gone());
                    }
                    return Ok(Some(Held { _lock: lock }));
                }
                Err((_, nix::errno::Errno::EWOULDBLOCK)) if Instant::now() >= end => return Ok(None),
                Err((unlocked, nix::errno::Errno::EWOULDBLOCK)) => {
                    file = unlocked;
                    std::thread::sleep(ASK_AGAIN);
                }
                Err((_, errno)) => return Err(Error::system(format_args!("lock {}", path.display()), errno)),
            }
        }
    }

    /// The same, for a verb that cannot go on without it.
    ///
    /// # Errors
    /// [`Code::System`] when another verb has it for half a minute; as [`Directory::lock`].
    pub fn must_lock(&self) -> Result<Held> {
        self.lock(Duration::from_secs(30))?.ok_or_else(|| {
            Error::new(
                Code::System,
                format!("container {:?}: another command is changing it", self.id.as_str()),
            )
            .hint("wait for that command, or end it; delete --force does not wait for it")
        })
    }

    /// Removes whatever lies in the place of the lock: for [`Directory::remove`], when [`Directory::lock`] cannot
    /// open it.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn mend_lock(&self) -> Result<()> {
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

    fn gone(&self) -> Error {
        Error::new(Code::NotFound, format!("container {:?} does not exist", self.id.as_str()))
    }

    /// The record; where it is damaged, its copy.
    ///
    /// # Errors
    /// [`Code::Invalid`] when neither can be read: then `delete --force` is all that helps. [`Code::NotFound`]
    /// when the directory is gone.
    pub fn read(&self) -> Result<Record> {
        let first = self.read_one("state.json");
        let error = match first {
            Ok(record) => return Ok(record),
            Err(error) => error,
        };
        if let Ok(record) = self.read_one("state.copy.json") {
            return Ok(record);
        }
        if self.path.symlink_metadata().is_err() {
            return Err(self.gone());
        }
        Err(Error::new(Code::Invalid, format!("container {:?}: {error}", self.id.as_str()))
            .hint("saggar delete --force removes it"))
    }

    fn read_one(&self, name: &str) -> Result<Record> {
        let path = self.path.join(name);
        let bad = |why: &str| Error::new(Code::Invalid, format!("read {}: {why}", path.display()));
        let bytes = read::small_file(&path, RECORD_LIMIT).ok_or_else(|| bad("it is no readable file"))?;
        let record = Record::parse(&bytes).map_err(|why| bad(&why))?;
        if record.id != self.id.as_str() {
            return Err(bad("it is of another container"));
        }
        Ok(record)
    }

    /// Whether neither the record nor its copy was ever written.
    pub fn is_bare(&self) -> bool {
        ["state.json", "state.copy.json"].iter().all(|name| self.path.join(name).symlink_metadata().is_err())
    }

    /// Writes the record; its copy too, once the container is complete and the record does not change any more.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn write(&self, record: &Record) -> Result<()> {
        let bytes = record.encode()?;
        self.write_file("state.json", &bytes)?;
        if !record.complete {
            return Ok(());
        }
        self.write_file("state.copy.json", &bytes)?;
        self.write_into_lock(&bytes);
        Ok(())
    }

    /// The lock is a file that stays: with the record in it, there is something to go by where both others are lost. A
    /// lock that cannot be written is as one that was damaged.
    fn write_into_lock(&self, bytes: &[u8]) {
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

    /// What the lock says of a complete container, for the end of one that [`Directory::read`] knows nothing of.
    pub fn last_record(&self) -> Option<Record> {
        self.read_one("lock").ok()
    }

    /// Writes one file of the directory, whole or not at all.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_atomically(&self.path.join(name), bytes, 0o600)
    }

    /// Removes the directory with everything in it, whatever that is. One that is gone is fine.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::system(format_args!("remove {}", self.path.display()), e))
            }
            _ => Ok(()),
        }
    }
}

/// Writes `path` through a temporary file beside it that is renamed: whoever reads, whoever of us is killed, there is
/// the old content or the new. It is not synced: what it is about ends with this boot.
///
/// # Errors
/// [`Code::System`].
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = path.with_file_name(name);
    let write = || {
        let _ = fs::remove_file(&new);
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        fs::rename(&new, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&new);
        Error::system(format_args!("write {}", path.display()), e)
    })
}

#[cfg(test)]
mod tests;
