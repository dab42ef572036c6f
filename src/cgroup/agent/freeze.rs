//! Freezes a whole sandbox (cgroup.freeze, Linux 5.2). The request returns at once; cgroup.events reports when it is
//! complete.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// The freezer of a sandbox's cgroup.
#[derive(Debug)]
pub struct SandboxFreezer {
    file: PathBuf,
    events: File,
}

impl SandboxFreezer {
    /// Opens the freezer.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] if the cgroup does not exist.
    pub fn open(cgroup: &Path) -> Result<Self> {
        let events = cgroup.join("cgroup.events");
        let opened = File::open(&events);
        let events = opened.map_err(|e| Error::system(format_args!("open {}", events.display()), e))?;
        Ok(SandboxFreezer { file: cgroup.join("cgroup.freeze"), events })
    }

    /// Requests that all processes be frozen or thawed.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] if the file cannot be written.
    pub fn set_frozen(&self, freeze: bool) -> Result<()> {
        let value = if freeze { "1" } else { "0" };
        fs::write(&self.file, value)
            .map_err(|e| Error::system(format_args!("write {value} to {}", self.file.display()), e))
    }

    /// Whether all processes are frozen. After this call, [`SandboxFreezer::events`] signals the next change.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] if the file cannot be read.
    pub fn is_frozen(&mut self) -> Result<bool> {
        let mut text = String::new();
        let read = self.events.rewind().and_then(|()| self.events.read_to_string(&mut text));
        read.map_err(|e| Error::system("read cgroup.events", e))?;
        Ok(text.lines().any(|line| line == "frozen 1"))
    }

    /// A descriptor with an exceptional condition (EPOLLPRI) if cgroup.events changed since it was read.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
