//! Checks the peers of a socket's connections, and logs rejected ones at a limited rate.

use saggar_sys::peer::PeerPolicy;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Minimum interval between log lines about rejected connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The peer check of one socket.
#[derive(Debug)]
pub(super) struct PeerFilter {
    peers: PeerPolicy,
    /// Earliest time of the next log line.
    next_log_at: Duration,
    /// Number of rejected connections since the last log line.
    unlogged: u64,
}

impl PeerFilter {
    pub(super) fn new(peers: PeerPolicy) -> Self {
        PeerFilter { peers, next_log_at: Duration::ZERO, unlogged: 0 }
    }

    /// Whether the peer of a connection to the socket at `path` may use it.
    pub(super) fn admits(&mut self, connection: &impl AsFd, path: &Path, now: Duration) -> bool {
        let Err(refusal) = self.peers.check_connection(connection.as_fd()) else { return true };
        if now < self.next_log_at {
            self.unlogged += 1;
            return false;
        }
        self.next_log_at = now + LOG_INTERVAL;
        let more = match std::mem::take(&mut self.unlogged) {
            0 => String::new(),
            count => format!(" ({count} more since the last line)"),
        };
        log::warn!("refused a connection to {}: {refusal}{more}", path.display());
        false
    }
}
