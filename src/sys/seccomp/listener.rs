//! The listener of a filter: who has it is asked about calls, and says how they end (seccomp_unotify(2), Linux 5.0).
//!
//! A call that is let go on is looked at again by the kernel, when its memory may be another: so what is a wall has
//! errors for answers, and who lets go on has looked and no more.

use crate::sys::{Errno, SysResult, call};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A call that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    id: u64,
    /// The thread that makes it, as this process numbers threads.
    pub thread: i32,
    /// Its number.
    pub number: i32,
    /// Its arguments.
    pub args: [u64; 6],
}

/// Who asks and who answers are to run on one processor in turn, which is how it goes fastest when nothing else is
/// done meanwhile (SECCOMP_IOCTL_NOTIF_SET_FLAGS with SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6). An older kernel
/// wakes them as it does.
pub fn take_turns(listener: BorrowedFd<'_>) {
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    let _ = call!(libc::SYS_ioctl, listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP);
}

/// The next call that waits; nothing when none does. Never waits itself, for who is the only one to ask.
///
/// # Errors
/// ENOENT when it was killed in the meantime; those of poll(2) and ioctl(2).
pub fn next(listener: BorrowedFd<'_>) -> SysResult<Option<Asked>> {
    let mut fds = [PollFd::new(listener, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO)?;
    if !fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)) {
        return Ok(None);
    }
    // SAFETY: all zeros is a valid seccomp_notif, and the only one that the kernel takes.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    call!(libc::SYS_ioctl, listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked)?;
    let thread = i32::try_from(asked.pid).map_err(|_| Errno::ESRCH)?;
    let (number, args) = (asked.data.nr, asked.data.args);
    Ok(Some(Asked { id: asked.id, thread, number, args }))
}

/// Whether the call still waits: then its thread is the one that its number means.
pub fn still_waits(listener: BorrowedFd<'_>, asked: &Asked) -> bool {
    call!(libc::SYS_ioctl, listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const asked.id)
        .is_ok()
}

/// The call fails with this error.
///
/// # Errors
/// ENOENT when nobody waits for it any more.
pub fn refuse(listener: BorrowedFd<'_>, asked: &Asked, error: Errno) -> SysResult<()> {
    send(listener, libc::seccomp_notif_resp { id: asked.id, val: 0, error: -(error as i32), flags: 0 })
}

/// The call goes on, as if nobody had been asked (Linux 5.5).
///
/// # Errors
/// ENOENT when nobody waits for it any more.
pub fn let_go_on(listener: BorrowedFd<'_>, asked: &Asked) -> SysResult<()> {
    // The constant is an unsigned long, the field is not.
    #[allow(clippy::cast_possible_truncation)]
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    send(listener, libc::seccomp_notif_resp { id: asked.id, val: 0, error: 0, flags })
}

fn send(listener: BorrowedFd<'_>, answer: libc::seccomp_notif_resp) -> SysResult<()> {
    call!(libc::SYS_ioctl, listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer)?;
    Ok(())
}
