//! Waits for changes of a word in memory that this process shares with another (futex(2)).

use super::{Errno, SysResult, call};
use std::sync::atomic::AtomicU32;

/// Waits while the word is `value`, at most so many milliseconds. It may return earlier: the caller must check the word
/// again.
///
/// # Errors
/// The error number of futex(2), except those that mean that the word must be checked again.
pub fn wait(word: &AtomicU32, value: u32, most_ms: u16) -> SysResult<()> {
    let most_ms = i64::from(most_ms);
    let most = libc::timespec { tv_sec: most_ms / 1000, tv_nsec: most_ms % 1000 * 1_000_000 };
    let most = std::ptr::from_ref(&most);
    match call!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value, most) {
        Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ETIMEDOUT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Wakes all waiters of the word. It never fails for a mapped word.
pub fn wake(word: &AtomicU32) {
    let _ = call!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
}
