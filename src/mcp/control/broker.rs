//! The broker, seen from the server: one socket for each request.

use super::wire::{BrokerReply, BrokerRequest, CONSENT, MAX_REQUEST_SIZE};
use crate::error::{Code, Error, Result};
use crate::sys::scm;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Longest reply, in bytes: a text of 256 KiB, or log entries with as much, every byte of it escaped.
const MAX_REPLY_SIZE: usize = 4 << 20;
/// Bytes that are received at a time.
const CHUNK: usize = 64 << 10;

/// Longest wait for a first reply: a comparison of large trees takes a while.
const PATIENCE: Duration = Duration::from_secs(600);
/// Most requests at a time that have no reply yet. More wait.
const MAX_REQUESTS: usize = 16;

/// The server's end of the broker's socket.
#[derive(Debug)]
pub(super) struct Broker {
    socket: OwnedFd,
    slots: Semaphore,
}

/// The connection of one request. Its end tells the broker that nothing is expected any more.
#[derive(Debug)]
pub(super) struct BrokerConnection {
    stream: UnixStream,
    unread: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Broker {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Broker { socket, slots: Semaphore::new(MAX_REQUESTS) }
    }

    /// Sends a request, and returns the first reply with the connection.
    ///
    /// # Errors
    /// As [`Broker::send`] and [`BrokerConnection::reply`].
    pub(super) async fn request(&self, request: &BrokerRequest) -> Result<(BrokerReply, BrokerConnection)> {
        let _slot = self.slots.acquire().await;
        let mut connection = self.send(request)?;
        let reply = timeout(PATIENCE, connection.reply()).await;
        let reply = reply.map_err(|_| Error::system("ask the broker", "there is no reply"))??;
        Ok((reply, connection))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a request that is too long; [`Code::State`] if the broker is gone.
    fn send(&self, request: &BrokerRequest) -> Result<BrokerConnection> {
        let packet = serde_json::to_vec(request).unwrap_or_default();
        if packet.len() > MAX_REQUEST_SIZE {
            let message = format!("the arguments are longer than {MAX_REQUEST_SIZE} bytes");
            return Err(Error::new(Code::Invalid, message).hint("name fewer paths"));
        }
        let (own, other) = BlockingStream::pair().map_err(fail)?;
        own.set_nonblocking(true).map_err(fail)?;
        scm::send(self.socket.as_fd(), &packet, &[other.as_raw_fd()]).map_err(|_| {
            Error::new(Code::State, "the broker of this server has ended").hint("start the server again")
        })?;
        let stream = UnixStream::from_std(own).map_err(fail)?;
        Ok(BrokerConnection { stream, unread: Vec::new(), descriptor: None })
    }
}

impl BrokerConnection {
    /// The next reply.
    ///
    /// # Errors
    /// The error of the broker; [`Code::System`].
    pub(super) async fn reply(&mut self) -> Result<BrokerReply> {
        let line = self.line().await.map_err(fail)?;
        match serde_json::from_slice(&line).map_err(|e| fail(e.into()))? {
            BrokerReply::Failed(error) => Err(error),
            reply => Ok(reply),
        }
    }

    /// Consents to what was asked.
    ///
    /// # Errors
    /// [`Code::System`].
    pub(super) async fn consent(&mut self) -> Result<()> {
        self.stream.write_all(CONSENT).await.map_err(fail)
    }

    /// Refuses what was asked, and waits until the broker has given it up.
    pub(super) async fn refuse(mut self) {
        if self.stream.shutdown().await.is_ok() {
            let _ = self.reply().await;
        }
    }

    /// The descriptor that came with a reply.
    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    async fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            let end = self.unread.iter().skip(searched).position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let rest = self.unread.split_off(searched + end + 1);
                return Ok(std::mem::replace(&mut self.unread, rest));
            }
            if self.unread.len() > MAX_REPLY_SIZE {
                return Err(io::Error::other("the reply is too long"));
            }
            searched = self.unread.len();
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        self.stream.readable().await?;
        let received = self.stream.try_io(Interest::READABLE, || {
            scm::receive(self.stream.as_fd(), &mut chunk).map_err(io::Error::from)
        });
        match received {
            Ok(received) if received.len == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(mut received) => {
                self.unread.extend_from_slice(chunk.get(..received.len).unwrap_or_default());
                if let Some(descriptor) = received.fds[0].take() {
                    self.descriptor = Some(descriptor);
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn fail(error: io::Error) -> Error {
    Error::system("ask the broker", error)
}
