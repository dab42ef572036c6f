//! Which callers of a socket get in, and what the log has of those that do not.

use crate::host::peer::Peers;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// How long the log says nothing of refusals after it has said something.
const QUIET: Duration = Duration::from_secs(10);

/// The callers of one socket.
#[derive(Debug)]
pub(super) struct Callers {
    peers: Peers,
    /// When the log may have the next refusal.
    quiet_until: Duration,
    /// Refusals that the log does not have.
    unsaid: u64,
}

impl Callers {
    pub(super) fn new(peers: Peers) -> Self {
        Callers { peers, quiet_until: Duration::ZERO, unsaid: 0 }
    }

    /// Whether the other end of a connection to the socket at `path` is a process that may use it.
    pub(super) fn accept(&mut self, connection: &impl AsFd, path: &Path, now: Duration) -> bool {
        let Err(refusal) = self.peers.judge(connection.as_fd()) else { return true };
        if now < self.quiet_until {
            self.unsaid += 1;
            return false;
        }
        self.quiet_until = now + QUIET;
        let more = match std::mem::take(&mut self.unsaid) {
            0 => String::new(),
            count => format!(" ({count} more since the last line)"),
        };
        log::warn!("refused a connection to {}: {refusal}{more}", path.display());
        false
    }
}
