//! How the processes beside a sandbox or a container start: those that saggar executes itself for (the supervisor of a
//! container, the API process, the relay), and forks of them (keeper, guard, attribution).

use super::spawn;
use crate::sys::{SysResult, file};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Closes what the caller of saggar left open beyond the standard streams: an orchestrator waits for the end of
/// its pipes.
///
/// # Errors
/// Those of close_range(2); EDEADLK with more than one thread.
pub fn close_inherited() -> SysResult<()> {
    spawn::require_one_thread()?;
    // SAFETY: the first thing in a program that was just executed: nothing of it owns a descriptor yet.
    unsafe { file::close_from(3) }
}

/// Forks; `child` runs in the new process, with no descriptors but the standard streams and `kept`, and the process
/// then exits with what it gives. Its pid and a pidfd.
///
/// # Errors
/// Those of clone3(2); EDEADLK with more than one thread.
pub fn fork_keeping(kept: &[BorrowedFd<'_>], child: impl FnOnce() -> i32) -> SysResult<(i32, OwnedFd)> {
    let (pid, pidfd, ()) = spawn::spawn(0, None, (), || {
        // SAFETY: whatever owns the others is of the process that was copied; here nothing of it is used or
        // dropped again, but for what `child` was given.
        let closed = unsafe { file::close_others(3, kept.iter().map(AsRawFd::as_raw_fd)) };
        if closed.is_ok() { child() } else { 125 }
    })?;
    Ok((pid, pidfd))
}
