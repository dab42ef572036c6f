//! Waits for a program in the foreground, and handles its exit status, its signals and its terminal.
//!
//! One loop over poll(2). The exit of the program is detected by its pidfd, so that neither a recycled pid nor a
//! lost SIGCHLD matters.

use super::console::TerminalRelay;
use super::service_notification::NotificationRelay;
use crate::error::{Error, Result, status};
use crate::launch::container::LaunchedProcess;
use crate::sys::{Errno, pidfd, process};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use std::os::fd::AsFd;

/// Signals that are not forwarded: our own faults, those that cannot be blocked, and job control stops.
const NOT_FORWARDED: [Signal; 13] = [
    Signal::SIGKILL,
    Signal::SIGSTOP,
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGSYS,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGPROF,
];

/// Blocks all forwarded signals, and opens a signalfd for them.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(super) fn open_signals() -> Result<SignalFd> {
    let mut forwarded = SigSet::all();
    for signal in NOT_FORWARDED {
        forwarded.remove(signal);
    }
    forwarded.thread_block().map_err(|e| Error::system("block signals", e))?;
    SignalFd::with_flags(&forwarded, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(|e| Error::system("open a signalfd", e))
}

/// Becomes a subreaper: orphans of the container become our children, so that no other process has to reap them.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(super) fn become_subreaper() -> Result<()> {
    process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0).map_err(|e| Error::system("become a subreaper", e))
}

/// Waits until `program`, our child, has exited; returns its exit status, 128+N for signal N. Its notifications are passed
/// on by `notifications`.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(super) fn wait(
    program: &LaunchedProcess,
    signals: &SignalFd,
    reap_others: bool,
    notifications: Option<&NotificationRelay>,
) -> Result<u8> {
    let mut relay = program.terminal.as_ref().map(TerminalRelay::new).transpose()?;
    loop {
        let mut fds = vec![
            PollFd::new(program.pidfd.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        let streams = relay.as_ref().map(TerminalRelay::poll_interests).unwrap_or_default();
        fds.extend(streams.iter().map(|(fd, flags)| PollFd::new(*fd, *flags)));
        fds.extend(notifications.map(NotificationRelay::poll_interest));
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(Error::system("wait for the program", errno)),
            Ok(_) => {}
        }
        let ended = fds[0].any().unwrap_or(false);
        if let Some(notifications) = notifications {
            if ended {
                notifications.pass_on_rest();
            } else {
                notifications.pass_on();
            }
        }
        if let Some(relay) = &mut relay {
            relay.transfer();
        }
        if ended {
            if let Some(relay) = &mut relay {
                relay.drain();
            }
            let status =
                pidfd::reap(program.pidfd.as_fd()).map_err(|e| Error::system("reap the program", e))?;
            if reap_others {
                reap(None);
            }
            return Ok(exit_status(status));
        }
        while let Ok(Some(info)) = signals.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            match Signal::try_from(number) {
                Ok(Signal::SIGCHLD) if reap_others => reap(Some(program.pid)),
                Ok(Signal::SIGCHLD | Signal::SIGURG | Signal::SIGPIPE) => {}
                Ok(Signal::SIGWINCH) if relay.is_some() => {
                    if let Some(relay) = &relay {
                        relay.resize();
                    }
                }
                // Keys of the terminal reach the program through its own terminal, not as signals to us.
                _ => {
                    let _ = pidfd::signal(program.pidfd.as_fd(), number);
                }
            }
        }
    }
}

/// Reaps every child that has exited, except the program, whose status is reaped later.
fn reap(except: Option<i32>) {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, peek) {
        match status.pid() {
            Some(pid) if Some(pid.as_raw()) != except => {
                let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
            }
            _ => return,
        }
    }
}

fn exit_status(ended: WaitStatus) -> u8 {
    match ended {
        WaitStatus::Exited(_, code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        WaitStatus::Signaled(_, signal, _) => status::of_signal(signal as i32),
        _ => u8::MAX,
    }
}
