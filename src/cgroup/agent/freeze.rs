//! Stopping a whole sandbox (cgroup.freeze, Linux 5.2): told at once, and done when cgroup.events says so.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// The freezer of a sandbox's cgroup.
#[derive(Debug)]
pub struct Freezer {
    file: PathBuf,
    events: File,
}

impl Freezer {
    /// Opens it.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when the cgroup is gone, or never was.
    pub fn open(cgroup: &Path) -> Result<Self> {
        let events = cgroup.join("cgroup.events");
        let opened = File::open(&events);
        let events = opened.map_err(|e| Error::system(format_args!("open {}", events.display()), e))?;
        Ok(Freezer { file: cgroup.join("cgroup.freeze"), events })
    }

    /// Tells all processes to stop, or to go on.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn tell(&self, freeze: bool) -> Result<()> {
        let value = if freeze { "1" } else { "0" };
        fs::write(&self.file, value)
            .map_err(|e| Error::system(format_args!("write {value} to {}", self.file.display()), e))
    }

    /// Whether all have stopped. After this, [`Freezer::events`] wakes whoever waits for a change.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn is_frozen(&mut self) -> Result<bool> {
        let mut text = String::new();
        let read = self.events.rewind().and_then(|()| self.events.read_to_string(&mut text));
        read.map_err(|e| Error::system("read cgroup.events", e))?;
        Ok(text.lines().any(|line| line == "frozen 1"))
    }

    /// Has an exceptional condition (EPOLLPRI) when something changed since it was read.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
