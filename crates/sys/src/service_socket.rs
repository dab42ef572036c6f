//! Sockets through which host services are made available to the programs of a sandbox. They are created inside, so
//! that they belong to its network and its file system, whichever process holds them. No allocation.

use super::SysResult;
use super::net::{self, IpFamily};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, UnixAddr, bind, listen, socket,
};
use std::ffi::CStr;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

/// A non-blocking unix socket that listens at this path.
///
/// # Errors
/// EADDRINUSE; ENAMETOOLONG for more than 107 bytes; those of the path.
pub fn listen_at(path: &CStr) -> SysResult<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    bind(made.as_raw_fd(), &UnixAddr::new(path.to_bytes())?)?;
    listen(&made, Backlog::MAXCONN)?;
    Ok(made)
}

/// A non-blocking socket that listens on this port of 127.0.0.1 in the current network namespace.
///
/// # Errors
/// EADDRINUSE; EACCES for a port below 1024 without CAP_NET_BIND_SERVICE over the namespace.
pub fn listen_on_loopback(port: u16) -> SysResult<OwnedFd> {
    let made = net::stream_socket(IpFamily::V4)?;
    bind(made.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)))?;
    listen(&made, Backlog::MAXCONN)?;
    Ok(made)
}
