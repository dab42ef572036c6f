//! The sockets of the host that published ports are: there before the sandbox is, so that a port in use is an error
//! before anything runs, and gone with its supervisor.

use super::Published;
use crate::error::{Code, Error, Result};
use crate::spec::Publish;
use crate::sys::Errno;
use nix::sys::socket::sockopt::{Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

/// How often a port is looked for that is free on both addresses of the loopback.
const TRIES: usize = 16;

/// A socket of the host, and the port inside that it leads to.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) at: SocketAddr,
    pub(super) port: u16,
    /// Nobody named this port of the host: it has to be told.
    pub(super) chosen: bool,
}

/// The published ports of a sandbox that is about to start.
#[derive(Debug, Default)]
pub struct Listeners(pub(super) Vec<Listener>);

impl Listeners {
    /// Whether nothing is published.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each port with its socket, and whether saggar chose its number.
    pub fn into_parts(self) -> impl Iterator<Item = (Published, bool, OwnedFd)> {
        self.0.into_iter().map(|Listener { socket, at, port, chosen }| {
            (Published { address: at, to: port }, chosen, socket.into())
        })
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Code::Exists`] for one in use, [`Code::System`] for one that cannot be had, each with the cure.
    pub fn bind<'a>(published: impl Iterator<Item = &'a Publish>) -> Result<Self> {
        let mut listeners = Vec::new();
        for publish in published {
            listeners.extend(one(publish).map_err(|(at, errno)| refused(publish, at, errno))?);
        }
        Ok(Listeners(listeners))
    }
}

type Failure = (SocketAddr, Errno);

/// The sockets of one published port.
fn one(publish: &Publish) -> Result<Vec<Listener>, Failure> {
    let mut tries = if publish.host_port == 0 { TRIES } else { 1 };
    loop {
        tries -= 1;
        match at_all(publish) {
            // The port that was free on one address is not on the other.
            Err((_, Errno::EADDRINUSE)) if tries > 0 => {}
            other => return other,
        }
    }
}

/// At each of its addresses the same port; of the loopback's, those that this host has.
fn at_all(publish: &Publish) -> Result<Vec<Listener>, Failure> {
    let (mut made, mut absent, mut chosen): (Vec<Listener>, _, _) = (Vec::new(), None, publish.host_port);
    for mut at in publish.addresses() {
        at.set_port(chosen);
        match open(at) {
            Ok(socket) => {
                let at = socket.local_addr().unwrap_or(at);
                chosen = at.port();
                made.push(Listener { socket, at, port: publish.port, chosen: publish.host_port == 0 });
            }
            Err(errno @ (Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT)) => absent = Some((at, errno)),
            Err(errno) => return Err((at, errno)),
        }
    }
    match absent {
        Some(failure) if made.is_empty() => Err(failure),
        _ => Ok(made),
    }
}

fn open(at: SocketAddr) -> Result<TcpListener, Errno> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let made = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    // What the last sandbox has spoken with is no reason to wait.
    setsockopt(&made, ReuseAddr, &true)?;
    if at.is_ipv6() {
        setsockopt(&made, Ipv6V6Only, &true)?;
    }
    bind(made.as_raw_fd(), &SockaddrStorage::from(at))?;
    listen(&made, Backlog::MAXCONN)?;
    Ok(made.into())
}

fn refused(publish: &Publish, at: SocketAddr, errno: Errno) -> Error {
    let (port, address) = (at.port(), at.ip());
    let error = |code, why: String| Error::new(code, format!("publish {publish}: {why}"));
    match errno {
        Errno::EADDRINUSE => error(Code::Exists, format!("port {port} of {address} is in use"))
            .hint("choose another HOSTPORT, or 0 for any free one; ss -ltnp says who listens there"),
        Errno::EACCES => error(Code::System, format!("port {port} is not for an ordinary user"))
            .hint("choose a HOSTPORT from 1024 on, or lower sysctl net.ipv4.ip_unprivileged_port_start"),
        Errno::EADDRNOTAVAIL | Errno::EAFNOSUPPORT => {
            error(Code::System, format!("this host has no address {address}"))
                .hint("ip addr shows the addresses of the host; without one it is loopback")
        }
        other => error(Code::System, format!("listen at {at}: {}", other.desc())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(text: &str) -> Result<Listeners> {
        Listeners::bind(std::iter::once(&text.parse().unwrap()))
    }

    #[test]
    fn without_an_address_it_is_the_loopback_alone_with_one_port() {
        let listeners = bind("0:3000").unwrap();
        let ports: Vec<u16> = listeners.0.iter().map(|listener| listener.at.port()).collect();
        assert!(ports.iter().all(|port| *port != 0 && *port == ports[0]), "{ports:?}");
        for listener in &listeners.0 {
            assert_eq!(listener.socket.local_addr().unwrap(), listener.at);
            assert!(listener.at.ip().is_loopback() && listener.port == 3000 && listener.chosen);
        }
    }

    #[test]
    fn a_port_in_use_is_named_with_the_cure() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = bind(&format!("{port}:3000")).unwrap_err();
        assert_eq!(error.to_string(), format!("publish {port}:3000: port {port} of 127.0.0.1 is in use"));
        assert!(error.hint_text().is_some_and(|hint| hint.contains("HOSTPORT, or 0")));
        drop(taken);
        bind(&format!("{port}:3000")).unwrap();
    }

    #[test]
    fn an_address_of_another_host_is_refused() {
        let error = bind("192.0.2.1:0:3000").unwrap_err();
        assert_eq!(error.to_string(), "publish 192.0.2.1:0:3000: this host has no address 192.0.2.1");
    }
}
