//! Lays an overlay over a tree: the tree is the lower layer, a tmpfs or a directory of the host takes what
//! programs change (DECISIONS 29).
//!
//! Who runs here: the child, with every capability over its own user namespace and none over the host's. So the
//! overlay keeps its notes in `user.*` attributes: without them it can be mounted too, and then refuses to
//! replace a directory.

use super::steps::open_mount_point;
use crate::plan::agent::step::EMPTY_DIRECTORY;
use nix::sys::stat::{Mode, fchmod, fstat};
use saggar_sys::file::{self, Resolve};
use saggar_sys::mount::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID};
use saggar_sys::{Errno, SysResult};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// An overlay over what is mounted at `path`; what is mounted on [`EMPTY_DIRECTORY`] takes the changes, and is let go: no
/// path leads there but through the overlay.
pub(super) fn mount_overlay(root: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    let lower = open_mount_point(root, path)?;
    let store = directory(root, EMPTY_DIRECTORY)?;
    for name in [c"changes", c"work"] {
        file::mkdir(store.as_fd(), name, 0o700)?;
    }
    let changes = directory(store.as_fd(), c"changes")?;
    let work = directory(store.as_fd(), c"work")?;
    // The root of the overlay has the mode of the upper layer's.
    let mode = fstat(&lower)?.st_mode & 0o1777;
    fchmod(&changes, Mode::from_bits_truncate(mode))?;
    // The kernel goes on without them (tmpfs before Linux 6.6), and says so in its log alone.
    file::set_xattr(work.as_fd(), c"user.saggar", b"")?;
    // Not by path: a name may hold what separates the options.
    let (lower_path, changes_path, work_path) =
        (ProcFdPath::to(&lower)?, ProcFdPath::to(&changes)?, ProcFdPath::to(&work)?);
    let options = [
        (c"lowerdir", Some(lower_path.as_c_str())),
        (c"upperdir", Some(changes_path.as_c_str())),
        (c"workdir", Some(work_path.as_c_str())),
        (c"userxattr", None),
    ];
    let overlay = mount::new_filesystem(c"overlay", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)?;
    mount::attach(overlay.as_fd(), lower.as_fd())?;
    nix::unistd::fchdir(&store)?;
    mount::unmount_here()?;
    nix::unistd::fchdir(root)
}

fn directory(at: BorrowedFd<'_>, path: &CStr) -> SysResult<OwnedFd> {
    file::open(at, path, libc::O_RDONLY | libc::O_DIRECTORY, 0, Resolve::BeneathNoLinks)
}

/// `/proc/self/fd/N`: the host's /proc, which absolute paths still lead to.
struct ProcFdPath([u8; 32]);

impl ProcFdPath {
    fn to(file: &OwnedFd) -> SysResult<Self> {
        use std::io::Write;
        let mut text = [0; 32];
        // Into an array: no heap. The last byte stays zero.
        write!(&mut text[..31], "/proc/self/fd/{}", file.as_raw_fd()).map_err(|_| Errno::ENAMETOOLONG)?;
        Ok(ProcFdPath(text))
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}
