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

/// The number of a master in its devpts instance (TIOCGPTN).
///
/// # Errors
/// ENOTTY if it is not a terminal.
pub fn number(master: BorrowedFd<'_>) -> SysResult<u32> {
    let mut number: libc::c_uint = 0;
    // SAFETY: TIOCGPTN writes one unsigned int.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) }.into())?;
    Ok(number)
}

/// The window size of a terminal (TIOCGWINSZ).
///
/// # Errors
/// ENOTTY if it is not a terminal.
pub fn window_size(terminal: BorrowedFd<'_>) -> SysResult<libc::winsize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) }.into())?;
    Ok(size)
}

/// Sets the window size of a terminal; its foreground processes get SIGWINCH (TIOCSWINSZ).
///
/// # Errors
/// ENOTTY if it is not a terminal.
pub fn set_window_size(terminal: BorrowedFd<'_>, size: &libc::winsize) -> SysResult<()> {
    // SAFETY: TIOCSWINSZ reads one winsize.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, std::ptr::from_ref(size)) }.into())?;
    Ok(())
}

/// Makes the terminal the controlling terminal of this session leader (TIOCSCTTY).
///
/// # Errors
/// EPERM if this process is not a session leader or the terminal already has a session.
pub fn take_controlling(terminal: BorrowedFd<'_>) -> SysResult<()> {
    // SAFETY: TIOCSCTTY takes a value.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }.into())?;
    Ok(())
}
