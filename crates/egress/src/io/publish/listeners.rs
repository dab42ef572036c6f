//! The listening sockets of published ports on the host. They are bound before the sandbox starts, so that a port in
//! use is an error before any program runs. They are closed when the supervisor exits.

use super::PortForward;
use nix::sys::socket::sockopt::{Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
};
use saggar_policy::PublishedPort;
use saggar_sys::Errno;
use saggar_sys::error::{Code, Error, Result};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

/// Maximum number of attempts to find a port that is free on both loopback addresses.
const MAX_TRIES: usize = 16;

/// A listening socket on the host, and the port in the sandbox that it forwards to.
#[derive(Debug)]
pub(super) struct PublishedListener {
    pub(super) socket: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) port: u16,
    /// Whether saggar chose the port number, which must then be reported.
    pub(super) is_port_chosen: bool,
}

/// The published ports of a sandbox that is about to start.
#[derive(Debug, Default)]
pub struct PublishedListeners(pub(super) Vec<PublishedListener>);

impl PublishedListeners {
    /// Whether no port is published.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each port with its socket, and whether saggar chose its number.
    pub fn into_parts(self) -> impl Iterator<Item = (PortForward, bool, OwnedFd)> {
        self.0.into_iter().map(|PublishedListener { socket, address: at, port, is_port_chosen: chosen }| {
            (PortForward { address: at, to: port }, chosen, socket.into())
        })
    }

    /// Binds the ports.
    ///
    /// # Errors
    /// [`Code::Exists`] for a port in use, [`Code::System`] for a port that cannot be bound, each with a hint.
    pub fn bind<'a>(published: impl Iterator<Item = &'a PublishedPort>) -> Result<Self> {
        let mut listeners = Vec::new();
        for publish in published {
            listeners.extend(bind_port(publish).map_err(|(at, errno)| bind_error(publish, at, errno))?);
        }
        Ok(PublishedListeners(listeners))
    }
}

type BindFailure = (SocketAddr, Errno);

/// Binds the sockets of one published port.
fn bind_port(publish: &PublishedPort) -> Result<Vec<PublishedListener>, BindFailure> {
    let mut tries = if publish.host_port == 0 { MAX_TRIES } else { 1 };
    loop {
        tries -= 1;
        match bind_addresses(publish) {
            // The port that was free on one address is in use on the other.
            Err((_, Errno::EADDRINUSE)) if tries > 0 => {}
            other => return other,
        }
    }
}

/// Binds the same port on each of its addresses; for loopback, on those that this host has.
fn bind_addresses(publish: &PublishedPort) -> Result<Vec<PublishedListener>, BindFailure> {
    let (mut made, mut absent, mut chosen): (Vec<PublishedListener>, _, _) =
        (Vec::new(), None, publish.host_port);
    for mut at in publish.host_socket_addresses() {
        at.set_port(chosen);
        match open_listener(at) {
            Ok(socket) => {
                let at = socket.local_addr().unwrap_or(at);
                chosen = at.port();
                made.push(PublishedListener {
                    socket,
                    address: at,
                    port: publish.sandbox_port,
                    is_port_chosen: publish.host_port == 0,
                });
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

fn open_listener(at: SocketAddr) -> Result<TcpListener, Errno> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let made = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    // Connections of an earlier sandbox in TIME_WAIT must not block the port.
    setsockopt(&made, ReuseAddr, &true)?;
    if at.is_ipv6() {
        setsockopt(&made, Ipv6V6Only, &true)?;
    }
    bind(made.as_raw_fd(), &SockaddrStorage::from(at))?;
    listen(&made, Backlog::MAXCONN)?;
    Ok(made.into())
}

fn bind_error(publish: &PublishedPort, at: SocketAddr, errno: Errno) -> Error {
    let (port, address) = (at.port(), at.ip());
    let error = |code, why: String| Error::new(code, format!("publish {publish}: {why}"));
    match errno {
        Errno::EADDRINUSE => error(Code::Exists, format!("port {port} of {address} is in use")).hint(
            "choose another HOSTPORT, or 0 for any free one; ss -ltnp shows which process listens there",
        ),
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

    fn bind(text: &str) -> Result<PublishedListeners> {
        PublishedListeners::bind(std::iter::once(&text.parse().unwrap()))
    }

    #[test]
    fn without_an_address_it_is_the_loopback_alone_with_one_port() {
        let listeners = bind("0:3000").unwrap();
        let ports: Vec<u16> = listeners.0.iter().map(|listener| listener.address.port()).collect();
        assert!(ports.iter().all(|port| *port != 0 && *port == ports[0]), "{ports:?}");
        for listener in &listeners.0 {
            assert_eq!(listener.socket.local_addr().unwrap(), listener.address);
            assert!(listener.address.ip().is_loopback() && listener.port == 3000 && listener.is_port_chosen);
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
