//! Connections to hosts.

use mio::net::TcpStream;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The progress of a connect.
#[derive(Debug)]
pub(super) enum ConnectProgress {
    /// The connection is established.
    Connected,
    /// The result is not known yet.
    Pending,
    /// It failed.
    Failed(std::io::Error),
}

/// The progress of a non-blocking connect (connect(2), EINPROGRESS).
pub(super) fn connect_progress(stream: &TcpStream) -> ConnectProgress {
    match stream.take_error() {
        Err(error) | Ok(Some(error)) => return ConnectProgress::Failed(error),
        Ok(None) => {}
    }
    match stream.peer_addr() {
        Ok(_) => ConnectProgress::Connected,
        Err(error) if error.kind() == ErrorKind::NotConnected => ConnectProgress::Pending,
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => ConnectProgress::Pending,
        Err(error) => ConnectProgress::Failed(error),
    }
}

/// Maximum kernel buffer per direction of a connection, in bytes. These buffers are not charged to the sandbox's
/// memory, and there may be many connections.
const KERNEL_BUFFER_SIZE: usize = 256 << 10;

/// Configures the stream of a program. Small writes are not delayed, because the program has already decided when to
/// send.
pub(super) fn configure_program_stream(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::SndBuf, &KERNEL_BUFFER_SIZE);
}

/// Configures the stream to a host. Keepalive detects a host that has gone away.
pub(super) fn configure_host_stream(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let _ = setsockopt(stream, sockopt::RcvBuf, &KERNEL_BUFFER_SIZE);
}

/// Has the close of this stream reset the connection, so that its peer gets an error and not an end of file.
pub(super) fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = setsockopt(stream, sockopt::Linger, &linger);
}

/// Whether an address belongs to this machine: the kernel would then use it as source address, too. No packet is sent.
///
/// # Errors
/// The check failed. An address without a route is not an error.
pub(super) fn is_local_address(address: SocketAddr) -> Result<bool> {
    match source_address(address) {
        Ok(source) => Ok(source == address.ip()),
        Err(error) => match error.kind() {
            ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::PermissionDenied => {
                Ok(false)
            }
            // This machine has no address of this family.
            _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Whether there is a route to this address.
pub(super) fn has_route(address: SocketAddr) -> bool {
    source_address(address).is_ok()
}

/// The source address that this machine uses for a destination.
fn source_address(to: SocketAddr) -> Result<IpAddr> {
    let any = match to {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}
