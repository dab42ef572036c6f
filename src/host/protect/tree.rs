//! Looks into a tree that programs of a sandbox may have written: by descriptors, no link followed, nothing waited
//! for, and never more than a bound.

use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult};
use nix::sys::stat::FileStat;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// How long a target of a link may be (PATH_MAX).
const PATH_LIMIT: usize = 4096;

/// The tree, held open.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
}

/// What is known of a name without opening it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meta(FileStat);

impl Meta {
    fn is(&self, kind: u32) -> bool {
        self.0.st_mode & libc::S_IFMT == kind
    }

    pub(super) fn is_file(&self) -> bool {
        self.is(libc::S_IFREG)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.is(libc::S_IFDIR)
    }

    pub(super) fn is_link(&self) -> bool {
        self.is(libc::S_IFLNK)
    }

    /// Whether another name leads to the same file.
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

impl Tree {
    pub(super) fn open(root: &Path) -> SysResult<Self> {
        let path = CString::new(root.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        let root = file::open(file::cwd(), &path, libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)?;
        Ok(Tree { root })
    }

    /// What `path` is, without links on the way.
    pub(super) fn look(&self, path: &Path) -> SysResult<Meta> {
        nix::sys::stat::fstat(self.path_only(path)?).map(Meta)
    }

    /// What a link says.
    pub(super) fn target(&self, path: &Path) -> SysResult<PathBuf> {
        let link = self.path_only(path)?;
        let mut target = vec![0; PATH_LIMIT];
        let length = file::read_link(link.as_fd(), c"", &mut target)?;
        target.truncate(length);
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// The content of a regular file of at most `limit` bytes.
    pub(super) fn read(&self, path: &Path, limit: u64) -> Option<Vec<u8>> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::from(self.at(path, flags).ok()?);
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.len() > limit {
            return None;
        }
        let mut text = Vec::new();
        file.take(limit).read_to_end(&mut text).ok()?;
        Some(text)
    }

    /// At most `limit` names of a directory, and whether that is all of them.
    pub(super) fn names(&self, path: &Path, limit: usize) -> (Vec<OsString>, bool) {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let Ok(directory) = self.at(path, flags) else { return (Vec::new(), true) };
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

    /// At most `limit` directories in a directory, and whether that is all of them.
    pub(super) fn directories(&self, path: &Path, limit: usize) -> (Vec<PathBuf>, bool) {
        let (names, whole) = self.names(path, limit);
        let paths = names.into_iter().map(|name| path.join(name));
        (paths.filter(|path| self.look(path).is_ok_and(|meta| meta.is_directory())).collect(), whole)
    }

    /// Whether the caller may make names in a directory (faccessat(2)).
    pub(super) fn may_write(&self, path: &Path) -> SysResult<()> {
        let directory = self.at(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        nix::unistd::faccessat(
            &directory,
            ".",
            nix::unistd::AccessFlags::W_OK,
            nix::fcntl::AtFlags::AT_EACCESS,
        )
    }

    pub(super) fn at(&self, path: &Path, flags: i32) -> SysResult<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        file::open(self.root.as_fd(), &path, flags, 0, Resolve::BeneathNoLinks)
    }

    fn path_only(&self, path: &Path) -> SysResult<OwnedFd> {
        self.at(path, libc::O_PATH | libc::O_NOFOLLOW)
    }
}
