//! Control files of one container in any hierarchy, through directory descriptors.

use crate::host::cgroups::CgroupVersion;
use nix::errno::Errno;
use saggar_sys::error::Error;
use saggar_sys::file::{self, Resolve, open, write_all};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The control files of one container. It is a trait so that tests can inject every failure.
pub(super) trait ControlFiles {
    /// The cgroup version that this controller has on this host; `None` if it is in no hierarchy. `cgroup` stands for
    /// the core files of cgroup v2.
    fn version(&self, controller: &str) -> Option<CgroupVersion>;

    /// The whole text of a file, without trailing newlines.
    fn read(&self, controller: &str, file: &str) -> Result<String, Errno>;

    /// Writes a file with one write(2).
    fn write(&self, controller: &str, file: &str, value: &str) -> Result<(), Errno>;

    /// The path of a file, for messages.
    fn path(&self, controller: &str, file: &str) -> PathBuf;

    /// Whether a file exists.
    fn has(&self, controller: &str, file: &str) -> bool {
        self.read(controller, file) != Err(Errno::ENOENT)
    }

    /// The reason why a controller could not be enabled here, if known: the file, the value, and the error number.
    fn refusal(&self, controller: &str) -> Option<(PathBuf, String, Errno)> {
        let _ = controller;
        None
    }
}

/// An open cgroup directory of one hierarchy.
#[derive(Debug)]
pub(super) struct OpenCgroup {
    /// The cgroup version of its hierarchy.
    pub version: CgroupVersion,
    /// The controllers of its hierarchy.
    pub controllers: Vec<String>,
    /// The path of the directory.
    pub path: PathBuf,
    /// The open directory.
    pub fd: OwnedFd,
}

impl OpenCgroup {
    /// Opens the directory at `path`.
    pub(super) fn open(path: &Path, version: CgroupVersion, controllers: &[String]) -> Result<Self, Errno> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let fd = open(file::cwd(), &file::c_path(path)?, flags, 0, Resolve::Ordinary)?;
        Ok(OpenCgroup { version, controllers: controllers.to_vec(), path: path.to_owned(), fd })
    }

    /// The same directory, with a descriptor of its own.
    pub(super) fn duplicate(&self) -> saggar_sys::error::Result<Self> {
        let duplicated = self.fd.try_clone();
        let fd = duplicated.map_err(|e| Error::system("duplicate the descriptor of a cgroup", e))?;
        Ok(OpenCgroup {
            version: self.version,
            controllers: self.controllers.clone(),
            path: self.path.clone(),
            fd,
        })
    }

    /// Opens one of its files.
    pub(super) fn file(&self, name: &str, flags: i32) -> Result<OwnedFd, Errno> {
        open(self.fd.as_fd(), &file::c_path(Path::new(name))?, flags, 0, Resolve::BeneathNoLinks)
    }

    /// The text of one of its files, without trailing newlines.
    pub(super) fn read(&self, name: &str) -> Result<String, Errno> {
        // Control files have no size, so the text is read until the end.
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

    /// Writes one of its files with one write(2).
    pub(super) fn write(&self, name: &str, value: &str) -> Result<(), Errno> {
        let fd = self.file(name, libc::O_WRONLY | libc::O_TRUNC)?;
        write_all(fd.as_fd(), value.as_bytes())
    }

    /// The descriptor of the directory.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether the hierarchy has this controller; `cgroup` stands for the core files of v2.
    pub(super) fn has_controller(&self, controller: &str) -> bool {
        if controller == "cgroup" {
            self.version == CgroupVersion::V2
        } else {
            self.controllers.iter().any(|one| one == controller)
        }
    }
}

/// The open cgroup directories of one container.
#[derive(Debug, Default)]
pub(super) struct OpenCgroups {
    /// One directory for each hierarchy.
    pub list: Vec<OpenCgroup>,
    /// Controllers that could not be enabled: name, file, value, error.
    pub refused_controllers: Vec<(String, PathBuf, String, Errno)>,
}

impl OpenCgroups {
    /// The directory whose hierarchy has this controller; in v1 `io` is `blkio`.
    pub(super) fn directory_for(&self, controller: &str) -> Option<&OpenCgroup> {
        self.list.iter().find(|dir| dir.has_controller(controller))
    }

    /// The directory in the cgroup v2 hierarchy.
    pub(super) fn unified(&self) -> Option<&OpenCgroup> {
        self.list.iter().find(|dir| dir.version == CgroupVersion::V2)
    }
}

impl ControlFiles for OpenCgroups {
    fn version(&self, controller: &str) -> Option<CgroupVersion> {
        self.directory_for(controller).map(|dir| dir.version)
    }

    fn read(&self, controller: &str, file: &str) -> Result<String, Errno> {
        self.directory_for(controller).ok_or(Errno::ENOENT)?.read(file)
    }

    fn write(&self, controller: &str, file: &str, value: &str) -> Result<(), Errno> {
        self.directory_for(controller).ok_or(Errno::ENOENT)?.write(file, value)
    }

    fn path(&self, controller: &str, file: &str) -> PathBuf {
        self.directory_for(controller).map_or_else(|| PathBuf::from(file), |dir| dir.path.join(file))
    }

    fn refusal(&self, controller: &str) -> Option<(PathBuf, String, Errno)> {
        let found = self.refused_controllers.iter().find(|(name, ..)| name == controller);
        found.map(|(_, path, value, errno)| (path.clone(), value.clone(), *errno))
    }
}

/// The error number of an I/O error.
pub(super) fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
