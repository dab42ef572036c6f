//! Processes by descriptor: pidfd_open(2), pidfd_send_signal(2) and waitid(2). A pidfd, unlike a pid, can never refer
//! to another process.

use super::{Errno, SysResult, call, call_fd, process};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A close-on-exec pidfd of a running process (Linux 5.3).
///
/// # Errors
/// ESRCH if there is no such process.
pub fn open(pid: i32) -> SysResult<OwnedFd> {
    call_fd!(libc::SYS_pidfd_open, pid, 0)
}

/// Sends `signal` to the process behind `pidfd`.
///
/// # Errors
/// ESRCH if it has exited and been reaped.
pub fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> SysResult<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    call!(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0)?;
    Ok(())
}

/// `struct pidfd_info` of linux/pidfd.h, its first version (PIDFD_INFO_SIZE_VER0).
#[repr(C)]
#[derive(Debug, Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    /// pid, tgid, ppid, and eight user and group ids.
    ids: [u32; 11],
    exit_code: i32,
}

/// Whether the process has exited; does not wait.
pub fn has_exited(pidfd: BorrowedFd<'_>) -> bool {
    wait_exit(pidfd, PollTimeout::ZERO)
}

/// Waits at most `most` for the process to exit. Returns whether it has exited. A signal ends the wait early.
pub fn wait_exit(pidfd: BorrowedFd<'_>, most: impl Into<PollTimeout>) -> bool {
    process::is_readable_within(pidfd, most)
}

/// Waits until one of two processes has exited.
pub fn wait_either_exit(one: BorrowedFd<'_>, other: BorrowedFd<'_>) {
    let mut both = [one, other].map(|pidfd| PollFd::new(pidfd, PollFlags::POLLIN));
    while poll(&mut both, PollTimeout::NONE) == Err(Errno::EINTR) {}
}

/// The wait status of a process that has been reaped by any process, as wait(2) returned it (Linux 6.15,
/// PIDFD_INFO_EXIT); `None` before it is reaped.
///
/// # Errors
/// Those of ioctl(2): ENOTTY and EINVAL on older kernels.
pub fn exit_code(pidfd: BorrowedFd<'_>) -> SysResult<Option<i32>> {
    const INFO_EXIT: u64 = 1 << 3;
    /// `_IOWR(0xFF, 11, struct pidfd_info)`
    const GET_INFO: u64 = 3 << 30 | (size_of::<PidfdInfo>() as u64) << 16 | 0xff << 8 | 11;
    let mut info = PidfdInfo { mask: INFO_EXIT, ..PidfdInfo::default() };
    call!(libc::SYS_ioctl, pidfd.as_raw_fd(), GET_INFO, std::ptr::from_mut(&mut info))?;
    Ok((info.mask & INFO_EXIT != 0).then_some(info.exit_code))
}

/// Waits until the child behind `pidfd` has exited, and reaps it.
///
/// # Errors
/// ECHILD if it is not a child of this process or was already reaped.
pub fn reap(pidfd: BorrowedFd<'_>) -> SysResult<WaitStatus> {
    loop {
        match waitid(Id::PIDFd(pidfd), WaitPidFlag::WEXITED) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}
