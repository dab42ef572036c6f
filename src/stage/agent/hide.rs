//! What programs find at a path that the policy hides: nothing, with the mode and the owner of what lies below, that takes
//! no writes. Programs that copy or archive a whole tree, as git does, see an ordinary file or directory.

use super::steps::{CLOSED, open_mount_point};
use crate::sys::file::{self, Resolve};
use crate::sys::mount::{self, MOUNT_ATTR_RDONLY};
use crate::sys::{Errno, SysResult};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

/// Covers the file at `path`. What covers it has a name until then: the kernel mounts no file without one (ENOENT).
pub(super) fn hide_file(root: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    const NAME: &CStr = c"var/hidden";
    let at = open_mount_point(root, path)?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDONLY | libc::O_NOFOLLOW;
    let nothing = file::open(root, NAME, flags, 0o600, Resolve::BeneathNoLinks)?;
    resemble(nothing.as_fd(), &fstat(&at)?)?;
    let tree = mount::clone_tree(nothing.as_fd(), false)?;
    mount::seal_tree(tree.as_fd(), CLOSED | MOUNT_ATTR_RDONLY, false)?;
    mount::attach(tree.as_fd(), at.as_fd())?;
    file::unlink(root, NAME)
}

/// Covers the directory at `path`. It is a file system of its own, since a directory cannot be without a name.
pub(super) fn hide_directory(root: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    let at = open_mount_point(root, path)?;
    let tree = mount::new_filesystem(c"tmpfs", &[(c"nr_inodes", Some(c"1"))], CLOSED)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let top = file::open(tree.as_fd(), c".", flags, 0, Resolve::Ordinary)?;
    resemble(top.as_fd(), &fstat(&at)?)?;
    mount::seal_tree(tree.as_fd(), MOUNT_ATTR_RDONLY, false)?;
    mount::attach(tree.as_fd(), at.as_fd())
}

/// Gives `made` the mode and the owner of what it covers. An owner without an id in the sandbox cannot be given: it shows
/// as the overflow id there, and the sandbox's own stays in its place.
fn resemble(made: BorrowedFd<'_>, covered: &FileStat) -> SysResult<()> {
    fchmod(made, Mode::from_bits_truncate(covered.st_mode & 0o777))?;
    match file::set_owner(made, covered.st_uid, covered.st_gid) {
        Err(Errno::EINVAL | Errno::EPERM) => Ok(()),
        other => other,
    }
}
