//! What programs find at a path that the policy hides: nothing, with the mode and the owner of what lies below, that takes
//! no writes. Programs that copy or archive a whole tree, as git does, see an ordinary file or directory.

use super::steps::{CLOSED, open_mount_point};
use nix::fcntl::renameat;
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, futimens};
use nix::sys::time::TimeSpec;
use saggar_sys::file::{self, Resolve};
use saggar_sys::mount::{self, MOUNT_ATTR_RDONLY};
use saggar_sys::{Errno, SysResult};
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

/// Replaces the git index in `directory` as git does: the lock becomes the new index.
///
/// # Errors
/// EEXIST if git has the index locked on the host; otherwise those of the file system.
pub(super) fn replace_index(
    root: BorrowedFd<'_>,
    directory: &CStr,
    content: &[u8],
    mode: u32,
    (seconds, nanoseconds): (i64, u32),
) -> SysResult<()> {
    const INDEX: &CStr = c"index";
    const LOCK: &CStr = c"index.lock";
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let directory = file::open(root, directory, flags, 0, Resolve::BeneathNoLinks)?;
    let old =
        file::open(directory.as_fd(), INDEX, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks)?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
    let lock = file::open(directory.as_fd(), LOCK, flags, 0o600, Resolve::BeneathNoLinks)?;
    let old = fstat(&old)?;
    let written = file::write_all(lock.as_fd(), content)
        .and_then(|()| file::set_owner(lock.as_fd(), old.st_uid, old.st_gid))
        .and_then(|()| fchmod(&lock, Mode::from_bits_truncate(mode)))
        .and_then(|()| {
            let mtime = TimeSpec::new(seconds, nanoseconds.into());
            futimens(&lock, &TimeSpec::UTIME_OMIT, &mtime)
        })
        .and_then(|()| renameat(&directory, LOCK, &directory, INDEX));
    written.or_else(|errno| file::unlink(directory.as_fd(), LOCK).and(Err(errno)))
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
