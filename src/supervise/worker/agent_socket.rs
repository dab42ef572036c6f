//! Connects to the socket that an agent listens on inside the sandbox: access to its root directory needs a right over
//! the agent's process.

use super::{CONNECT_TO_AGENT, WorkerContext};
use crate::error::{Error, Result};
use crate::stage::agent::launcher::Launcher;
use crate::supervise::channel::agent_process;
use crate::sys::scm;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Interval of the checks whether the agent listens, in milliseconds.
const POLL_INTERVAL_MS: u16 = 10;

/// Starts to wait until the program `pid` listens. The returned socket is readable when there is a connection, or when
/// there will be none; closing it ends the wait.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(in crate::supervise) fn start_connecting(launcher: &Launcher, pid: i32) -> Result<OwnedFd> {
    let fails = |e: nix::Error| Error::system("connect to the agent", e);
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    let (ours, theirs) = pair.map_err(fails)?;
    launcher
        .start_worker(CONNECT_TO_AGENT, u64::from(pid.cast_unsigned()), &[theirs.as_raw_fd()])
        .map_err(fails)?;
    Ok(ours)
}

/// Receives the connection.
pub(in crate::supervise) fn receive_connection(begun: BorrowedFd<'_>) -> Option<OwnedFd> {
    let [stream, ..] = scm::receive(begun, &mut [0]).ok()?.fds;
    stream
}

/// In the worker: serves one request.
#[expect(
    clippy::disallowed_methods,
    reason = "/proc: whether the number is one of the sandbox is asked of what was opened"
)]
pub(super) fn serve_request(to: OwnedFd, workers: &WorkerContext<'_>, argument: u64) {
    // Relative to this directory the pid names the same process, even if the pid is reused.
    let Ok(agent) = File::open(format!("/proc/{argument}")) else { return };
    if workers.find_descendant(argument).is_none() {
        return;
    }
    while let Ok(connected) = agent_process::connect_to_agent(&agent) {
        if let Some(stream) = connected {
            let _ = scm::send(to.as_fd(), &[1], &[stream.as_raw_fd()]);
            return;
        }
        // The loop never sends data: an event means that it has closed its end.
        match poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLIN)], POLL_INTERVAL_MS) {
            Ok(0) | Err(nix::Error::EINTR) => {}
            _ => return,
        }
    }
}
