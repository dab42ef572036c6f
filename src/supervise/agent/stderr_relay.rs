//! Copies the agent's standard error to that of saggar, for a server that started saggar as its child.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Write, stderr};
use std::os::fd::AsFd;

/// A pipe that poll(2) reports as writable takes so many bytes at once (PIPE_BUF, pipe(7)).
const ATOMIC_WRITE: usize = 4096;

/// Writes what standard error takes without waiting. If the server does not read, the rest is dropped, since its agent must
/// not stop the supervisor; the log of the control socket has all of it.
pub(super) fn write(bytes: &[u8]) {
    let stderr = stderr();
    for chunk in bytes.chunks(ATOMIC_WRITE) {
        let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        let is_writable = poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
            && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT));
        if !is_writable || stderr.lock().write_all(chunk).is_err() {
            return;
        }
    }
}
