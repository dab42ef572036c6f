//! The bond of a child to the process that started it.

use saggar_sys::{SysResult, process};
use std::os::fd::{AsRawFd, BorrowedFd};

/// From here on this process is killed when its parent dies, of which `parent` is a pidfd. The signal alone would miss
/// a parent that died before it was set, and getppid(2) says 0 across pid namespaces: so the pidfd is looked at
/// afterwards.
///
/// # Errors
/// Those of prctl(2) and poll(2).
pub(super) fn die_with(parent: BorrowedFd<'_>) -> SysResult<()> {
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)?;
    if process::is_ready(parent.as_raw_fd(), libc::POLLIN)? {
        process::exit_now(125);
    }
    Ok(())
}
