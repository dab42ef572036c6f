//! How processes of saggar start: by a clone of a process with one thread (pid 1, helpers, keeper, guard, attribution), or
//! as a program that saggar executes itself for (the supervisor of a container, the API process, the relay).

use super::{Errno, SysResult, clone, file, process};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Makes sure that this process has one thread. The locks of others would stay locked in a child for ever, and their
/// descriptors could not be told from ours.
///
/// # Errors
/// EDEADLK with more than one; ENOENT without /proc.
pub(crate) fn require_one_thread() -> SysResult<()> {
    if process::thread_count()? == 1 { Ok(()) } else { Err(Errno::EDEADLK) }
}

/// Clones this process into `namespaces` and, when there is one, into `cgroup`; `child` runs in the new process, which
/// exits with what it gives. Its pid, a pidfd, and `ours`, which the child drops first: its copy of our end of a
/// socketpair would keep the stream open after our death.
///
/// # Errors
/// The error number of clone3(2); those of [`require_one_thread`].
pub fn spawn<T>(
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

/// Closes what the caller of saggar left open beyond the standard streams: an orchestrator waits for the end of
/// its pipes. Call it first in a program that was just executed, when nothing in it owns a descriptor yet.
///
/// # Errors
/// Those of close_range(2); EDEADLK with more than one thread.
pub fn close_inherited() -> SysResult<()> {
    require_one_thread()?;
    // SAFETY: the first thing in a program that was just executed: nothing of it owns a descriptor yet.
    unsafe { file::close_from(3) }
}

/// Forks; `child` runs in the new process, with no descriptors but the standard streams and `kept`, and the process
/// then exits with what it gives. Its pid and a pidfd. `child` uses no other descriptor.
///
/// # Errors
/// Those of clone3(2); EDEADLK with more than one thread.
pub fn fork_keeping(kept: &[BorrowedFd<'_>], child: impl FnOnce() -> i32) -> SysResult<(i32, OwnedFd)> {
    let (pid, pidfd, ()) = spawn(0, None, (), || {
        // SAFETY: whatever owns the others is of the process that was copied; here nothing of it is used or
        // dropped again, but for what `child` was given.
        let closed = unsafe { file::close_others(3, kept.iter().map(AsRawFd::as_raw_fd)) };
        if closed.is_ok() { child() } else { 125 }
    })?;
    Ok((pid, pidfd))
}
