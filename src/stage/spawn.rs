//! How a child starts: by a clone of a process with one thread.

use crate::sys::{Errno, SysResult, clone, process};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Makes sure that this process has one thread. The locks of others would stay locked in a child for ever, and their
/// descriptors could not be told from ours.
///
/// # Errors
/// EDEADLK with more than one; ENOENT without /proc.
pub(super) fn require_one_thread() -> SysResult<()> {
    if process::thread_count()? == 1 { Ok(()) } else { Err(Errno::EDEADLK) }
}

/// Clones this process into `namespaces` and, when there is one, into `cgroup`; `child` runs in the new process, which
/// exits with what it gives. Its pid, a pidfd, and `ours`, which the child drops first: its copy of our end of a
/// socketpair would keep the stream open after our death.
///
/// # Errors
/// The error number of clone3(2); those of [`require_one_thread`].
pub(super) fn spawn<T>(
    namespaces: u64,
    cgroup: Option<BorrowedFd<'_>>,
    ours: T,
    child: impl FnOnce() -> i32,
) -> SysResult<(i32, OwnedFd, T)> {
    require_one_thread()?;
    // SAFETY: one thread, as just seen: no lock is held, and the child's memory is a copy; it never returns from here.
    match unsafe { clone::clone3(namespaces, cgroup)? } {
        clone::CloneSide::Child => {
            drop(ours);
            process::exit_now(child())
        }
        clone::CloneSide::Parent { pid, pidfd } => Ok((pid, pidfd, ours)),
    }
}
