//! Queries to a resolver over TCP (RFC 7766). Each message has its length before it, and replies come in any order.

use super::super::dial::{self, ConnectProgress};
use super::super::pump::retry_interrupted;
use crate::dns;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{Read, Result, Write};
use std::net::SocketAddr;

/// Size of one read, in bytes.
const READ_SIZE: usize = 4096;
/// The error if the connection fails.
pub(super) const CONNECT_FAILED: &str = "a resolver takes no connection for a long answer";
const ENDED_EARLY: &str = "a resolver ends the connection before its answer";

/// A connection to a resolver.
#[derive(Debug)]
pub(super) struct ResolverStream {
    stream: TcpStream,
    is_connected: bool,
    /// Bytes to send.
    unsent: Vec<u8>,
    /// Bytes of an incomplete reply.
    received: Vec<u8>,
    /// Whether a reply was received.
    has_answered: bool,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum NextReply {
    /// A complete message.
    Message(Vec<u8>),
    /// No complete message yet.
    Pending,
    /// The resolver closed the connection after a reply, because it answers one query per connection. The other
    /// queries can be repeated.
    Ended,
    /// The connection failed; the reason.
    Failed(&'static str),
}

impl ResolverStream {
    /// Connects to the resolver to send these queries.
    ///
    /// # Errors
    /// Those of connect(2) and of epoll_ctl(2).
    pub(super) fn new(
        server: SocketAddr,
        questions: &[Vec<u8>],
        registry: &Registry,
        token: Token,
    ) -> Result<Self> {
        let mut stream = TcpStream::connect(server)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        // In one write, with the lengths: some resolvers treat the first segment as a complete message (RFC 7766,
        // section 8).
        let unsent =
            questions.iter().filter_map(|question| dns::with_length_prefix(question)).flatten().collect();
        Ok(ResolverStream { stream, is_connected: false, unsent, received: Vec::new(), has_answered: false })
    }

    /// Sends and receives without blocking, up to the next message.
    pub(super) fn next_reply(&mut self) -> NextReply {
        match self.try_next_reply() {
            Ok(next) => next,
            // Queries that the resolver did not read turn its close into a reset.
            Err(_) if self.may_end() => NextReply::Ended,
            Err(_) if !self.is_connected => NextReply::Failed(CONNECT_FAILED),
            Err(_) => NextReply::Failed(ENDED_EARLY),
        }
    }

    /// Whether the connection may end here: after a reply and not within one.
    fn may_end(&self) -> bool {
        self.has_answered && self.received.is_empty()
    }

    fn try_next_reply(&mut self) -> Result<NextReply> {
        if !self.is_connected {
            match dial::connect_progress(&self.stream) {
                ConnectProgress::Connected => self.is_connected = true,
                ConnectProgress::Pending => return Ok(NextReply::Pending),
                ConnectProgress::Failed(error) => return Err(error),
            }
        }
        while !self.unsent.is_empty() {
            match retry_interrupted(|| self.stream.write(&self.unsent))? {
                Some(count) => drop(self.unsent.drain(..count)),
                None => break,
            }
        }
        loop {
            if dns::first_frame_length(&self.received).is_some_and(|length| length > dns::MAX_MESSAGE_LENGTH)
            {
                return Ok(NextReply::Failed("an answer is too long"));
            }
            if let Some((message, rest)) = dns::first_frame(&self.received) {
                let message = message.to_vec();
                self.received = rest.to_vec();
                self.has_answered = true;
                return Ok(NextReply::Message(message));
            }
            let mut piece = [0; READ_SIZE];
            match retry_interrupted(|| self.stream.read(&mut piece))? {
                None => return Ok(NextReply::Pending),
                Some(0) if self.may_end() => return Ok(NextReply::Ended),
                Some(0) => return Ok(NextReply::Failed(ENDED_EARLY)),
                Some(count) => self.received.extend_from_slice(piece.get(..count).unwrap_or_default()),
            }
        }
    }
}
