//! Whose files a tree is, where its owners cannot be mapped (DECISIONS 2): some file systems have no idmapped
//! mounts, and then a sandbox of root's must have the owner's own id, or do without.
//!
//! Common file systems that surely can are known by their type, since a start is counted in microseconds;
//! every other one is tried.

use crate::spec::BLOCK;
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult, clone, mount};
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// File systems that had idmapped mounts with the first kernels that saggar runs on (mount_setattr(2)).
const SURE: [libc::c_long; 3] = [
    libc::EXT4_SUPER_MAGIC as libc::c_long,
    libc::XFS_SUPER_MAGIC as libc::c_long,
    libc::BTRFS_SUPER_MAGIC as libc::c_long,
];

/// A tree whose owners cannot be mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmapped {
    /// The file system as mountinfo names it, such as `9p` or `fuse.sshfs`.
    pub file_system: String,
    /// What the kernel answered, in words.
    pub why: String,
    /// The user who owns the root of the tree.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Unmapped {
    /// What stands in the way of giving the owner's own id to a sandbox, if anything does.
    pub fn never(&self) -> Option<&'static str> {
        match (self.uid, self.gid) {
            (0, _) => Some("its owner is root"),
            (_, 0) => Some("its group is root's"),
            _ => None,
        }
    }
}

/// Looks at the tree at `path`, a path without links; one that is not there yet is like the directory that it
/// will be in. `None` when its owners can be mapped, or when nothing can be said: then the start says why.
pub fn unmapped(path: &Path) -> Option<Unmapped> {
    let there = path.ancestors().find(|path| path.exists())?;
    let opened = open(there).ok()?;
    let kind = nix::sys::statfs::fstatfs(&opened).ok()?.filesystem_type().0;
    if SURE.contains(&kind) || kind == libc::TMPFS_MAGIC as libc::c_long && kernel_has_tmpfs() {
        return None;
    }
    let errno = try_to_map(&opened, &format!("0 {BLOCK} {BLOCK}\n")).err()?;
    let meta = there.metadata().ok()?;
    Some(Unmapped {
        file_system: file_system(&opened).unwrap_or_else(|| format!("type {kind:#x}")),
        why: errno.desc().to_owned(),
        uid: meta.uid(),
        gid: meta.gid(),
    })
}

/// Maps the owners of a detached copy of the tree that is thrown away.
///
/// # Errors
/// EINVAL when the file system, or one that is mounted below, cannot be idmapped; EPERM when it belongs to
/// another user namespace.
pub(super) fn try_to_map(tree: &OwnedFd, map: &str) -> SysResult<()> {
    let tree = mount::clone_tree(tree.as_fd(), true)?;
    let holder = clone::Holder::new()?;
    let path = |name: &str| format!("/proc/{}/{name}", holder.pid());
    for name in ["gid_map", "uid_map"] {
        fs::write(path(name), map).map_err(from_io)?;
    }
    let userns = fs::File::open(path("ns/user")).map_err(from_io)?;
    mount::idmap_tree(tree.as_fd(), userns.as_fd())
}

pub(super) fn open(path: &Path) -> SysResult<OwnedFd> {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::EINVAL)?;
    file::open(file::cwd(), &path, libc::O_PATH, 0, Resolve::Ordinary)
}

/// The name of the file system that an open file is in (proc_pid_mountinfo(5), by the mount's number).
fn file_system(opened: &OwnedFd) -> Option<String> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd())).ok()?;
    let number = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(number))?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

/// tmpfs can be idmapped since Linux 6.3.
fn kernel_has_tmpfs() -> bool {
    let Ok(name) = nix::sys::utsname::uname() else { return false };
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 3),
        _ => false,
    }
}

fn from_io(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_named_as_mountinfo_names_it() {
        assert_eq!(file_system(&open(Path::new("/proc/self")).unwrap()).as_deref(), Some("proc"));
    }

    #[test]
    fn ids_of_root_are_never_given() {
        let owned = |uid, gid| Unmapped { file_system: "9p".into(), why: String::new(), uid, gid };
        assert_eq!(owned(4321, 4321).never(), None);
        assert!(owned(0, 4321).never().is_some() && owned(4321, 0).never().is_some());
    }
}
