//! Detects trees on file systems without idmapped mounts (DECISIONS 2). A sandbox that root starts must
//! then run with the owner's id, or not use the tree.
//!
//! Common file systems with support are known by their type, because a start is measured in microseconds;
//! every other one is tested.

use super::kernel_version;
use super::mounts::own_mounts;
use crate::spec::ID_BLOCK_SIZE;
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult, clone, mount};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// File systems with idmapped mounts in every kernel that saggar supports (mount_setattr(2)).
const IDMAP_FILESYSTEMS: [libc::c_long; 3] = [
    libc::EXT4_SUPER_MAGIC as libc::c_long,
    libc::XFS_SUPER_MAGIC as libc::c_long,
    libc::BTRFS_SUPER_MAGIC as libc::c_long,
];

/// A tree whose owners cannot be mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmappableTree {
    /// The file system type as in mountinfo, such as `9p` or `fuse.sshfs`.
    pub filesystem: String,
    /// The error of the kernel, in words.
    pub reason: String,
    /// The uid of the root of the tree.
    pub uid: u32,
    /// The gid of the root of the tree.
    pub gid: u32,
}

impl UnmappableTree {
    /// The reason why a sandbox cannot run with the owner's id, if there is one.
    pub(crate) fn owner_id_obstacle(&self) -> Option<&'static str> {
        match (self.uid, self.gid) {
            (0, _) => Some("its owner is root"),
            (_, 0) => Some("its group is root's"),
            _ => None,
        }
    }
}

/// Tests the tree at `path`, a canonicalized path. For a path that does not exist yet, its parent directory
/// is tested. `None` if the owners can be mapped, or if the test is inconclusive: the start then reports
/// the error.
pub(crate) fn find_unmappable(path: &Path) -> Option<UnmappableTree> {
    let there = path.ancestors().find(|path| path.exists())?;
    let opened = open_path(there).ok()?;
    let kind = nix::sys::statfs::fstatfs(&opened).ok()?.filesystem_type().0;
    if IDMAP_FILESYSTEMS.contains(&kind)
        || kind == libc::TMPFS_MAGIC as libc::c_long && tmpfs_supports_idmap()
    {
        return None;
    }
    let errno = try_idmap(&opened, &format!("0 {ID_BLOCK_SIZE} {ID_BLOCK_SIZE}\n")).err()?;
    let meta = there.metadata().ok()?;
    Some(UnmappableTree {
        filesystem: filesystem_name(&opened).unwrap_or_else(|| format!("type {kind:#x}")),
        reason: errno.desc().to_owned(),
        uid: meta.uid(),
        gid: meta.gid(),
    })
}

/// Maps the owners of a detached copy of the tree, which is discarded.
///
/// # Errors
/// EINVAL if the file system, or one that is mounted below, does not support idmapped mounts; EPERM if it
/// belongs to another user namespace.
pub(super) fn try_idmap(tree: &OwnedFd, map: &str) -> SysResult<()> {
    let tree = mount::clone_tree(tree.as_fd(), true)?;
    let holder = clone::UserNamespaceHolder::new()?;
    let path = |name: &str| format!("/proc/{}/{name}", holder.pid());
    for name in ["gid_map", "uid_map"] {
        fs::write(path(name), map).map_err(from_io)?;
    }
    let userns = fs::File::open(path("ns/user")).map_err(from_io)?;
    mount::idmap_tree(tree.as_fd(), userns.as_fd())
}

pub(super) fn open_path(path: &Path) -> SysResult<OwnedFd> {
    let path = file::c_path(path)?;
    file::open(file::cwd(), &path, libc::O_PATH, 0, Resolve::Ordinary)
}

/// The type of the file system of an open file (proc_pid_mountinfo(5), by mount id).
fn filesystem_name(opened: &OwnedFd) -> Option<String> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd())).ok()?;
    let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse::<u32>().ok()?;
    own_mounts().ok()?.into_iter().find(|mount| mount.id == id).map(|mount| mount.filesystem)
}

/// Whether tmpfs supports idmapped mounts: since Linux 6.3.
fn tmpfs_supports_idmap() -> bool {
    kernel_version::is_at_least(6, 3)
}

fn from_io(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_named_as_mountinfo_names_it() {
        assert_eq!(filesystem_name(&open_path(Path::new("/proc/self")).unwrap()).as_deref(), Some("proc"));
    }

    #[test]
    fn ids_of_root_are_never_given() {
        let owned = |uid, gid| UnmappableTree { filesystem: "9p".into(), reason: String::new(), uid, gid };
        assert_eq!(owned(4321, 4321).owner_id_obstacle(), None);
        assert!(owned(0, 4321).owner_id_obstacle().is_some() && owned(4321, 0).owner_id_obstacle().is_some());
    }
}
