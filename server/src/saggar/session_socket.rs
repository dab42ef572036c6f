//! The sockets of a session: files on this machine, or behind the relay of another.

use crate::kubernetes::RelayedSocket;
use serde::Deserialize;
use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// What bytes are received from.
pub trait ByteSource: AsyncRead + Debug + Send + Sync + Unpin {}
impl<T: AsyncRead + Debug + Send + Sync + Unpin> ByteSource for T {}

/// What bytes are sent to.
pub trait ByteSink: AsyncWrite + Debug + Send + Sync + Unpin {}
impl<T: AsyncWrite + Debug + Send + Sync + Unpin> ByteSink for T {}

/// The receiving half of a connection.
pub type SocketReader = Box<dyn ByteSource>;
/// The sending half of a connection.
pub type SocketWriter = Box<dyn ByteSink>;

/// A socket of a session.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "PathBuf")]
pub enum SessionSocket {
    /// A file on this machine.
    Local(PathBuf),
    /// A file on the node of a pod.
    Relayed(RelayedSocket),
}

impl SessionSocket {
    /// Connects to the socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`] if nobody serves it.
    pub async fn connect(&self) -> io::Result<(SocketReader, SocketWriter)> {
        match self {
            SessionSocket::Local(path) => {
                let (reader, writer) = UnixStream::connect(path).await?.into_split();
                Ok((Box::new(reader), Box::new(writer)))
            }
            SessionSocket::Relayed(socket) => socket.connect().await,
        }
    }
}

impl From<PathBuf> for SessionSocket {
    fn from(path: PathBuf) -> Self {
        SessionSocket::Local(path)
    }
}

/// A socket that nobody serves.
impl Default for SessionSocket {
    fn default() -> Self {
        SessionSocket::Local(PathBuf::new())
    }
}
