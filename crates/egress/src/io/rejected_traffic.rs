//! Traffic that no socket accepts: other ports, datagrams, and ports of loopback. The kernel rejects it at once, and a
//! sniffer in the sandbox ([`saggar_sys::reject_sniffer`]) receives the rejection, which contains the destination.
//!
//! The received packets are the kernel's own. A program can cause them and cannot write one. When the rejection of a
//! connection arrives, the kernel no longer knows its socket ([`super::recent_calls`] may know the program). The
//! socket of a datagram is still known.

use super::MAX_PER_SOCKET;
use super::denials::{DenialKind, NetworkDenial};
use super::socket_owner;
use crate::address::canonical;
use crate::stand_in_table::StandInTable;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{SockaddrStorage, recvfrom};
use saggar_policy::hosts::{DNS_PORT, HostRules, HostVerdict};
use saggar_sys::net::IpFamily;
use saggar_sys::reject_sniffer::{RejectKind, SNAPSHOT_LEN};
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Sizes in bytes of an IPv4 header without options, an IPv6 header, and an ICMP or ICMPv6 header.
const IPV4_HEADER_SIZE: usize = 20;
const IPV6_HEADER_SIZE: usize = 40;
const ICMP_HEADER_SIZE: usize = 8;

/// A rejected connection or datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RejectedTraffic {
    /// The destination.
    target: SocketAddr,
    /// The program's address, if its socket may still exist.
    source: Option<SocketAddr>,
    /// Whether it was a connection.
    is_connection: bool,
}

/// Receives the kernel's rejections.
#[derive(Debug)]
pub(super) struct RejectedTrafficSniffer {
    socket: OwnedFd,
    family: IpFamily,
    answer: RejectKind,
}

impl RejectedTrafficSniffer {
    /// Takes over the socket.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(
        socket: OwnedFd,
        (family, answer): (IpFamily, RejectKind),
        registry: &Registry,
        token: Token,
    ) -> Result<Self> {
        registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        Ok(RejectedTrafficSniffer { socket, family, answer })
    }

    /// The next rejection; `None` if there is none now.
    pub(super) fn next_rejected(&self) -> Option<RejectedTraffic> {
        let mut packet = [0; SNAPSHOT_LEN];
        for _ in 0..MAX_PER_SOCKET {
            let (length, from) = recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut packet).ok()?;
            let packet = packet.get(..length)?;
            let unheard = match (self.answer, self.family) {
                (RejectKind::Reset, IpFamily::V4) => parse_reset_v4(packet),
                (RejectKind::Reset, IpFamily::V6) => parse_reset_v6(packet, from),
                (RejectKind::Unreachable, IpFamily::V4) => parse_unreachable_v4(packet),
                (RejectKind::Unreachable, IpFamily::V6) => parse_unreachable_v6(packet),
            };
            if unheard.is_some() {
                return unheard;
            }
        }
        None
    }
}

impl RejectedTraffic {
    /// The destination; an IPv4-mapped address as IPv4.
    pub(super) fn destination(&self) -> SocketAddr {
        SocketAddr::new(canonical(self.target.ip()), self.target.port())
    }

    /// The program's socket, as far as it is known.
    pub(super) fn client_socket(&self) -> socket_owner::SocketOwnerQuery {
        self.source.map_or_else(
            || socket_owner::SocketOwnerQuery::Unconnected(self.destination()),
            socket_owner::SocketOwnerQuery::Datagram,
        )
    }

    /// The denial to report. `None` for the relay's own DNS answers to a program that no longer waits for them, and
    /// for calls to `published` ports, which their caller reports.
    pub(super) fn denial(
        &self,
        rules: &HostRules,
        names: &StandInTable,
        published: &[u16],
    ) -> Option<NetworkDenial> {
        let (address, port) = (self.destination().ip(), self.target.port());
        if self.source.is_some_and(|from| from.port() == DNS_PORT) {
            return None;
        }
        if address.is_loopback() {
            // Programs poll whether their own server is up.
            let why = "nothing inside listens there, and the loopback of the host is not reached".into();
            let refusal = NetworkDenial {
                kind: DenialKind::Unreachable,
                why,
                is_usual: true,
                ..NetworkDenial::default()
            };
            let is_published = self.is_connection && published.contains(&port);
            return (!is_published).then_some(NetworkDenial {
                address: Some(address),
                port: Some(port),
                ..refusal
            });
        }
        let name = names.name_of(address).map(str::to_owned);
        let (why, rule) = match self.is_connection {
            true => rejection_reason(rules, name.as_deref(), address, port),
            false => ("of UDP only DNS is served".into(), None),
        };
        let address = Some(address).filter(|_| name.is_none());
        Some(NetworkDenial { name, address, port: Some(port), why, rule, ..NetworkDenial::default() })
    }
}

/// Why a connection to this port is rejected, and the rule for it.
fn rejection_reason(
    rules: &HostRules,
    name: Option<&str>,
    address: IpAddr,
    port: u16,
) -> (String, Option<String>) {
    let verdict = match name.and_then(super::parse_name) {
        Some(name) => rules.check_name_port(&name, port),
        None => rules.check_address_port(address, port),
    };
    match verdict {
        HostVerdict::Denied(rule) => ("it is denied".into(), Some(rule.to_string())),
        _ => ("no rule names this port".into(), None),
    }
}

/// Parses a reset with its IPv4 header; its source is the called address.
fn parse_reset_v4(packet: &[u8]) -> Option<RejectedTraffic> {
    let (header, rest) = split_ipv4_header(packet)?;
    let to = SocketAddr::new(ipv4_at(header, 12)?.into(), port_at(rest, 0)?);
    Some(RejectedTraffic { target: to, source: None, is_connection: true })
}

/// Parses a reset without its IPv6 header; its source address comes from the socket.
fn parse_reset_v6(packet: &[u8], from: Option<SockaddrStorage>) -> Option<RejectedTraffic> {
    let from = from?;
    let to = SocketAddr::new(from.as_sockaddr_in6()?.ip().into(), port_at(packet, 0)?);
    Some(RejectedTraffic { target: to, source: None, is_connection: true })
}

/// Parses an ICMP message with its IPv4 header; it contains the rejected datagram.
fn parse_unreachable_v4(packet: &[u8]) -> Option<RejectedTraffic> {
    let (_, message) = split_ipv4_header(packet)?;
    let (header, datagram) = split_ipv4_header(message.get(ICMP_HEADER_SIZE..)?)?;
    let ends = (ipv4_at(header, 12)?.into(), ipv4_at(header, 16)?.into());
    from_datagram(*header.get(9)?, ends, datagram)
}

/// Parses an ICMPv6 message, which contains the rejected datagram.
fn parse_unreachable_v6(packet: &[u8]) -> Option<RejectedTraffic> {
    let (header, datagram) = packet.get(ICMP_HEADER_SIZE..)?.split_at_checked(IPV6_HEADER_SIZE)?;
    let ends = (ipv6_at(header, 8)?.into(), ipv6_at(header, 24)?.into());
    from_datagram(*header.get(6)?, ends, datagram)
}

fn from_datagram(protocol: u8, (from, to): (IpAddr, IpAddr), datagram: &[u8]) -> Option<RejectedTraffic> {
    let from = Some(SocketAddr::new(from, port_at(datagram, 0)?));
    let to = SocketAddr::new(to, port_at(datagram, 2)?);
    (i32::from(protocol) == libc::IPPROTO_UDP).then_some(RejectedTraffic {
        target: to,
        source: from,
        is_connection: false,
    })
}

/// Splits an IPv4 header from the bytes after it.
fn split_ipv4_header(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(packet.first()? & 0xf) * 4;
    packet.split_at_checked(length.max(IPV4_HEADER_SIZE))
}

fn ipv4_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?))
}

fn ipv6_at(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?))
}

fn port_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header with four bytes of options, from 192.0.2.1 to 192.0.2.2.
    fn header(protocol: u8) -> Vec<u8> {
        let mut header = vec![0x46, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        header.extend([192, 0, 2, 1, 192, 0, 2, 2, 1, 1, 1, 0]);
        header
    }

    const PORTS: [u8; 4] = [0, 9, 1, 187];

    #[test]
    fn packets_say_whom_a_program_meant() {
        let reset = [header(6), PORTS.to_vec()].concat();
        let (one, other) = ("192.0.2.1:9".parse().unwrap(), "192.0.2.2:443".parse().unwrap());
        assert_eq!(
            parse_reset_v4(&reset),
            Some(RejectedTraffic { target: one, source: None, is_connection: true })
        );
        let said = [header(1), vec![3, 3, 0, 0, 0, 0, 0, 0], header(17), PORTS.to_vec()].concat();
        let unheard = RejectedTraffic { target: other, source: Some(one), is_connection: false };
        assert_eq!(parse_unreachable_v4(&said), Some(unheard));
        let mut six = vec![1, 4, 0, 0, 0, 0, 0, 0, 0x60, 0, 0, 0, 0, 8, 17, 64];
        six.extend(Ipv6Addr::LOCALHOST.octets());
        six.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        six.extend(PORTS);
        let (from, to) = (Some("[::1]:9".parse().unwrap()), "[2001:db8::1]:443".parse().unwrap());
        assert_eq!(
            parse_unreachable_v6(&six),
            Some(RejectedTraffic { source: from, target: to, is_connection: false })
        );
        for packet in [&reset, &said, &six] {
            for length in 0..packet.len() {
                // Truncated at any length, the packet is rejected without a panic.
                let cut = &packet[..length];
                assert_eq!((parse_unreachable_v4(cut), parse_unreachable_v6(cut)), (None, None));
            }
        }
    }
}
