//! The network namespace of a sandbox: its loopback interface and its sockets.

use super::{SysResult, call_fd, check};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// IFF_UP and IFF_RUNNING: both fit in the short field of ifreq.
const UP: libc::c_short = 0x1 | 0x40;

/// A family of internet addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The value in a message between processes of saggar.
impl From<IpFamily> for u32 {
    fn from(family: IpFamily) -> u32 {
        match family {
            IpFamily::V4 => 4,
            IpFamily::V6 => 6,
        }
    }
}

impl From<u32> for IpFamily {
    fn from(word: u32) -> IpFamily {
        if word == 6 { IpFamily::V6 } else { IpFamily::V4 }
    }
}

/// A non-blocking stream socket. It belongs permanently to the current network namespace.
///
/// # Errors
/// Those of socket(2): EAFNOSUPPORT for a family that the kernel does not support.
pub fn stream_socket(family: IpFamily) -> SysResult<OwnedFd> {
    let family = match family {
        IpFamily::V4 => AddressFamily::Inet,
        IpFamily::V6 => AddressFamily::Inet6,
    };
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

/// Sets `lo` up in the current network namespace (netdevice(7)); the kernel then assigns 127.0.0.1 and ::1 to it.
/// Returns a socket of that namespace.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN over the namespace.
pub fn loopback_up() -> SysResult<OwnedFd> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = UP;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which lives until the call returns.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check(done.into())?;
    Ok(socket)
}

/// A route socket of the current network namespace (rtnetlink(7)).
///
/// # Errors
/// Those of socket(2).
pub fn route_socket() -> SysResult<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Netlink, SockType::Raw, flags, nix::sys::socket::SockProtocol::NetlinkRoute)
}

/// The network namespace that a socket belongs to (SIOCGSKNS, Linux 4.9).
///
/// # Errors
/// EPERM without CAP_NET_ADMIN over the namespace.
pub fn namespace_of(socket: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    const SIOCGSKNS: libc::Ioctl = 0x894c;
    call_fd!(libc::SYS_ioctl, socket.as_raw_fd(), SIOCGSKNS, 0usize)
}
