//! Questions to a resolver over TCP (RFC 7766): each message has its length before it, and the answers come in any
//! order.

use super::super::dial::{self, Dialled};
use super::super::pump::again;
use crate::egress::dns;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{Read, Result, Write};
use std::net::SocketAddr;

/// Bytes of one read.
const PIECE: usize = 4096;
/// Why there is no connection.
pub(super) const NONE: &str = "a resolver takes no connection for a long answer";
const CUT: &str = "a resolver ends the connection before its answer";

/// A connection to a resolver.
#[derive(Debug)]
pub(super) struct Stream {
    stream: TcpStream,
    stands: bool,
    /// What is still to be sent.
    unsent: Vec<u8>,
    /// What has come of answers that are not whole.
    read: Vec<u8>,
    /// Whether an answer has come.
    has_answered: bool,
}

/// What comes of a connection next.
#[derive(Debug)]
pub(super) enum Next {
    /// Something that the resolver says, whole.
    Message(Vec<u8>),
    /// Nothing yet.
    Waits,
    /// The resolver ends it after an answer, as one does that takes a question at a time: the others can be asked again.
    Ended,
    /// Nothing any more, and why.
    Failed(&'static str),
}

impl Stream {
    /// Calls the resolver to ask it this.
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
        // In one write, lengths and all: some resolvers take what comes first for the whole (RFC 7766, section 8).
        let unsent = questions.iter().filter_map(|question| dns::framed(question)).flatten().collect();
        Ok(Stream { stream, stands: false, unsent, read: Vec::new(), has_answered: false })
    }

    /// Goes as far as it goes now, to the next message at most.
    pub(super) fn next(&mut self) -> Next {
        match self.try_next() {
            Ok(next) => next,
            // What it has not read of our questions makes its end a reset.
            Err(_) if self.may_end() => Next::Ended,
            Err(_) if !self.stands => Next::Failed(NONE),
            Err(_) => Next::Failed(CUT),
        }
    }

    /// Whether it may end here: behind an answer, and not within one.
    fn may_end(&self) -> bool {
        self.has_answered && self.read.is_empty()
    }

    fn try_next(&mut self) -> Result<Next> {
        if !self.stands {
            match dial::progress(&self.stream) {
                Dialled::Stands => self.stands = true,
                Dialled::Waits => return Ok(Next::Waits),
                Dialled::Failed(error) => return Err(error),
            }
        }
        while !self.unsent.is_empty() {
            match again(|| self.stream.write(&self.unsent))? {
                Some(count) => drop(self.unsent.drain(..count)),
                None => break,
            }
        }
        loop {
            if dns::first_length(&self.read).is_some_and(|length| length > dns::LONGEST) {
                return Ok(Next::Failed("an answer is too long"));
            }
            if let Some((message, rest)) = dns::first(&self.read) {
                let message = message.to_vec();
                self.read = rest.to_vec();
                self.has_answered = true;
                return Ok(Next::Message(message));
            }
            let mut piece = [0; PIECE];
            match again(|| self.stream.read(&mut piece))? {
                None => return Ok(Next::Waits),
                Some(0) if self.may_end() => return Ok(Next::Ended),
                Some(0) => return Ok(Next::Failed(CUT)),
                Some(count) => self.read.extend_from_slice(piece.get(..count).unwrap_or_default()),
            }
        }
    }
}
