//! The signals of the supervisor itself, as a descriptor (signalfd(2)): no system call is interrupted, and no signal is
//! lost.

use crate::error::{Error, Result};
use crate::sys::process;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};

/// Every signal that a supervisor handles instead of being killed by it.
const HANDLED: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// Blocks these signals, so that none ends saggar from now on: a sandbox that is being created is removed in order. A
/// signal that the caller ignores (nohup(1)) is left alone, because Linux queues a blocked signal even if it is
/// ignored.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn block() -> Result<SigSet> {
    let heard = HANDLED.into_iter().filter(|signal| !process::ignores(*signal as i32));
    let set: SigSet = heard.collect();
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

/// Reads the next signal; true if the terminal or the kernel sent it, and it was thus meant for the whole process
/// group.
pub fn read_next(fd: &SignalFd) -> Option<(Signal, bool)> {
    let info: siginfo = fd.read_signal().ok().flatten()?;
    let signal = Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()?;
    Some((signal, info.ssi_code == libc::SI_KERNEL))
}
