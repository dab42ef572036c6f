//! Socket families, and services of the host. A socket is created and not used; [`super::super::harness`] opens the
//! services for these attempts.

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary, ContainmentRule, PolicyGrant};
use super::{address_of, discard_value};
use crate::sys::Errno;
use crate::sys::disposable_child::DisposableChild;
use std::io::Error;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::time::Duration;

/// IPPROTO_MPTCP.
const MPTCP: i32 = 262;

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("vsock", "Make a socket to the hypervisor", |child, _| {
        socket(child, libc::AF_VSOCK, libc::SOCK_STREAM, 0)
    }),
    new("packet", "Make a socket that forges frames", |child, _| {
        socket(child, libc::AF_PACKET, libc::SOCK_RAW, 0)
    }),
    new("raw", "Make a raw socket", |child, _| {
        socket(child, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
    }),
    new("raw-6", "Make a raw socket of IPv6", |child, _| {
        socket(child, libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6)
    }),
    new("multipath", "Make a multipath TCP socket", |child, _| {
        socket(child, libc::AF_INET, libc::SOCK_STREAM, MPTCP)
    }),
    new("alg", "Make a socket of the kernel's cryptography", |child, _| {
        socket(child, libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
    }),
    new("xdp", "Make an XDP socket", |child, _| socket(child, libc::AF_XDP, libc::SOCK_RAW, 0)),
    new("key", "Make a socket of IPsec keys", |child, _| socket(child, libc::AF_KEY, libc::SOCK_RAW, 2)),
    new("netlink-netfilter", "Make a netlink socket of packet filters", |child, _| netlink(child, 12)),
    new("netlink-generic", "Make a generic netlink socket", |child, _| netlink(child, 16)),
    new("netlink-uevent", "Make a netlink socket of device events", |child, _| netlink(child, 15)),
    new("netlink-audit", "Make a netlink socket of the audit log", |child, _| netlink(child, 9)),
    new("netlink-diag", "Make a netlink socket that lists sockets", |child, _| netlink(child, 4)),
    new("netlink-xfrm", "Make a netlink socket of IPsec", |child, _| netlink(child, 6)),
    new("tcp-protocol-module", "Load a protocol over TCP", |child, _| {
        let made = child.call(libc::SYS_socket, &[2, 1, 0])?;
        discard_value(child.call(libc::SYS_setsockopt, &[made.unsigned_abs(), 6, 31, address_of(c"tls"), 3]))
    })
    .rule(ContainmentRule::AllExcept(&[Errno::ENOTCONN])),
    new("interface", "Change an interface that does not exist", |child, _| {
        let made = child.call(libc::SYS_socket, &[2, 2, 0])?;
        let mut request = [0_u8; 40];
        request[..11].copy_from_slice(b"saggar-none");
        // SIOCSIFFLAGS.
        discard_value(child.call(libc::SYS_ioctl, &[made.unsigned_abs(), 0x8914, address_of(&request)]))
    })
    .rule(ContainmentRule::Denied),
    service("host-loopback", "Reach a server on the host's loopback", |_, scene| {
        tcp((Ipv4Addr::LOCALHOST, scene.tcp.ok_or(AttemptFailure::NotTried)?).into())
    })
    .grant(PolicyGrant::HostNetwork),
    service("host-loopback-6", "Reach one over IPv6", |_, scene| {
        tcp((Ipv6Addr::LOCALHOST, scene.tcp6.ok_or(AttemptFailure::NotTried)?).into())
    })
    .grant(PolicyGrant::HostNetwork),
    Attempt::new(
        "host-abstract-socket",
        Boundary::LandlockScope,
        "Reach an abstract unix socket of the host",
        |_, scene| {
            let name = UnixAddress::from_abstract_name(&scene.nonce).map_err(|_| AttemptFailure::NotTried)?;
            UnixStream::connect_addr(&name).map(drop).map_err(error)
        },
    ),
    Attempt::new(
        "host-unix-socket",
        Boundary::MountNamespace,
        "Reach a unix socket of the host by its path",
        |_, scene| UnixStream::connect(scene.secret.with_file_name("socket")).map(drop).map_err(error),
    ),
    Attempt::new(
        "host-bus",
        Boundary::MountNamespace,
        "Reach the system bus, containerd or Docker",
        |_, _| {
            const PATHS: [&str; 4] = [
                "/run/dbus/system_bus_socket",
                "/run/containerd/containerd.sock",
                "/run/docker.sock",
                "/run/systemd/private",
            ];
            match PATHS.iter().map(UnixStream::connect).find(Result::is_ok) {
                Some(_) => Ok(()),
                None => Err(AttemptFailure::NoEffect),
            }
        },
    ),
    service("host-interfaces", "See an interface of the host", |_, _| {
        let interfaces =
            std::fs::read_to_string("/proc/self/net/dev").map_err(|_| AttemptFailure::NotTried)?;
        let mut names = interfaces.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim()));
        if names.any(|name| name.starts_with("eth") || name.starts_with("en") || name.starts_with("wl")) {
            Ok(())
        } else {
            Err(AttemptFailure::NoEffect)
        }
    })
    .grant(PolicyGrant::HostNetwork),
];

type SocketAttemptFn = fn(&DisposableChild, &ProbeContext) -> AttemptResult;

const fn new(name: &'static str, does: &'static str, run: SocketAttemptFn) -> Attempt {
    Attempt::new(name, Boundary::Seccomp, does, run)
}

const fn service(name: &'static str, does: &'static str, run: SocketAttemptFn) -> Attempt {
    Attempt::new(name, Boundary::NetworkNamespace, does, run)
}

fn socket(child: &DisposableChild, family: i32, kind: i32, protocol: i32) -> AttemptResult {
    let arguments = [family, kind, protocol].map(|number| u64::from(number.unsigned_abs()));
    discard_value(child.call(libc::SYS_socket, &arguments))
}

fn netlink(child: &DisposableChild, protocol: i32) -> AttemptResult {
    socket(child, libc::AF_NETLINK, libc::SOCK_RAW, protocol)
}

fn tcp(address: SocketAddr) -> AttemptResult {
    TcpStream::connect_timeout(&address, Duration::from_secs(2)).map(drop).map_err(error)
}

fn error(error: Error) -> AttemptFailure {
    error
        .raw_os_error()
        .map_or(AttemptFailure::NoEffect, |number| AttemptFailure::Error(Errno::from_raw(number)))
}
