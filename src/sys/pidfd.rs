//! pidfd_open(2), pidfd_send_signal(2) and waitid(2) by pidfd: a process by descriptor, never by a number
//! that may have been given to another.

use super::{SysResult, call, call_fd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A close-on-exec pidfd of a living process (Linux 5.3).
///
/// # Errors
/// ESRCH when there is no such process.
pub fn open(pid: i32) -> SysResult<OwnedFd> {
    call_fd!(libc::SYS_pidfd_open, pid, 0)
}

/// Sends `signal` to the process behind `pidfd`.
///
/// # Errors
/// ESRCH when it has ended and been reaped.
pub fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> SysResult<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    call!(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0)?;
    Ok(())
}

/// Waits until the child behind `pidfd` has ended, and reaps it.
///
/// # Errors
/// ECHILD when it is not our child or was reaped.
pub fn reap(pidfd: BorrowedFd<'_>) -> SysResult<WaitStatus> {
    loop {
        match waitid(Id::PIDFd(pidfd), WaitPidFlag::WEXITED) {
            Err(nix::errno::Errno::EINTR) => {}
            other => return other,
        }
    }
}
