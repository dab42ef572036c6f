//! Control files of one container, whichever hierarchy they are in, through directory descriptors.

use crate::host::cgroups::Version;
use crate::sys::file::{Resolve, open, write_all};
use nix::errno::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The control files of one container. A trait, so that every failure can be played in a test.
pub(super) trait Tree {
    /// The interface that this controller has here; `None` when it is in no hierarchy. `cgroup` stands for the
    /// core files of cgroup v2.
    fn version(&self, controller: &str) -> Option<Version>;

    /// The whole text of a file, without the newlines at its end.
    fn read(&self, controller: &str, file: &str) -> Result<String, Errno>;

    /// Writes a file in one go.
    fn write(&self, controller: &str, file: &str, value: &str) -> Result<(), Errno>;

    /// Where a file is, for messages.
    fn path(&self, controller: &str, file: &str) -> PathBuf;

    /// Whether a file is there.
    fn has(&self, controller: &str, file: &str) -> bool {
        self.read(controller, file) != Err(Errno::ENOENT)
    }

    /// Why a controller is not on here, if that was found out: the file, the value, and the error number.
    fn refusal(&self, controller: &str) -> Option<(PathBuf, String, Errno)> {
        let _ = controller;
        None
    }
}

/// An open cgroup directory.
#[derive(Debug)]
pub(super) struct Dir {
    /// The interface of its hierarchy.
    pub version: Version,
    /// The controllers of its hierarchy.
    pub controllers: Vec<String>,
    /// Where it is.
    pub path: PathBuf,
    /// The directory.
    pub fd: OwnedFd,
}

impl Dir {
    /// Opens the directory at `path`.
    pub(super) fn open(path: &Path, version: Version, controllers: &[String]) -> Result<Self, Errno> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let fd = open(crate::sys::file::cwd(), &c_path(path)?, flags, 0, Resolve::Ordinary)?;
        Ok(Dir { version, controllers: controllers.to_vec(), path: path.to_owned(), fd })
    }

    /// Opens one of its files.
    pub(super) fn file(&self, name: &str, flags: i32) -> Result<OwnedFd, Errno> {
        open(self.fd.as_fd(), &c_path(Path::new(name))?, flags, 0, Resolve::BeneathNoLinks)
    }

    /// The text of one of its files, without the newlines at its end.
    pub(super) fn read(&self, name: &str) -> Result<String, Errno> {
        // Without a look at its size, which it has none of.
        let (file, mut bytes, mut buffer) = (self.file(name, libc::O_RDONLY)?, Vec::new(), [0u8; 4096]);
        loop {
            match nix::unistd::read(&file, &mut buffer) {
                Ok(0) => break,
                Ok(got) => bytes.extend_from_slice(&buffer[..got]),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        let mut text = String::from_utf8(bytes).map_err(|_| Errno::EILSEQ)?;
        text.truncate(text.trim_end_matches('\n').len());
        Ok(text)
    }

    /// Writes one of its files in one go.
    pub(super) fn write(&self, name: &str, value: &str) -> Result<(), Errno> {
        let fd = self.file(name, libc::O_WRONLY | libc::O_TRUNC)?;
        write_all(fd.as_fd(), value.as_bytes())
    }

    /// The directory itself.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether it has this controller; `cgroup` are the core files of v2.
    pub(super) fn has_controller(&self, controller: &str) -> bool {
        if controller == "cgroup" {
            self.version == Version::V2
        } else {
            self.controllers.iter().any(|one| one == controller)
        }
    }
}

/// All directories of one container.
#[derive(Debug, Default)]
pub(super) struct Dirs {
    /// One for each hierarchy.
    pub list: Vec<Dir>,
    /// Controllers that could not be switched on: name, file, value, error.
    pub refused: Vec<(String, PathBuf, String, Errno)>,
}

impl Dirs {
    /// The directory that has this controller; in v1 `io` is `blkio`.
    pub(super) fn home(&self, controller: &str) -> Option<&Dir> {
        self.list.iter().find(|dir| dir.has_controller(controller))
    }

    /// The directory in the cgroup v2 hierarchy.
    pub(super) fn unified(&self) -> Option<&Dir> {
        self.list.iter().find(|dir| dir.version == Version::V2)
    }
}

impl Tree for Dirs {
    fn version(&self, controller: &str) -> Option<Version> {
        self.home(controller).map(|dir| dir.version)
    }

    fn read(&self, controller: &str, file: &str) -> Result<String, Errno> {
        self.home(controller).ok_or(Errno::ENOENT)?.read(file)
    }

    fn write(&self, controller: &str, file: &str, value: &str) -> Result<(), Errno> {
        self.home(controller).ok_or(Errno::ENOENT)?.write(file, value)
    }

    fn path(&self, controller: &str, file: &str) -> PathBuf {
        self.home(controller).map_or_else(|| PathBuf::from(file), |dir| dir.path.join(file))
    }

    fn refusal(&self, controller: &str) -> Option<(PathBuf, String, Errno)> {
        let found = self.refused.iter().find(|(name, ..)| name == controller);
        found.map(|(_, path, value, errno)| (path.clone(), value.clone(), *errno))
    }
}

/// The error number of an I/O error.
pub(super) fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// A path for the kernel.
pub(super) fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::EINVAL)
}
