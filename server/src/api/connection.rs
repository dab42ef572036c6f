//! The connection of a request.

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Its own end: the address that the client connected to.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    /// `None` if the kernel does not say.
    pub local: Option<SocketAddr>,
}

impl Connected<IncomingStream<'_, TcpListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Connection { local: stream.io().local_addr().ok() }
    }
}
