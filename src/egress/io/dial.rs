//! Connections to hosts.

use mio::net::TcpStream;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// What became of a connection that was begun.
#[derive(Debug)]
pub(super) enum Dialled {
    /// It stands.
    Stands,
    /// Nobody knows yet.
    Waits,
    /// It failed.
    Failed(std::io::Error),
}

/// How a connection that was begun is doing (connect(2), EINPROGRESS).
pub(super) fn progress(stream: &TcpStream) -> Dialled {
    match stream.take_error() {
        Err(error) | Ok(Some(error)) => return Dialled::Failed(error),
        Ok(None) => {}
    }
    match stream.peer_addr() {
        Ok(_) => Dialled::Stands,
        Err(error) if error.kind() == ErrorKind::NotConnected => Dialled::Waits,
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Dialled::Waits,
        Err(error) => Dialled::Failed(error),
    }
}

/// Bytes that the kernel keeps of one direction of a connection: they are not the sandbox's memory, and there may be
/// many connections.
const KEPT: usize = 256 << 10;

/// A stream of a program: what is small is not held back to wait for more, since the program has decided that already.
pub(super) fn to_program(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::SndBuf, &KEPT);
}

/// A stream to a host; one whose machine is gone is noticed some day.
pub(super) fn to_host(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let _ = setsockopt(stream, sockopt::RcvBuf, &KEPT);
}

/// Closes a connection so that its peer hears an error, and not an end.
pub(super) fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = setsockopt(&stream, sockopt::Linger, &linger);
}

/// Whether an address is one of this machine: then the kernel would speak from it to itself. No packet is sent.
///
/// # Errors
/// That it could not be found out; that there is no way to it is none.
pub(super) fn is_own(address: SocketAddr) -> Result<bool> {
    match source(address) {
        Ok(source) => Ok(source == address.ip()),
        Err(error) => match error.kind() {
            ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::PermissionDenied => {
                Ok(false)
            }
            // No address of this kind is this machine's.
            _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Whether there is a way to this address.
pub(super) fn has_route(address: SocketAddr) -> bool {
    source(address).is_ok()
}

/// The address that this machine would speak from.
fn source(to: SocketAddr) -> Result<IpAddr> {
    let any = match to {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}
