//! A process with the runtime's own rights in the mount namespace of the child: it opens trees, maps their owners,
//! and hands them over. It lives for a moment, and touches nothing else there.

use super::wire::{ChildReport, ChildRequest};
use saggar_sys::file::{self, Resolve};
use saggar_sys::spawn;
use saggar_sys::{Errno, SysResult, mount, namespace, pidfd, scm};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One tree.
#[derive(Debug)]
pub(crate) struct TreeRequest<'a> {
    /// Absolute path on the host.
    pub path: &'a CStr,
    /// The directory or file itself, not a copy of its tree.
    pub path_only: bool,
    /// A symbolic link at the end of the path is followed.
    pub follow_link: bool,
    /// With what is mounted below it.
    pub recursive: bool,
    /// Its owners are mapped through this user namespace.
    pub userns: Option<BorrowedFd<'a>>,
    /// What is mounted below it is mapped, too.
    pub map_recursive: bool,
}

/// Opens every tree in the mount namespace of the process behind `child`, sends them in order by `to`, and says on
/// `said` which one failed ([`ChildReport::Failed`] with its index), or nothing. Waits for the end.
///
/// # Errors
/// Those of clone3(2).
pub(crate) fn open_trees_in(
    child: BorrowedFd<'_>,
    orders: &[TreeRequest<'_>],
    to: BorrowedFd<'_>,
    report: OwnedFd,
) -> SysResult<()> {
    let (_, pidfd, ()) = spawn::spawn(0, None, (), || {
        if let Err((index, errno)) = open_all(child, orders, to) {
            let failed = ChildReport::Failed { step: index, errno: errno as i32 };
            let _ = scm::send(report.as_fd(), &failed.encode(), &[]);
        }
        0
    })?;
    pidfd::reap(pidfd.as_fd()).map(drop)
}

fn open_all(
    child: BorrowedFd<'_>,
    orders: &[TreeRequest<'_>],
    to: BorrowedFd<'_>,
) -> Result<(), (u32, Errno)> {
    namespace::join(child, libc::CLONE_NEWNS).map_err(|errno| (0, errno))?;
    for (index, order) in (0..).zip(orders) {
        let tree = open_tree(order).map_err(|errno| (index, errno))?;
        scm::send(to, &ChildRequest::Trees.encode(), &[tree.as_raw_fd()]).map_err(|errno| (index, errno))?;
    }
    Ok(())
}

fn open_tree(order: &TreeRequest<'_>) -> SysResult<OwnedFd> {
    let flags = libc::O_PATH | if order.follow_link { 0 } else { libc::O_NOFOLLOW };
    let file = file::open(file::cwd(), order.path, flags, 0, Resolve::Ordinary)?;
    if order.path_only {
        return Ok(file);
    }
    let tree = mount::clone_tree(file.as_fd(), order.recursive)?;
    if let Some(userns) = order.userns {
        mount::idmap_mount(tree.as_fd(), userns, order.map_recursive)?;
    }
    Ok(tree)
}
