//! Connection information for the check of the Host header and for the rate limit.

use std::net::SocketAddr;

/// The two ends of a TCP connection.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    /// The local address of the socket; `None` if the kernel does not return it.
    pub local: Option<SocketAddr>,
    /// The address of the client, or of the last proxy before the server.
    pub peer: SocketAddr,
}
