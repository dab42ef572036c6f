//! Connects to the socket that an agent listens on inside: to look into its root takes a right over it.

use super::{CONNECT, Workers};
use crate::error::{Error, Result};
use crate::stage::launcher::Launcher;
use crate::supervise::talk::process;
use crate::sys::scm;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// How long until it is looked again whether the agent listens, in milliseconds.
const LOOK_EVERY: u16 = 10;

/// Begins to wait until the program `pid` listens. What is returned is readable when there is a connection, or none
/// any more; when it is closed, nobody waits.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(in crate::supervise) fn begin(launcher: &Launcher, pid: i32) -> Result<OwnedFd> {
    let fails = |e: nix::Error| Error::system("connect to the agent", e);
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    let (ours, theirs) = pair.map_err(fails)?;
    launcher.work(CONNECT, u64::from(pid.cast_unsigned()), &[theirs.as_raw_fd()]).map_err(fails)?;
    Ok(ours)
}

/// The connection.
pub(in crate::supervise) fn take(begun: BorrowedFd<'_>) -> Option<OwnedFd> {
    let [stream, ..] = scm::receive(begun, &mut [0]).ok()?.fds;
    stream
}

/// The worker's side.
#[expect(
    clippy::disallowed_methods,
    reason = "/proc: whether the number is one of the sandbox is asked of what was opened"
)]
pub(super) fn answer(to: OwnedFd, workers: &Workers<'_>, argument: u64) {
    // Beneath this directory the number means the same process for ever.
    let Ok(agent) = File::open(format!("/proc/{argument}")) else { return };
    if workers.inside(argument).is_none() {
        return;
    }
    while let Ok(connected) = process::connect(&agent) {
        if let Some(stream) = connected {
            let _ = scm::send(to.as_fd(), &[1], &[stream.as_raw_fd()]);
            return;
        }
        // Nothing is ever sent to us: what there is to see is that nobody waits.
        match poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLIN)], LOOK_EVERY) {
            Ok(0) | Err(nix::Error::EINTR) => {}
            _ => return,
        }
    }
}
