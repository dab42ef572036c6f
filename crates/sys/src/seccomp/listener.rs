//! The listener of a seccomp filter. Its holder receives notifications about system calls and sends the response
//! (seccomp_unotify(2), Linux 5.0).
//!
//! If the holder lets a call continue, the kernel reads the caller's memory again, which may have changed meanwhile. So
//! every boundary is enforced by an error response, and a holder that responds "continue" only observes.

use crate::{Errno, SysResult, call};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A system call that waits for a response.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct SyscallNotification {
    id: u64,
    /// The id of the calling thread, in the pid namespace of this process.
    pub thread: i32,
    /// The system call number.
    pub number: i32,
    /// The arguments of the call.
    pub args: [u64; 6],
}

/// Lets the caller and the holder of the listener alternate on one CPU, which is fastest if the holder has no other
/// work (SECCOMP_IOCTL_NOTIF_SET_FLAGS with SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6). Older kernels use their
/// default wake-up.
pub fn set_sync_wake_up(listener: BorrowedFd<'_>) {
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    let _ = call!(libc::SYS_ioctl, listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP);
}

/// Whether a call waits that nothing has received yet.
///
/// # Errors
/// Those of poll(2).
pub fn is_pending(listener: BorrowedFd<'_>) -> SysResult<bool> {
    let mut fds = [PollFd::new(listener, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO)?;
    Ok(fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)))
}

/// The next waiting call; `None` if there is none. It never blocks if this process is the only reader.
///
/// # Errors
/// ENOENT if the calling thread was killed in the meantime; those of poll(2) and ioctl(2).
pub fn receive(listener: BorrowedFd<'_>) -> SysResult<Option<SyscallNotification>> {
    if !is_pending(listener)? {
        return Ok(None);
    }
    // SAFETY: all zeros is a valid seccomp_notif, and the only value that the kernel accepts.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    call!(libc::SYS_ioctl, listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked)?;
    let thread = i32::try_from(asked.pid).map_err(|_| Errno::ESRCH)?;
    let (number, args) = (asked.data.nr, asked.data.args);
    Ok(Some(SyscallNotification { id: asked.id, thread, number, args }))
}

/// Whether the call still waits. If so, its thread id still refers to the calling thread.
pub fn is_valid(listener: BorrowedFd<'_>, asked: &SyscallNotification) -> bool {
    call!(libc::SYS_ioctl, listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const asked.id)
        .is_ok()
}

/// Makes the call return zero, without the kernel performing it.
///
/// # Errors
/// ENOENT if the call no longer waits.
pub fn respond_success(listener: BorrowedFd<'_>, asked: &SyscallNotification) -> SysResult<()> {
    send(listener, libc::seccomp_notif_resp { id: asked.id, val: 0, error: 0, flags: 0 })
}

/// Makes the call fail with this error.
///
/// # Errors
/// ENOENT if the call no longer waits.
pub fn respond_error(listener: BorrowedFd<'_>, asked: &SyscallNotification, error: Errno) -> SysResult<()> {
    send(listener, libc::seccomp_notif_resp { id: asked.id, val: 0, error: -(error as i32), flags: 0 })
}

/// Lets the call continue, as without a notification (Linux 5.5).
///
/// # Errors
/// ENOENT if the call no longer waits.
pub fn respond_continue(listener: BorrowedFd<'_>, asked: &SyscallNotification) -> SysResult<()> {
    // The constant is an unsigned long; the field is 32 bits.
    #[allow(clippy::cast_possible_truncation)]
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    send(listener, libc::seccomp_notif_resp { id: asked.id, val: 0, error: 0, flags })
}

fn send(listener: BorrowedFd<'_>, answer: libc::seccomp_notif_resp) -> SysResult<()> {
    call!(libc::SYS_ioctl, listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer)?;
    Ok(())
}
