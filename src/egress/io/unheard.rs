//! Calls that nobody hears: other ports, datagrams, and ports of the loopback. The kernel answers them at once, and a
//! witness inside ([`crate::sys::unheard`]) sees its answer, which says whom the program meant.
//!
//! What comes is the kernel's own packet: a program can make it come, and has no way to write one. Of a connection the
//! kernel no longer knows whose it was when its answer is here ([`super::callers`] may); of a datagram it does.

use super::AT_ONCE;
use super::owner;
use super::refusals::{Kind, Refusal};
use crate::egress::address::plain;
use crate::egress::names::Names;
use crate::spec::policy::hosts::{DNS_PORT, Rules, Verdict};
use crate::sys::net::Family;
use crate::sys::unheard::{Answer, KEPT};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{SockaddrStorage, recvfrom};
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of an IPv4 header without options, of an IPv6 header, and of one of ICMP or ICMPv6.
const IPV4: usize = 20;
const IPV6: usize = 40;
const ICMP: usize = 8;

/// A call that nobody heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unheard {
    /// Whom it was for.
    to: SocketAddr,
    /// The program's end of it, where that is still there.
    from: Option<SocketAddr>,
    /// It was to be a connection.
    is_connection: bool,
}

/// Sees the kernel's answers.
#[derive(Debug)]
pub(super) struct Witness {
    socket: OwnedFd,
    family: Family,
    answer: Answer,
}

impl Witness {
    /// Takes the socket over.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(
        socket: OwnedFd,
        (family, answer): (Family, Answer),
        registry: &Registry,
        token: Token,
    ) -> Result<Self> {
        registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Witness { socket, family, answer })
    }

    /// The next call that nobody heard; nothing when there is none for now.
    pub(super) fn next(&self) -> Option<Unheard> {
        let mut packet = [0; KEPT];
        for _ in 0..AT_ONCE {
            let (length, from) = recvfrom::<SockaddrStorage>(self.socket.as_raw_fd(), &mut packet).ok()?;
            let packet = packet.get(..length)?;
            let unheard = match (self.answer, self.family) {
                (Answer::Reset, Family::Four) => reset_four(packet),
                (Answer::Reset, Family::Six) => reset_six(packet, from),
                (Answer::Unreachable, Family::Four) => unreachable_four(packet),
                (Answer::Unreachable, Family::Six) => unreachable_six(packet),
            };
            if unheard.is_some() {
                return unheard;
            }
        }
        None
    }
}

impl Unheard {
    /// Whom it was for; an IPv4 address as such.
    pub(super) fn to(&self) -> SocketAddr {
        SocketAddr::new(plain(self.to.ip()), self.to.port())
    }

    /// The program's socket, as far as it is known.
    pub(super) fn caller(&self) -> owner::Socket {
        self.from.map_or_else(|| owner::Socket::Caller(self.to()), owner::Socket::Datagram)
    }

    /// What there is to tell of it; nothing of our own answers to a program that no longer waits for them, nor of
    /// calls to `published` ports, which are told by who makes them.
    pub(super) fn refusal(&self, rules: &Rules, names: &Names, published: &[u16]) -> Option<Refusal> {
        let (address, port) = (self.to().ip(), self.to.port());
        if self.from.is_some_and(|from| from.port() == DNS_PORT) {
            return None;
        }
        if address.is_loopback() {
            // Programs look again and again whether a server of theirs is up.
            let why = "nothing inside listens there, and the loopback of the host is not reached".into();
            let refusal = Refusal { kind: Kind::Unreachable, why, is_usual: true, ..Refusal::default() };
            let is_published = self.is_connection && published.contains(&port);
            return (!is_published).then_some(Refusal {
                address: Some(address),
                port: Some(port),
                ..refusal
            });
        }
        let name = names.name_of(address).map(str::to_owned);
        let (why, rule) = match self.is_connection {
            true => why_not(rules, name.as_deref(), address, port),
            false => ("of UDP only DNS is served".into(), None),
        };
        let address = Some(address).filter(|_| name.is_none());
        Some(Refusal { name, address, port: Some(port), why, rule, ..Refusal::default() })
    }
}

/// Why a connection to this port finds nobody, and the rule that says so.
fn why_not(rules: &Rules, name: Option<&str>, address: IpAddr, port: u16) -> (String, Option<String>) {
    let verdict = match name.and_then(super::name_of) {
        Some(name) => rules.name(&name, port),
        None => rules.address(address, port),
    };
    match verdict {
        Verdict::Denied(rule) => ("it is denied".into(), Some(rule.to_string())),
        _ => ("no rule names this port".into(), None),
    }
}

/// A reset with its IPv4 header: it comes from whom the program called.
fn reset_four(packet: &[u8]) -> Option<Unheard> {
    let (header, rest) = four(packet)?;
    let to = SocketAddr::new(four_at(header, 12)?.into(), port_at(rest, 0)?);
    Some(Unheard { to, from: None, is_connection: true })
}

/// A reset without its IPv6 header, of which only the address is told.
fn reset_six(packet: &[u8], from: Option<SockaddrStorage>) -> Option<Unheard> {
    let from = from?;
    let to = SocketAddr::new(from.as_sockaddr_in6()?.ip().into(), port_at(packet, 0)?);
    Some(Unheard { to, from: None, is_connection: true })
}

/// An ICMP message with its IPv4 header, which holds the datagram that it answers.
fn unreachable_four(packet: &[u8]) -> Option<Unheard> {
    let (_, message) = four(packet)?;
    let (header, datagram) = four(message.get(ICMP..)?)?;
    let ends = (four_at(header, 12)?.into(), four_at(header, 16)?.into());
    of_datagram(*header.get(9)?, ends, datagram)
}

/// An ICMPv6 message, likewise.
fn unreachable_six(packet: &[u8]) -> Option<Unheard> {
    let (header, datagram) = packet.get(ICMP..)?.split_at_checked(IPV6)?;
    let ends = (six_at(header, 8)?.into(), six_at(header, 24)?.into());
    of_datagram(*header.get(6)?, ends, datagram)
}

fn of_datagram(protocol: u8, (from, to): (IpAddr, IpAddr), datagram: &[u8]) -> Option<Unheard> {
    let from = Some(SocketAddr::new(from, port_at(datagram, 0)?));
    let to = SocketAddr::new(to, port_at(datagram, 2)?);
    (i32::from(protocol) == libc::IPPROTO_UDP).then_some(Unheard { to, from, is_connection: false })
}

/// An IPv4 header, and what comes after it.
fn four(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(packet.first()? & 0xf) * 4;
    packet.split_at_checked(length.max(IPV4))
}

fn four_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?))
}

fn six_at(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
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
        assert_eq!(reset_four(&reset), Some(Unheard { to: one, from: None, is_connection: true }));
        let said = [header(1), vec![3, 3, 0, 0, 0, 0, 0, 0], header(17), PORTS.to_vec()].concat();
        let unheard = Unheard { to: other, from: Some(one), is_connection: false };
        assert_eq!(unreachable_four(&said), Some(unheard));
        let mut six = vec![1, 4, 0, 0, 0, 0, 0, 0, 0x60, 0, 0, 0, 0, 8, 17, 64];
        six.extend(Ipv6Addr::LOCALHOST.octets());
        six.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        six.extend(PORTS);
        let (from, to) = (Some("[::1]:9".parse().unwrap()), "[2001:db8::1]:443".parse().unwrap());
        assert_eq!(unreachable_six(&six), Some(Unheard { to, from, is_connection: false }));
        for packet in [&reset, &said, &six] {
            for length in 0..packet.len() {
                // Cut anywhere, it is nothing, and no harm.
                let cut = &packet[..length];
                assert_eq!((unreachable_four(cut), unreachable_six(cut)), (None, None));
            }
        }
    }
}
