//! Transparent redirection of all network traffic in a namespace that has only `lo`: every address is local, and
//! listening sockets accept connections to any of them.
//!
//! A local route for all addresses of a family (ip-route(8), type local) delivers every packet within the namespace;
//! getsockname(2) of an accepted connection then returns the address that the program connected to. The path has no
//! loss and no congestion, so connections over this route use reno, whatever congestion control the host uses (bbr, for
//! example, adds pacing).

use super::{Errno, SysResult};
use nix::sys::socket::sockopt::{IpFreebind, Ipv4PacketInfo, Ipv6RecvPacketInfo, Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind, listen, recv, send,
    setsockopt, socket,
};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Sizes in bytes of `struct nlmsghdr`, of `struct rtmsg`, of an attribute that holds an interface index, and of the
/// metrics attribute with one nested attribute (rtnetlink(7)).
const HEADER: usize = 16;
const ROUTE: usize = 12;
const DEVICE: usize = 8;
const METRICS: usize = 16;
const REQUEST: usize = HEADER + ROUTE + DEVICE + METRICS;

/// linux/rtnetlink.h
const RTAX_CC_ALGO: u16 = 16;
/// The congestion control that every kernel supports. Without packet loss it does not limit the rate.
const RENO: &[u8; 5] = b"reno\0";

/// The index of `lo` in every network namespace (linux/net/loopback.c).
const LO: u32 = 1;

/// The protocol of a redirecting socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SocketProtocol {
    /// Accepts TCP connections.
    Tcp,
    /// Receives UDP datagrams, each with its destination address.
    Udp,
}

/// Makes every address of the family local in the namespace of the route socket `route`.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN over the namespace; for IPv6 the error of a kernel that does not support it.
pub fn make_all_addresses_local(route: BorrowedFd<'_>, family: AddressFamily) -> SysResult<()> {
    send(route.as_raw_fd(), &request(family), MsgFlags::empty())?;
    // The acknowledgement repeats the request; only its beginning is needed.
    let mut answer = [0; HEADER + 4];
    recv(route.as_raw_fd(), &mut answer, MsgFlags::MSG_TRUNC)?;
    let [.., a, b, c, d] = answer;
    match i32::from_ne_bytes([a, b, c, d]) {
        0 => Ok(()),
        errno => Err(Errno::from_raw(-errno)),
    }
}

/// RTM_NEWROUTE for all addresses of the family, in the local table.
// The constants fit in the fields of the message.
#[allow(clippy::cast_possible_truncation)]
fn request(family: AddressFamily) -> [u8; REQUEST] {
    const FLAGS: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let mut message = [0; REQUEST];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(slot) = message.get_mut(at..at + bytes.len()) {
            slot.copy_from_slice(bytes);
        }
    };
    put(0, &(REQUEST as u32).to_ne_bytes());
    put(4, &libc::RTM_NEWROUTE.to_ne_bytes());
    put(6, &FLAGS.to_ne_bytes());
    put(HEADER, &[family as u8]);
    put(HEADER + 4, &[libc::RT_TABLE_LOCAL, libc::RTPROT_BOOT, libc::RT_SCOPE_HOST, libc::RTN_LOCAL]);
    let device = HEADER + ROUTE;
    put(device, &(DEVICE as u16).to_ne_bytes());
    put(device + 2, &libc::RTA_OIF.to_ne_bytes());
    put(device + 4, &LO.to_ne_bytes());
    let metrics = device + DEVICE;
    put(metrics, &(METRICS as u16).to_ne_bytes());
    put(metrics + 2, &libc::RTA_METRICS.to_ne_bytes());
    put(metrics + 4, &(4 + RENO.len() as u16).to_ne_bytes());
    put(metrics + 6, &RTAX_CC_ALGO.to_ne_bytes());
    put(metrics + 8, RENO);
    message
}

/// A non-blocking socket on this port of every address of the current network namespace, for both families if the
/// kernel supports both.
///
/// # Errors
/// EADDRINUSE; EACCES for a port below 1024 without CAP_NET_BIND_SERVICE over the namespace.
pub fn listen_everywhere(kind: SocketProtocol, port: u16) -> SysResult<OwnedFd> {
    let socket_kind = match kind {
        SocketProtocol::Tcp => SockType::Stream,
        SocketProtocol::Udp => SockType::Datagram,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = match socket(AddressFamily::Inet6, socket_kind, flags, None) {
        Ok(made) => {
            setsockopt(&made, Ipv6V6Only, &false)?;
            setsockopt(&made, ReuseAddr, &true)?;
            bind(made.as_raw_fd(), &SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)))?;
            if kind == SocketProtocol::Udp {
                setsockopt(&made, Ipv6RecvPacketInfo, &true)?;
                // The socket sends from addresses that are local only by a route.
                setsockopt(&made, IpFreebind, &true)?;
            }
            made
        }
        Err(Errno::EAFNOSUPPORT) => {
            let made = socket(AddressFamily::Inet, socket_kind, flags, None)?;
            setsockopt(&made, ReuseAddr, &true)?;
            bind(made.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)))?;
            if kind == SocketProtocol::Udp {
                setsockopt(&made, Ipv4PacketInfo, &true)?;
            }
            made
        }
        Err(errno) => return Err(errno),
    };
    if kind == SocketProtocol::Tcp {
        listen(&made, Backlog::MAXCONN)?;
    }
    Ok(made)
}
