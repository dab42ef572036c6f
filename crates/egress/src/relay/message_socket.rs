//! One end of a message socket. No call blocks and no message is lost: messages that do not fit into the socket buffer
//! are queued and sent later, in order.

use super::wire::MAX_MESSAGE_SIZE;
use saggar_sys::error::Result;
use saggar_sys::file::set_nonblocking;
use saggar_sys::{Errno, SysResult, scm};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Number of queued messages from which the socket counts as full.
const MAX_UNSENT: usize = 1024;

/// One end of the socket, with the messages that wait to be sent.
#[derive(Debug)]
pub struct MessageSocket {
    socket: OwnedFd,
    unsent: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    buffer: Vec<u8>,
}

/// The result of a receive.
#[derive(Debug)]
pub enum ReceiveResult<M> {
    /// A message, and the descriptor that was passed with it.
    Message(M, Option<OwnedFd>),
    /// No message is available now.
    WouldBlock,
    /// The peer has closed its end, or has sent data that is not a valid message.
    Closed,
}

impl MessageSocket {
    /// Takes ownership of the socket.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`].
    pub fn new(socket: OwnedFd) -> Result<Self> {
        set_nonblocking(socket.as_fd())?;
        // One byte more than the longest message, so that a longer one is detected.
        Ok(MessageSocket { socket, unsent: VecDeque::new(), buffer: vec![0; MAX_MESSAGE_SIZE + 1] })
    }

    /// Sends a message, or queues it until the socket has room.
    ///
    /// # Errors
    /// EPIPE when the peer has closed its end; EMSGSIZE for a message longer than [`MAX_MESSAGE_SIZE`].
    pub fn send(&mut self, message: &impl Serialize, passed_fd: Option<OwnedFd>) -> SysResult<()> {
        let bytes = serde_json::to_vec(message).unwrap_or_default();
        if bytes.len() > MAX_MESSAGE_SIZE {
            return Err(Errno::EMSGSIZE);
        }
        self.unsent.push_back((bytes, passed_fd));
        self.flush()
    }

    /// Sends queued messages as far as the socket has room.
    ///
    /// # Errors
    /// EPIPE when the peer has closed its end.
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

    /// Whether so many messages are queued that the sender should wait.
    pub fn is_full(&self) -> bool {
        self.unsent.len() >= MAX_UNSENT
    }

    /// Receives the next message.
    pub fn receive<M: DeserializeOwned>(&mut self) -> ReceiveResult<M> {
        let Self { socket, buffer, .. } = self;
        let mut received = match scm::receive(socket.as_fd(), buffer) {
            Ok(received) => received,
            Err(Errno::EAGAIN) => return ReceiveResult::WouldBlock,
            Err(_) => return ReceiveResult::Closed,
        };
        let bytes =
            buffer.get(..received.len).filter(|bytes| !bytes.is_empty() && bytes.len() <= MAX_MESSAGE_SIZE);
        match bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()) {
            Some(message) => ReceiveResult::Message(message, received.fds[0].take()),
            None => ReceiveResult::Closed,
        }
    }
}

impl AsFd for MessageSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saggar_sys::scm::socket_pair;

    fn pair() -> (MessageSocket, MessageSocket) {
        let (one, other) = socket_pair().unwrap();
        (MessageSocket::new(one).unwrap(), MessageSocket::new(other).unwrap())
    }

    #[test]
    fn what_does_not_fit_comes_later_and_in_order() {
        let (mut one, mut other) = pair();
        let text = "x".repeat(MAX_MESSAGE_SIZE / 2);
        for number in 0..50u32 {
            one.send(&(number, &text), None).unwrap();
        }
        assert!(!one.unsent.is_empty(), "the socket takes all of it at once");
        for number in 0..50u32 {
            one.flush().unwrap();
            let ReceiveResult::Message((got, _), None) = other.receive::<(u32, String)>() else {
                panic!("message {number}")
            };
            assert_eq!(got, number);
        }
        assert!(matches!(other.receive::<(u32, String)>(), ReceiveResult::WouldBlock));
    }

    #[test]
    fn what_is_no_message_is_the_end() {
        let (mut one, other) = pair();
        for bytes in [b"{".to_vec(), b"7 ".repeat(MAX_MESSAGE_SIZE)] {
            scm::send(other.as_fd(), &bytes, &[]).unwrap();
            assert!(matches!(one.receive::<u32>(), ReceiveResult::Closed));
        }
        drop(other);
        assert!(matches!(one.receive::<u32>(), ReceiveResult::Closed));
        assert_eq!(one.send(&7, None), Err(Errno::EPIPE));
    }

    #[test]
    fn what_is_too_long_is_not_sent() {
        let (mut one, _other) = pair();
        assert_eq!(one.send(&"x".repeat(MAX_MESSAGE_SIZE), None), Err(Errno::EMSGSIZE));
        assert!(one.unsent.is_empty());
    }
}
