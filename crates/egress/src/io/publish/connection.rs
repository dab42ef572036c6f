//! One connection from the host to a published port.
//!
//! ```text
//! NeedsSocket(IPv4) ── a socket of the sandbox's network ──> Connecting ──> Open
//!       ^ 127.0.0.1 does not answer: [::1]; after that the connection is reset
//! ```
//! Nothing is read from the connection before a server in the sandbox has accepted it.

use super::super::dial::{self, ConnectProgress};
use super::super::pump::{Flow, Pump, RelayBuffer, relay_both_ways};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{SockaddrStorage, connect};
use saggar_sys::Errno;
use saggar_sys::net::IpFamily;
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time limit for a server in the sandbox to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The condition for a connection to continue.
#[derive(Debug)]
pub(super) enum PublishedConnectionNeed {
    /// An event on one of its streams.
    Events,
    /// Another turn, because it can transfer more at once.
    Turn,
    /// A socket of the sandbox's network.
    Socket(IpFamily),
    /// None: the connection has ended.
    Closed,
    /// None: no server in the sandbox accepted it; the reason.
    Unanswered(String),
}

#[derive(Debug)]
enum PublishedConnectionState {
    NeedsSocket(IpFamily),
    Connecting(TcpStream, IpFamily),
    Open(TcpStream),
}

/// A connection from the host.
#[derive(Debug)]
pub(super) struct PublishedConnection {
    client: TcpStream,
    server_token: Token,
    port: u16,
    state: PublishedConnectionState,
    deadline: Instant,
    /// Why the first address did not accept.
    failure: Option<String>,
    inbound: Pump,
    outbound: Pump,
    is_broken: bool,
}

impl PublishedConnection {
    /// Takes over a connection for this port in the sandbox.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(
        mut client: TcpStream,
        port: u16,
        registry: &Registry,
        (outer, inner): (Token, Token),
    ) -> Result<Self> {
        dial::configure_host_stream(&client);
        registry.register(&mut client, outer, Interest::READABLE | Interest::WRITABLE)?;
        Ok(PublishedConnection {
            client,
            server_token: inner,
            port,
            state: PublishedConnectionState::NeedsSocket(IpFamily::V4),
            deadline: Instant::now() + CONNECT_TIMEOUT,
            failure: None,
            inbound: Pump::default(),
            outbound: Pump::default(),
            is_broken: false,
        })
    }

    /// When the connect times out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            PublishedConnectionState::NeedsSocket(_) | PublishedConnectionState::Connecting(..) => {
                Some(self.deadline)
            }
            PublishedConnectionState::Open(_) => None,
        }
    }

    /// Whether bytes of the server may not be written to the client yet.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(self.state, PublishedConnectionState::Open(_)) && !self.outbound.is_finished()
    }

    /// Number of bytes of the server that were written to the client.
    pub(super) fn bytes_sent(&self) -> u64 {
        self.outbound.moved()
    }

    /// Advances as far as possible without blocking.
    pub(super) fn advance(&mut self, buffer: &mut RelayBuffer) -> PublishedConnectionNeed {
        if self.deadline().is_some_and(|until| until <= Instant::now()) {
            return self.give_up(format!("no answer in {} seconds", CONNECT_TIMEOUT.as_secs()));
        }
        let went = match &self.state {
            PublishedConnectionState::NeedsSocket(family) => Ok(PublishedConnectionNeed::Socket(*family)),
            PublishedConnectionState::Connecting(stream, _) => match dial::connect_progress(stream) {
                ConnectProgress::Pending => Ok(PublishedConnectionNeed::Events),
                // On a connect to a port without a listener, the kernel may choose that very port as source port. The
                // socket is then connected to itself (RFC 9293, 3.5, simultaneous open).
                ConnectProgress::Connected if stream.local_addr().ok() == stream.peer_addr().ok() => {
                    Ok(self.try_next_address(Errno::ECONNREFUSED.desc().to_owned()))
                }
                ConnectProgress::Connected => self.on_connected(buffer),
                ConnectProgress::Failed(error) => Ok(self.try_next_address(match error.raw_os_error() {
                    Some(errno) => Errno::from_raw(errno).desc().to_owned(),
                    None => error.to_string(),
                })),
            },
            PublishedConnectionState::Open(_) => self.relay(buffer),
        };
        went.unwrap_or_else(|_| {
            self.is_broken = true;
            PublishedConnectionNeed::Closed
        })
    }

    /// Connects to the server with this socket.
    pub(super) fn connect(&mut self, socket: OwnedFd, registry: &Registry) -> PublishedConnectionNeed {
        let PublishedConnectionState::NeedsSocket(family) = self.state else {
            return PublishedConnectionNeed::Events;
        };
        let at = match family {
            IpFamily::V4 => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpFamily::V6 => IpAddr::from(Ipv6Addr::LOCALHOST),
        };
        let at = SockaddrStorage::from(SocketAddr::new(at, self.port));
        match connect(socket.as_raw_fd(), &at) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(errno) => return self.try_next_address(errno.desc().to_owned()),
        }
        let mut stream = TcpStream::from_std(socket.into());
        dial::configure_program_stream(&stream);
        match registry.register(&mut stream, self.server_token, Interest::READABLE | Interest::WRITABLE) {
            Ok(()) => self.state = PublishedConnectionState::Connecting(stream, family),
            Err(error) => return self.give_up(error.to_string()),
        }
        PublishedConnectionNeed::Events
    }

    /// Continues with the next address, if there is one.
    pub(super) fn try_next_address(&mut self, why: String) -> PublishedConnectionNeed {
        let family = match self.state {
            PublishedConnectionState::NeedsSocket(family)
            | PublishedConnectionState::Connecting(_, family) => family,
            PublishedConnectionState::Open(_) => return PublishedConnectionNeed::Closed,
        };
        let why = self.failure.take().unwrap_or(why);
        match family {
            IpFamily::V4 => {
                self.failure = Some(why);
                self.state = PublishedConnectionState::NeedsSocket(IpFamily::V6);
                PublishedConnectionNeed::Socket(IpFamily::V6)
            }
            IpFamily::V6 => self.give_up(why),
        }
    }

    fn give_up(&mut self, why: String) -> PublishedConnectionNeed {
        self.is_broken = true;
        PublishedConnectionNeed::Unanswered(why)
    }

    fn on_connected(&mut self, buffer: &mut RelayBuffer) -> Result<PublishedConnectionNeed> {
        let PublishedConnectionState::Connecting(stream, _) =
            std::mem::replace(&mut self.state, PublishedConnectionState::NeedsSocket(IpFamily::V6))
        else {
            return Ok(PublishedConnectionNeed::Events);
        };
        self.state = PublishedConnectionState::Open(stream);
        self.relay(buffer)
    }

    fn relay(&mut self, buffer: &mut RelayBuffer) -> Result<PublishedConnectionNeed> {
        let PublishedConnectionState::Open(server) = &self.state else {
            return Ok(PublishedConnectionNeed::Events);
        };
        let pumps = (&mut self.inbound, &mut self.outbound);
        let went = relay_both_ways(pumps, (&self.client, server), false, buffer)?;
        self.is_broken |= matches!(went, Flow::WriterClosed | Flow::OuterReset);
        Ok(match went {
            Flow::WriterClosed | Flow::OuterReset | Flow::Finished => PublishedConnectionNeed::Closed,
            Flow::More => PublishedConnectionNeed::Turn,
            Flow::Blocked => PublishedConnectionNeed::Events,
        })
    }

    /// Closes both streams; a broken connection is reset on both sides.
    pub(super) fn close(self) {
        if self.is_broken {
            dial::reset_on_close(&self.client);
            if let PublishedConnectionState::Open(server) = self.state {
                dial::reset_on_close(&server);
            }
        }
    }
}
