//! Pseudo-terminals of the sandbox's own devpts instance (pty(7), ioctl_tty(2)).

use super::{SysResult, check, check_fd};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Unlocks the master and opens its slave without a path (TIOCGPTPEER, Linux 4.13).
///
/// # Errors
/// Those of ioctl_tty(2).
pub fn open_slave(master: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    let unlock: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock) }.into())?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes open flags as its value and makes a descriptor.
    check_fd(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) }.into())
}

/// The number of a master in its devpts (TIOCGPTN).
///
/// # Errors
/// ENOTTY when it is none.
pub fn number(master: BorrowedFd<'_>) -> SysResult<u32> {
    let mut number: libc::c_uint = 0;
    // SAFETY: TIOCGPTN writes one unsigned int.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) }.into())?;
    Ok(number)
}

/// The size of a terminal (TIOCGWINSZ).
///
/// # Errors
/// ENOTTY when it is none.
pub fn window_size(terminal: BorrowedFd<'_>) -> SysResult<libc::winsize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) }.into())?;
    Ok(size)
}

/// Gives a terminal a size; its foreground processes get SIGWINCH (TIOCSWINSZ).
///
/// # Errors
/// ENOTTY when it is none.
pub fn set_window_size(terminal: BorrowedFd<'_>, size: &libc::winsize) -> SysResult<()> {
    // SAFETY: TIOCSWINSZ reads one winsize.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, std::ptr::from_ref(size)) }.into())?;
    Ok(())
}

/// Makes the terminal the controlling one of this session leader (TIOCSCTTY).
///
/// # Errors
/// EPERM when this is no session leader or the terminal has a session.
pub fn take_controlling(terminal: BorrowedFd<'_>) -> SysResult<()> {
    // SAFETY: TIOCSCTTY takes a value.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }.into())?;
    Ok(())
}
