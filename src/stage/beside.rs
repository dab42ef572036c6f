//! The birth of the processes that stand beside a container: its supervisor, which saggar executes itself for,
//! and the guard, a fork of that one.

use crate::sys::{Errno, SysResult, clone, file, process};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Closes what the caller of saggar left open beyond the standard streams: an orchestrator waits for the end of
/// its pipes.
///
/// # Errors
/// Those of close_range(2); EDEADLK with more than one thread.
pub fn close_inherited() -> SysResult<()> {
    if process::thread_count()? != 1 {
        return Err(Errno::EDEADLK);
    }
    // SAFETY: the first thing in a program that was just executed: nothing of it owns a descriptor yet.
    unsafe { file::close_from(3) }
}

/// Forks; `child` runs in the new process, with no descriptors but the standard streams and `kept`, and the process
/// then exits with what it gives. Its pid and a pidfd.
///
/// # Errors
/// Those of clone3(2); EDEADLK with more than one thread.
pub fn fork(kept: &[BorrowedFd<'_>], child: impl FnOnce() -> i32) -> SysResult<(i32, OwnedFd)> {
    if process::thread_count()? != 1 {
        return Err(Errno::EDEADLK);
    }
    // SAFETY: one thread, as just seen: no lock is held, and the child's memory is a copy.
    match unsafe { clone::clone3(0, None)? } {
        clone::Side::Child => {
            // SAFETY: whatever owns the others is of the process that was copied; here nothing of it is used or
            // dropped again, but for what `child` was given.
            let closed = unsafe { file::close_others(3, kept.iter().map(AsRawFd::as_raw_fd)) };
            process::exit_now(if closed.is_ok() { child() } else { 125 })
        }
        clone::Side::Parent { pid, pidfd } => Ok((pid, pidfd)),
    }
}
