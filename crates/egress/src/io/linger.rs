//! A client that gets the last reply although it still sends.
//!
//! A socket that is closed with unread input resets the connection (RFC 1122, section 4.2.2.13); the client then fails
//! to send, and may never read the reply. So the relay ends its sending side, and reads and discards until the client
//! closes, for a bounded time.
//!
//! A host that does the same to the relay resets its connection after its reply. A client that sends on gets that reply
//! and its end; one that has sent all and awaits more must not take the end of a broken reply for that of a whole one, so
//! it gets the reset. Which of the two it is shows within [`SILENCE_TIMEOUT`].

use super::dial;
use super::pump::{Flow, retry_interrupted};
use mio::net::TcpStream;
use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Time limit for the client to close.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which a client that still sends has sent something.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of reads before others are served.
const READ_BUDGET: usize = 16;

/// The stream of a connection that is closed except for its client.
#[derive(Debug)]
pub(super) struct LingeringClient {
    stream: TcpStream,
    deadline: Instant,
    /// Whether a client that sends nothing until then gets a reset.
    awaits_input: bool,
}

impl LingeringClient {
    /// Ends the sending side. The reply is written already.
    pub(super) fn new(stream: TcpStream) -> Self {
        let mut client = LingeringClient { stream, deadline: Instant::now(), awaits_input: false };
        client.end_output();
        client
    }

    /// After the host has reset the connection. The reply, so far, is written already.
    pub(super) fn after_reset(stream: TcpStream) -> Self {
        LingeringClient { stream, deadline: Instant::now() + SILENCE_TIMEOUT, awaits_input: true }
    }

    fn end_output(&mut self) {
        // A stream that is not connected any more has no client to wait for; the first read finds that.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.deadline = Instant::now() + LINGER_TIMEOUT;
    }

    /// When the connection is closed whatever its client does.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Discards input; [`Flow::Finished`] when the client has closed, or its time is over.
    pub(super) fn discard(&mut self, chunk: &mut [u8]) -> Flow {
        for _ in 0..READ_BUDGET {
            match retry_interrupted(|| self.stream.read(chunk)) {
                Ok(None) if self.deadline <= Instant::now() => return self.give_up(),
                Ok(None) => return Flow::Blocked,
                Ok(Some(0)) | Err(_) => return self.give_up(),
                Ok(Some(_)) if std::mem::take(&mut self.awaits_input) => self.end_output(),
                Ok(Some(_)) if self.deadline <= Instant::now() => return Flow::Finished,
                Ok(Some(_)) => {}
            }
        }
        Flow::More
    }

    /// A client that did not send gets the reset of its host.
    fn give_up(&self) -> Flow {
        if self.awaits_input {
            dial::reset_on_close(&self.stream);
        }
        Flow::Finished
    }
}
