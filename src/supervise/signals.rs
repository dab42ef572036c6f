//! The signals of the supervisor itself, as a descriptor (signalfd(2)): no system call is interrupted, and no signal is
//! lost.

use crate::error::{Error, Result};
use crate::sys::process;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use std::sync::OnceLock;

/// Signals that no supervisor takes for its program: those that no process can, what its own children and pipes cause, and
/// what stops it as a job when it uses a terminal in the background.
const NOT_HANDLED: [i32; 6] =
    [libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD, libc::SIGPIPE, libc::SIGTTIN, libc::SIGTTOU];

/// Signals that a program without a handler outlives (signal(7)), of those that are handled.
const HARMLESS: [i32; 4] = [libc::SIGCONT, libc::SIGTSTP, libc::SIGURG, libc::SIGWINCH];

/// The signals that ask a process to end.
pub const END_REQUESTS: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Every signal that a supervisor handles instead of being killed by it. Between the two ranges are those that the C library
/// keeps for itself (nptl(7)).
fn handled() -> impl Iterator<Item = i32> {
    (1..=libc::SIGSYS)
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
        .filter(|signal| !NOT_HANDLED.contains(signal))
}

/// Whether the signal kills a program that has no handler for it.
pub fn kills_by_default(signal: i32) -> bool {
    !HARMLESS.contains(&signal)
}

/// Blocks these signals, so that none ends saggar from now on: a sandbox that is being created is removed in order. A
/// signal that the caller ignores (nohup(1)) is left alone, because Linux queues a blocked signal even if it is
/// ignored.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn block() -> Result<SigSet> {
    // One call for each signal, once.
    static HEARD: OnceLock<SigSet> = OnceLock::new();
    let set =
        *HEARD.get_or_init(|| process::signal_set(handled().filter(|signal| !process::ignores(*signal))));
    set.thread_block().map_err(|e| Error::system("block signals", e))?;
    Ok(set)
}

/// Blocks these signals and opens a descriptor that reads them. SIGPIPE is ignored already (`sys::begin`).
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn open() -> Result<SignalFd> {
    let set = block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(|e| Error::system("open a signalfd", e))
}

/// Reads the number of the next signal; true if the terminal or the kernel sent it, and it was thus meant for the whole
/// process group.
pub fn read_next(fd: &SignalFd) -> Option<(i32, bool)> {
    let info: siginfo = fd.read_signal().ok().flatten()?;
    Some((i32::try_from(info.ssi_signo).ok()?, info.ssi_code == libc::SI_KERNEL))
}
