//! One end of a socket for messages: nothing waits here, and nothing is lost. What does not fit the socket now is sent
//! later, in its order.

use super::wire::LONGEST;
use crate::error::Result;
use crate::launch::set_nonblocking;
use crate::sys::{Errno, SysResult, scm};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Messages that wait for room before the channel is full.
const MANY: usize = 1024;

/// One end.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    unsent: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    buffer: Vec<u8>,
}

/// What comes of receiving.
#[derive(Debug)]
pub enum Received<M> {
    /// A message, with what came beside it.
    Message(M, Option<OwnedFd>),
    /// None for now.
    Nothing,
    /// The other end is gone, or sends what is no message.
    Over,
}

impl Channel {
    /// Takes the socket over.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn new(socket: OwnedFd) -> Result<Self> {
        set_nonblocking(socket.as_fd())?;
        // A byte more than any message: a longer one is none.
        Ok(Channel { socket, unsent: VecDeque::new(), buffer: vec![0; LONGEST + 1] })
    }

    /// Sends a message, as soon as there is room.
    ///
    /// # Errors
    /// EPIPE when the other end is gone; EMSGSIZE for a message that is too long.
    pub fn send(&mut self, message: &impl Serialize, beside: Option<OwnedFd>) -> SysResult<()> {
        let bytes = serde_json::to_vec(message).unwrap_or_default();
        if bytes.len() > LONGEST {
            return Err(Errno::EMSGSIZE);
        }
        self.unsent.push_back((bytes, beside));
        self.flush()
    }

    /// Sends what has waited, as far as there is room.
    ///
    /// # Errors
    /// EPIPE when the other end is gone.
    pub fn flush(&mut self) -> SysResult<()> {
        while let Some((bytes, beside)) = self.unsent.front() {
            let fd: Option<RawFd> = beside.as_ref().map(AsRawFd::as_raw_fd);
            match scm::send(self.socket.as_fd(), bytes, fd.as_slice()) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Whether so much waits that its sender is to wait too.
    pub fn is_full(&self) -> bool {
        self.unsent.len() >= MANY
    }

    /// The next message.
    pub fn receive<M: DeserializeOwned>(&mut self) -> Received<M> {
        let Self { socket, buffer, .. } = self;
        let mut received = match scm::receive(socket.as_fd(), buffer) {
            Ok(received) => received,
            Err(Errno::EAGAIN) => return Received::Nothing,
            Err(_) => return Received::Over,
        };
        let bytes = buffer.get(..received.len).filter(|bytes| !bytes.is_empty() && bytes.len() <= LONGEST);
        match bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()) {
            Some(message) => Received::Message(message, received.fds[0].take()),
            None => Received::Over,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::socket_pair;

    fn pair() -> (Channel, Channel) {
        let (one, other) = socket_pair().unwrap();
        (Channel::new(one).unwrap(), Channel::new(other).unwrap())
    }

    #[test]
    fn what_does_not_fit_comes_later_and_in_order() {
        let (mut one, mut other) = pair();
        let text = "x".repeat(LONGEST / 2);
        for number in 0..50u32 {
            one.send(&(number, &text), None).unwrap();
        }
        assert!(!one.unsent.is_empty(), "the socket takes all of it at once");
        for number in 0..50u32 {
            one.flush().unwrap();
            let Received::Message((got, _), None) = other.receive::<(u32, String)>() else {
                panic!("message {number}")
            };
            assert_eq!(got, number);
        }
        assert!(matches!(other.receive::<(u32, String)>(), Received::Nothing));
    }

    #[test]
    fn what_is_no_message_is_the_end() {
        let (mut one, other) = pair();
        for bytes in [b"{".to_vec(), b"7 ".repeat(LONGEST)] {
            scm::send(other.as_fd(), &bytes, &[]).unwrap();
            assert!(matches!(one.receive::<u32>(), Received::Over));
        }
        drop(other);
        assert!(matches!(one.receive::<u32>(), Received::Over));
        assert_eq!(one.send(&7, None), Err(Errno::EPIPE));
    }

    #[test]
    fn what_is_too_long_is_not_sent() {
        let (mut one, _other) = pair();
        assert_eq!(one.send(&"x".repeat(LONGEST), None), Err(Errno::EMSGSIZE));
        assert!(one.unsent.is_empty());
    }
}
