//! Reads a tree that programs of a sandbox may have written: by descriptors, without following links,
//! without blocking, and within bounds.

use nix::sys::stat::FileStat;
use saggar_sys::SysResult;
use saggar_sys::file::{self, Resolve};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest target of a link in bytes (PATH_MAX).
const MAX_PATH_BYTES: usize = 4096;

/// A tree, held open by its root directory.
#[derive(Debug)]
pub(crate) struct BoundedTree {
    root: OwnedFd,
}

/// The metadata of a path that was not opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeMeta(FileStat);

impl TreeMeta {
    fn is_of_type(&self, kind: u32) -> bool {
        self.0.st_mode & libc::S_IFMT == kind
    }

    pub(crate) fn is_file(&self) -> bool {
        self.is_of_type(libc::S_IFREG)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.is_of_type(libc::S_IFDIR)
    }

    pub(crate) fn is_link(&self) -> bool {
        self.is_of_type(libc::S_IFLNK)
    }

    /// The file system (stat(2), `st_dev`).
    pub(crate) fn device(&self) -> u64 {
        self.0.st_dev
    }

    /// Whether the file has more than one hard link.
    pub(crate) fn has_other_names(&self) -> bool {
        self.is_file() && self.0.st_nlink > 1
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.is_file() && self.0.st_mode & 0o111 != 0
    }

    pub(crate) fn owner(&self) -> (u32, u32) {
        (self.0.st_uid, self.0.st_gid)
    }
}

impl BoundedTree {
    pub(crate) fn open(root: &Path) -> SysResult<Self> {
        let path = file::c_path(root)?;
        let root = file::open(file::cwd(), &path, libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)?;
        Ok(BoundedTree { root })
    }

    /// The metadata of the root.
    pub(crate) fn root_meta(&self) -> SysResult<TreeMeta> {
        nix::sys::stat::fstat(&self.root).map(TreeMeta)
    }

    /// The path of the root, without links (proc_pid_fd(5)).
    pub(crate) fn path(&self) -> SysResult<PathBuf> {
        read_link_of(file::cwd(), &file::proc_fd_path(self.root.as_fd()))
    }

    /// The metadata of `path`. Links in its directories are not followed.
    pub(crate) fn stat(&self, path: &Path) -> SysResult<TreeMeta> {
        nix::sys::stat::fstat(self.open_path_only(path)?).map(TreeMeta)
    }

    /// The target of a link.
    pub(crate) fn read_link(&self, path: &Path) -> SysResult<PathBuf> {
        read_link_of(self.open_path_only(path)?.as_fd(), c"")
    }

    /// The content of a regular file of at most `limit` bytes.
    pub(crate) fn read(&self, path: &Path, limit: u64) -> Option<Vec<u8>> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::from(self.open_at(path, flags).ok()?);
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.len() > limit {
            return None;
        }
        let mut text = Vec::new();
        file.take(limit).read_to_end(&mut text).ok()?;
        Some(text)
    }

    /// At most `limit` names of a directory, and whether these are all.
    pub(crate) fn names(&self, path: &Path, limit: usize) -> (Vec<OsString>, bool) {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let Ok(directory) = self.open_at(path, flags) else { return (Vec::new(), true) };
        let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return (Vec::new(), true) };
        let mut names = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == limit {
                return (names, false);
            }
            names.push(OsStr::from_bytes(name).to_owned());
        }
        (names, true)
    }

    /// At most `limit` subdirectories of a directory, and whether these are all.
    pub(crate) fn directories(&self, path: &Path, limit: usize) -> (Vec<PathBuf>, bool) {
        let (names, whole) = self.names(path, limit);
        let paths = names.into_iter().map(|name| path.join(name));
        (paths.filter(|path| self.stat(path).is_ok_and(|meta| meta.is_directory())).collect(), whole)
    }

    /// Whether the caller may create entries in a directory (faccessat(2)).
    pub(crate) fn check_writable(&self, path: &Path) -> SysResult<()> {
        let directory = self.open_at(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        nix::unistd::faccessat(
            &directory,
            ".",
            nix::unistd::AccessFlags::W_OK,
            nix::fcntl::AtFlags::AT_EACCESS,
        )
    }

    pub(crate) fn open_at(&self, path: &Path, flags: i32) -> SysResult<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let path = file::c_path(path)?;
        file::open(self.root.as_fd(), &path, flags, 0, Resolve::BeneathNoLinks)
    }

    fn open_path_only(&self, path: &Path) -> SysResult<OwnedFd> {
        self.open_at(path, libc::O_PATH | libc::O_NOFOLLOW)
    }
}

fn read_link_of(directory: BorrowedFd<'_>, name: &CStr) -> SysResult<PathBuf> {
    let mut target = vec![0; MAX_PATH_BYTES];
    let length = file::read_link(directory, name, &mut target)?;
    target.truncate(length);
    Ok(PathBuf::from(OsString::from_vec(target)))
}
