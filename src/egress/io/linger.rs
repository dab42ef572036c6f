//! A client that gets the last reply although it still sends.
//!
//! A socket that is closed with unread input resets the connection (RFC 1122, section 4.2.2.13); the client then fails
//! to send, and may never read the reply. So the relay ends its sending side, and reads and discards until the client
//! closes, for a bounded time.

use super::pump::{Flow, retry_interrupted};
use mio::net::TcpStream;
use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Time limit for the client to close.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of reads before others are served.
const READ_BUDGET: usize = 16;

/// The stream of a connection that is closed except for its client.
#[derive(Debug)]
pub(super) struct LingeringClient {
    stream: TcpStream,
    deadline: Instant,
}

impl LingeringClient {
    /// Ends the sending side. The reply is written already.
    pub(super) fn new(stream: TcpStream) -> Self {
        // A stream that is not connected any more has no client to wait for; the first read finds that.
        let _ = stream.shutdown(Shutdown::Write);
        LingeringClient { stream, deadline: Instant::now() + LINGER_TIMEOUT }
    }

    /// When the connection is closed whatever its client does.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Discards input; [`Flow::Finished`] when the client has closed, or its time is over.
    pub(super) fn discard(&mut self, chunk: &mut [u8]) -> Flow {
        if self.deadline <= Instant::now() {
            return Flow::Finished;
        }
        for _ in 0..READ_BUDGET {
            match retry_interrupted(|| self.stream.read(chunk)) {
                Ok(None) => return Flow::Blocked,
                Ok(Some(0)) | Err(_) => return Flow::Finished,
                Ok(Some(_)) => {}
            }
        }
        Flow::More
    }
}
