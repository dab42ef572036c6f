//! Connection information for the check of the Host header and for the rate limit.

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// The two ends of a TCP connection.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    /// The local address of the socket; `None` if the kernel does not return it.
    pub local: Option<SocketAddr>,
    /// The address of the client, or of the last proxy before the server.
    pub peer: SocketAddr,
}

impl Connected<IncomingStream<'_, TcpListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Connection { local: stream.io().local_addr().ok(), peer: *stream.remote_addr() }
    }
}
