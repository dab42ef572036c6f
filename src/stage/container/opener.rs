//! A process with the runtime's own rights in the mount namespace of the child: it opens trees, maps their owners,
//! and hands them over. It lives for a moment, and touches nothing else there.

use super::wire::{Answer, Report};
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult, clone, mount, namespace, pidfd, process, scm};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One tree.
#[derive(Debug)]
pub struct Order<'a> {
    /// Absolute path on the host.
    pub path: &'a CStr,
    /// The directory or file itself, not a copy of its tree.
    pub place: bool,
    /// With what is mounted below it.
    pub recursive: bool,
    /// Its owners are mapped through this user namespace.
    pub userns: Option<BorrowedFd<'a>>,
    /// What is mounted below it is mapped, too.
    pub map_recursive: bool,
}

/// Opens every tree in the mount namespace of the process behind `child`, sends them in order by `to`, and says on
/// `said` which one failed ([`Report::Failed`] with its index), or nothing. Waits for the end.
///
/// # Errors
/// Those of clone3(2).
pub fn open_in(
    child: BorrowedFd<'_>,
    orders: &[Order<'_>],
    to: BorrowedFd<'_>,
    said: OwnedFd,
) -> SysResult<()> {
    if process::thread_count()? != 1 {
        return Err(Errno::EDEADLK);
    }
    // SAFETY: one thread, as just seen; the child runs `work`, which uses no heap.
    match unsafe { clone::clone3(0, None)? } {
        clone::Side::Child => {
            if let Err((index, errno)) = work(child, orders, to) {
                let report = Report::Failed { step: index, errno: errno as i32 };
                let _ = scm::send(said.as_fd(), &report.encode(), &[]);
            }
            process::exit_now(0)
        }
        clone::Side::Parent { pidfd, .. } => pidfd::reap(pidfd.as_fd()).map(drop),
    }
}

fn work(child: BorrowedFd<'_>, orders: &[Order<'_>], to: BorrowedFd<'_>) -> Result<(), (u32, Errno)> {
    namespace::join(child, libc::CLONE_NEWNS).map_err(|errno| (0, errno))?;
    for (index, order) in (0..).zip(orders) {
        let tree = open(order).map_err(|errno| (index, errno))?;
        scm::send(to, &Answer::Trees.encode(), &[tree.as_raw_fd()]).map_err(|errno| (index, errno))?;
    }
    Ok(())
}

fn open(order: &Order<'_>) -> SysResult<OwnedFd> {
    let file = file::open(file::cwd(), order.path, libc::O_PATH, 0, Resolve::Ordinary)?;
    if order.place {
        return Ok(file);
    }
    let tree = mount::clone_tree(file.as_fd(), order.recursive)?;
    if let Some(userns) = order.userns {
        mount::map_owners(tree.as_fd(), userns, order.map_recursive)?;
    }
    Ok(tree)
}
