//! Reads a tree that programs of a sandbox may have written: by descriptors, without following links,
//! without blocking, and within bounds.

use nix::sys::stat::FileStat;
use saggar_sys::SysResult;
use saggar_sys::file::{self, Resolve};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest target of a link in bytes (PATH_MAX).
const MAX_PATH_BYTES: usize = 4096;

/// A tree, held open by its root directory.
#[derive(Debug)]
pub(super) struct BoundedTree {
    root: OwnedFd,
}

/// The metadata of a path that was not opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeMeta(FileStat);

impl TreeMeta {
    fn is_of_type(&self, kind: u32) -> bool {
        self.0.st_mode & libc::S_IFMT == kind
    }

    pub(super) fn is_file(&self) -> bool {
        self.is_of_type(libc::S_IFREG)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.is_of_type(libc::S_IFDIR)
    }

    pub(super) fn is_link(&self) -> bool {
        self.is_of_type(libc::S_IFLNK)
    }

    /// Whether the file has more than one hard link.
    pub(super) fn has_other_names(&self) -> bool {
        self.is_file() && self.0.st_nlink > 1
    }

    pub(super) fn is_executable(&self) -> bool {
        self.is_file() && self.0.st_mode & 0o111 != 0
    }

    pub(super) fn owner(&self) -> (u32, u32) {
        (self.0.st_uid, self.0.st_gid)
    }
}

impl BoundedTree {
    pub(super) fn open(root: &Path) -> SysResult<Self> {
        let path = file::c_path(root)?;
        let root = file::open(file::cwd(), &path, libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)?;
        Ok(BoundedTree { root })
    }

    /// The metadata of `path`. Links in its directories are not followed.
    pub(super) fn stat(&self, path: &Path) -> SysResult<TreeMeta> {
        nix::sys::stat::fstat(self.open_path_only(path)?).map(TreeMeta)
    }

    /// The target of a link.
    pub(super) fn read_link(&self, path: &Path) -> SysResult<PathBuf> {
        let link = self.open_path_only(path)?;
        let mut target = vec![0; MAX_PATH_BYTES];
        let length = file::read_link(link.as_fd(), c"", &mut target)?;
        target.truncate(length);
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// The content of a regular file of at most `limit` bytes.
    pub(super) fn read(&self, path: &Path, limit: u64) -> Option<Vec<u8>> {
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
    pub(super) fn names(&self, path: &Path, limit: usize) -> (Vec<OsString>, bool) {
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
    pub(super) fn directories(&self, path: &Path, limit: usize) -> (Vec<PathBuf>, bool) {
        let (names, whole) = self.names(path, limit);
        let paths = names.into_iter().map(|name| path.join(name));
        (paths.filter(|path| self.stat(path).is_ok_and(|meta| meta.is_directory())).collect(), whole)
    }

    /// Whether the caller may create entries in a directory (faccessat(2)).
    pub(super) fn check_writable(&self, path: &Path) -> SysResult<()> {
        let directory = self.open_at(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        nix::unistd::faccessat(
            &directory,
            ".",
            nix::unistd::AccessFlags::W_OK,
            nix::fcntl::AtFlags::AT_EACCESS,
        )
    }

    pub(super) fn open_at(&self, path: &Path, flags: i32) -> SysResult<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let path = file::c_path(path)?;
        file::open(self.root.as_fd(), &path, flags, 0, Resolve::BeneathNoLinks)
    }

    fn open_path_only(&self, path: &Path) -> SysResult<OwnedFd> {
        self.open_at(path, libc::O_PATH | libc::O_NOFOLLOW)
    }
}
