//! The signals of the supervisor itself, as a descriptor (signalfd(2)): nothing is interrupted, none is lost.

use crate::error::{Error, Result};
use crate::sys::process;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};

/// Every signal that a supervisor hears instead of dying of it.
const HEARD: [Signal; 10] = [
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

/// Blocks them, so that from now on none ends saggar: what is on its way to being made is removed in good
/// order. A signal that the caller ignores (nohup(1)) is left alone: Linux queues a blocked one even so.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn block() -> Result<SigSet> {
    let heard = HEARD.into_iter().filter(|signal| !process::ignores(*signal as i32));
    let set: SigSet = heard.collect();
    set.thread_block().map_err(|e| Error::system("block signals", e))?;
    Ok(set)
}

/// Blocks them and opens a descriptor that reads them. SIGPIPE is ignored already (`sys::begin`).
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn open() -> Result<SignalFd> {
    let set = block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(|e| Error::system("open a signalfd", e))
}

/// The next signal: which, and whether the terminal or the kernel sent it, so that it was meant for the
/// whole process group.
pub fn next(fd: &SignalFd) -> Option<(Signal, bool)> {
    let info: siginfo = fd.read_signal().ok().flatten()?;
    let signal = Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()?;
    Some((signal, info.ssi_code == libc::SI_KERNEL))
}
