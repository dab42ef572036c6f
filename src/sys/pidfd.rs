//! pidfd_open(2), pidfd_send_signal(2) and waitid(2) by pidfd: a process by descriptor, never by a number
//! that may have been given to another.

use super::{SysResult, call, call_fd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
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

/// `struct pidfd_info` of linux/pidfd.h, its first version (PIDFD_INFO_SIZE_VER0).
#[repr(C)]
#[derive(Debug, Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    /// pid, tgid, ppid, and eight ids of users and groups.
    ids: [u32; 11],
    exit_code: i32,
}

/// Whether the process has ended, as far as can be known without waiting.
pub fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    wait_end(pidfd, PollTimeout::ZERO)
}

/// Waits at most so long for the end of the process; whether it has ended. A signal cuts it short.
pub fn wait_end(pidfd: BorrowedFd<'_>, most: impl Into<PollTimeout>) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::POLLIN)];
    poll(&mut fds, most).is_ok_and(|ready| ready > 0)
}

/// How a process that has been reaped, by whomever, ended: the number that wait(2) gave (Linux 6.15,
/// PIDFD_INFO_EXIT). `None` before it is reaped.
///
/// # Errors
/// Those of ioctl(2): ENOTTY and EINVAL on older kernels.
pub fn exit_code(pidfd: BorrowedFd<'_>) -> SysResult<Option<i32>> {
    const INFO_EXIT: u64 = 1 << 3;
    /// `_IOWR(0xFF, 11, struct pidfd_info)`
    const GET_INFO: u64 = 3 << 30 | (size_of::<Info>() as u64) << 16 | 0xff << 8 | 11;
    let mut info = Info { mask: INFO_EXIT, ..Info::default() };
    call!(libc::SYS_ioctl, pidfd.as_raw_fd(), GET_INFO, std::ptr::from_mut(&mut info))?;
    Ok((info.mask & INFO_EXIT != 0).then_some(info.exit_code))
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
