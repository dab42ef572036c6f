//! The descriptor-based mount API: open_tree(2), move_mount(2), fsopen(2), mount_setattr(2); Linux 5.12.

use super::{SysResult, call, call_fd};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// mount_setattr(2) attributes of a tree. They are only ever added.
pub use libc::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};

const AT_RECURSIVE: libc::c_uint = libc::AT_RECURSIVE as libc::c_uint;
const AT_EMPTY_PATH: libc::c_uint = libc::AT_EMPTY_PATH as libc::c_uint;
const CLONE_TREE: libc::c_uint = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
const MOVE_EMPTY_BOTH: libc::c_uint = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;

/// A detached copy of the mount tree at the open file `at`, with its submounts if `recursive`.
///
/// # Errors
/// EINVAL if `at` belongs to another mount namespace, or has locked submounts and `recursive` is off; EPERM without
/// CAP_SYS_ADMIN over the mount namespace.
pub fn clone_tree(at: BorrowedFd<'_>, recursive: bool) -> SysResult<OwnedFd> {
    let flags = CLONE_TREE | AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
    call_fd!(libc::SYS_open_tree, at.as_raw_fd(), c"".as_ptr(), flags)
}

/// As [`clone_tree`], by a path below `dir`.
///
/// # Errors
/// As [`clone_tree`], and those of the path.
pub fn clone_tree_at(dir: BorrowedFd<'_>, path: &CStr) -> SysResult<OwnedFd> {
    let flags = CLONE_TREE | AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW as libc::c_uint;
    call_fd!(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags)
}

/// Attaches the detached `tree` on the open directory or file `target`.
///
/// # Errors
/// Those of move_mount(2).
pub fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> SysResult<()> {
    let (from, to) = (tree.as_raw_fd(), target.as_raw_fd());
    call!(libc::SYS_move_mount, from, c"".as_ptr(), to, c"".as_ptr(), MOVE_EMPTY_BOTH)?;
    Ok(())
}

/// As [`attach`], at a path below `dir`. A symbolic link within the path is followed; one as its last component is not.
///
/// # Errors
/// As [`attach`].
pub fn attach_at(tree: BorrowedFd<'_>, dir: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH;
    call!(libc::SYS_move_mount, tree.as_raw_fd(), c"".as_ptr(), dir.as_raw_fd(), path.as_ptr(), flags)?;
    Ok(())
}

/// Adds `attributes` to the tree and makes its propagation private, so that no mount of the host
/// appears in it later.
///
/// # Errors
/// Those of mount_setattr(2).
pub fn seal_tree(tree: BorrowedFd<'_>, attributes: u64, recursive: bool) -> SysResult<()> {
    set_attributes(tree, attributes, 0, recursive)
}

/// Maps the owners of the tree through the user namespace `userns` (Linux 5.12).
///
/// # Errors
/// EINVAL when the file system cannot be idmapped; EPERM without CAP_SYS_ADMIN over it.
pub fn idmap_tree(tree: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> SysResult<()> {
    let fd = u64::try_from(userns.as_raw_fd()).map_err(|_| super::Errno::EBADF)?;
    set_attributes(tree, libc::MOUNT_ATTR_IDMAP, fd, true)
}

fn set_attributes(tree: BorrowedFd<'_>, add: u64, userns_fd: u64, recursive: bool) -> SysResult<()> {
    setattr(
        tree,
        &libc::mount_attr { attr_set: add, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd },
        recursive,
    )
}

fn setattr(tree: BorrowedFd<'_>, attr: &libc::mount_attr, recursive: bool) -> SysResult<()> {
    let flags = AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
    let size = size_of::<libc::mount_attr>();
    call!(libc::SYS_mount_setattr, tree.as_raw_fd(), c"".as_ptr(), flags, std::ptr::from_ref(attr), size)?;
    Ok(())
}

/// Changes the mount or the tree at a descriptor: MOUNT_ATTR_* bits to set and to clear, and one MS_* propagation flag
/// (0: unchanged). It fails with EINVAL if the descriptor is not the root of a mount.
///
/// # Errors
/// Those of mount_setattr(2): EPERM for an attribute that a user namespace may not clear.
pub fn change(
    tree: BorrowedFd<'_>,
    set: u64,
    clear: u64,
    propagation: u64,
    recursive: bool,
) -> SysResult<()> {
    let attr = libc::mount_attr { attr_set: set, attr_clr: clear, propagation, userns_fd: 0 };
    setattr(tree, &attr, recursive)
}

/// As [`idmap_tree`], but for the mount alone unless `recursive`, and without changing its propagation.
///
/// # Errors
/// As [`idmap_tree`].
pub fn idmap_mount(tree: BorrowedFd<'_>, userns: BorrowedFd<'_>, recursive: bool) -> SysResult<()> {
    let userns_fd = u64::try_from(userns.as_raw_fd()).map_err(|_| super::Errno::EBADF)?;
    let attr = libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd };
    setattr(tree, &attr, recursive)
}

/// mount(2) on the working directory, for options that fsconfig(2) does not support.
///
/// # Errors
/// Those of mount(2).
pub fn mount_here(source: &CStr, kind: &CStr, flags: u64, data: &CStr) -> SysResult<()> {
    call!(libc::SYS_mount, source.as_ptr(), c".".as_ptr(), kind.as_ptr(), flags, data.as_ptr())?;
    Ok(())
}

/// mount(2) with MS_REMOUNT on the working directory. The file system and its mount get these flags and no others; the
/// access time flags are unchanged if `flags` has none of them.
///
/// # Errors
/// Those of mount(2): EINVAL for a directory that is not a mount point.
pub fn remount_here(flags: u64, data: &CStr) -> SysResult<()> {
    mount_here(c"none", c"none", flags | libc::MS_REMOUNT, data)
}

/// Unmounts the mount whose root is the working directory.
///
/// # Errors
/// Those of umount2(2).
pub fn unmount_here() -> SysResult<()> {
    call!(libc::SYS_umount2, c".".as_ptr(), libc::MNT_DETACH)?;
    Ok(())
}

/// Whether the open file is the root of a mount (statx(2), Linux 5.8).
///
/// # Errors
/// Those of statx(2).
pub fn is_mount_root(at: BorrowedFd<'_>) -> SysResult<bool> {
    // SAFETY: all zeros is a valid statx buffer, which the kernel fills.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT;
    call!(libc::SYS_statx, at.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_TYPE, &raw mut stat)?;
    Ok(stat.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0)
}

/// Moves the attached mount whose root is the working directory over `/`, and makes it the root, for roots that
/// pivot_root(2) refuses.
///
/// # Errors
/// Those of move_mount(2) and chroot(2).
pub fn move_working_directory_to_root() -> SysResult<()> {
    call!(libc::SYS_mount, c".".as_ptr(), c"/".as_ptr(), 0usize, libc::MS_MOVE, 0usize)?;
    change_root_to_working_directory()
}

/// chroot(2) to the working directory.
///
/// # Errors
/// Those of chroot(2).
pub fn change_root_to_working_directory() -> SysResult<()> {
    call!(libc::SYS_chroot, c".".as_ptr())?;
    Ok(())
}

/// Whether the kernel supports file systems of `kind` or can load a module for them.
///
/// # Errors
/// Those of fsopen(2): ENODEV if it does not.
pub fn knows_filesystem(kind: &CStr) -> SysResult<()> {
    call_fd!(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC).map(drop)
}

/// A new, detached file system of `kind` with `options` (`None` for a flag) and mount `attributes`.
///
/// # Errors
/// Those of fsopen(2), fsconfig(2) and fsmount(2): an unknown option is EINVAL.
pub fn new_filesystem(
    kind: &CStr,
    options: &[(&CStr, Option<&CStr>)],
    attributes: u64,
) -> SysResult<OwnedFd> {
    new_filesystem_from(kind, options.iter().copied(), attributes)
}

/// As [`new_filesystem`], with options from an iterator.
///
/// # Errors
/// As [`new_filesystem`].
pub fn new_filesystem_from<'a>(
    kind: &CStr,
    options: impl IntoIterator<Item = (&'a CStr, Option<&'a CStr>)>,
    attributes: u64,
) -> SysResult<OwnedFd> {
    let context = call_fd!(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC)?;
    let fd = context.as_raw_fd();
    for (key, value) in options {
        match value {
            Some(value) => {
                call!(libc::SYS_fsconfig, fd, FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr(), 0)?
            }
            None => call!(
                libc::SYS_fsconfig,
                fd,
                FSCONFIG_SET_FLAG,
                key.as_ptr(),
                std::ptr::null::<libc::c_char>(),
                0
            )?,
        };
    }
    let null = std::ptr::null::<libc::c_char>();
    call!(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, null, null, 0)?;
    call_fd!(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, attributes)
}

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Makes the working directory, which must be the root of a mount, the root of this mount namespace, and detaches the
/// old root that then covers it (pivot_root(2), "pivot_root(".", ".")").
///
/// # Errors
/// Those of pivot_root(2) and umount2(2).
pub fn pivot_to_working_directory() -> SysResult<()> {
    call!(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr())?;
    unmount_here()
}

/// As [`pivot_to_working_directory`], for an old root whose mounts may have peers on the host. The unmount does not
/// propagate to them. `old` is the current root.
///
/// # Errors
/// Those of pivot_root(2), mount_setattr(2) and umount2(2).
pub fn pivot_without_propagation(old: BorrowedFd<'_>) -> SysResult<()> {
    call!(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr())?;
    change(old, 0, 0, libc::MS_SLAVE, true)?;
    nix::unistd::fchdir(old)?;
    unmount_here()?;
    nix::unistd::chdir(c"/")
}

#[cfg(test)]
mod tests {
    #[test]
    fn mount_attr_has_the_kernel_layout() {
        assert_eq!(size_of::<libc::mount_attr>(), 32);
    }
}
