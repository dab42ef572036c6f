//! One connection of the host to a published port.
//!
//! ```text
//! Wanting(IPv4) ── a socket of the sandbox's network ──> Dialling ──> Open
//!       ^ 127.0.0.1 does not answer: [::1], and then it is reset
//! ```
//! Nothing is read of it before a server inside has taken it.

use super::super::dial::{self, Dialled};
use super::super::pump::{Flow, Pump, Room, exchange};
use crate::sys::Errno;
use crate::sys::net::Family;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{SockaddrStorage, connect};
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a server inside may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What it needs to go on.
#[derive(Debug)]
pub(super) enum Need {
    /// That something happens on one of its streams.
    Events,
    /// Another turn: it could move more.
    Turn,
    /// A socket of the sandbox's network.
    Socket(Family),
    /// Nothing: it is over.
    Nothing,
    /// Nothing: nobody inside has taken it, and why.
    Nobody(String),
}

#[derive(Debug)]
enum State {
    Wanting(Family),
    Dialling(TcpStream, Family),
    Open(TcpStream),
}

/// A connection of the host.
#[derive(Debug)]
pub(super) struct Caller {
    client: TcpStream,
    inner: Token,
    port: u16,
    state: State,
    until: Instant,
    /// Why the first address did not answer.
    failure: Option<String>,
    inward: Pump,
    back: Pump,
    broken: bool,
}

impl Caller {
    /// Takes a connection over that is for this port inside.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(
        mut client: TcpStream,
        port: u16,
        registry: &Registry,
        (outer, inner): (Token, Token),
    ) -> Result<Self> {
        dial::to_host(&client);
        registry.register(&mut client, outer, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Caller {
            client,
            inner,
            port,
            state: State::Wanting(Family::Four),
            until: Instant::now() + PATIENCE,
            failure: None,
            inward: Pump::default(),
            back: Pump::default(),
            broken: false,
        })
    }

    /// When it has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Wanting(_) | State::Dialling(..) => Some(self.until),
            State::Open(_) => None,
        }
    }

    /// Whether something that a server has said may still be on its way.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(self.state, State::Open(_)) && !self.back.is_over()
    }

    /// Goes as far as it goes now.
    pub(super) fn go_on(&mut self, room: &mut Room) -> Need {
        if self.deadline().is_some_and(|until| until <= Instant::now()) {
            return self.nobody(format!("no answer in {} seconds", PATIENCE.as_secs()));
        }
        let went = match &self.state {
            State::Wanting(family) => Ok(Need::Socket(*family)),
            State::Dialling(stream, _) => match dial::progress(stream) {
                Dialled::Waits => Ok(Need::Events),
                // A connection to a port that nobody has may be given that very port to come from, and then it
                // speaks to itself (RFC 9293, 3.5, simultaneous open).
                Dialled::Stands if stream.local_addr().ok() == stream.peer_addr().ok() => {
                    Ok(self.failed(Errno::ECONNREFUSED.desc().to_owned()))
                }
                Dialled::Stands => self.open(room),
                Dialled::Failed(error) => Ok(self.failed(match error.raw_os_error() {
                    Some(errno) => Errno::from_raw(errno).desc().to_owned(),
                    None => error.to_string(),
                })),
            },
            State::Open(_) => self.relay(room),
        };
        went.unwrap_or_else(|_| {
            self.broken = true;
            Need::Nothing
        })
    }

    /// Calls the server with this socket.
    pub(super) fn call(&mut self, socket: OwnedFd, registry: &Registry) -> Need {
        let State::Wanting(family) = self.state else { return Need::Events };
        let at = match family {
            Family::Four => IpAddr::from(Ipv4Addr::LOCALHOST),
            Family::Six => IpAddr::from(Ipv6Addr::LOCALHOST),
        };
        let at = SockaddrStorage::from(SocketAddr::new(at, self.port));
        match connect(socket.as_raw_fd(), &at) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(errno) => return self.failed(errno.desc().to_owned()),
        }
        let mut stream = TcpStream::from_std(socket.into());
        dial::to_program(&stream);
        match registry.register(&mut stream, self.inner, Interest::READABLE | Interest::WRITABLE) {
            Ok(()) => self.state = State::Dialling(stream, family),
            Err(error) => return self.nobody(error.to_string()),
        }
        Need::Events
    }

    /// This address does not answer: the next one, where there is one.
    pub(super) fn failed(&mut self, why: String) -> Need {
        let family = match self.state {
            State::Wanting(family) | State::Dialling(_, family) => family,
            State::Open(_) => return Need::Nothing,
        };
        let why = self.failure.take().unwrap_or(why);
        match family {
            Family::Four => {
                self.failure = Some(why);
                self.state = State::Wanting(Family::Six);
                Need::Socket(Family::Six)
            }
            Family::Six => self.nobody(why),
        }
    }

    fn nobody(&mut self, why: String) -> Need {
        self.broken = true;
        Need::Nobody(why)
    }

    fn open(&mut self, room: &mut Room) -> Result<Need> {
        let State::Dialling(stream, _) = std::mem::replace(&mut self.state, State::Wanting(Family::Six))
        else {
            return Ok(Need::Events);
        };
        self.state = State::Open(stream);
        self.relay(room)
    }

    fn relay(&mut self, room: &mut Room) -> Result<Need> {
        let State::Open(server) = &self.state else { return Ok(Need::Events) };
        let pumps = (&mut self.inward, &mut self.back);
        let went = exchange(pumps, (&self.client, server), false, room)?;
        self.broken |= went == Flow::Refused;
        Ok(match went {
            Flow::Refused | Flow::Over => Need::Nothing,
            Flow::Goes => Need::Turn,
            Flow::Waits => Need::Events,
        })
    }

    /// Its streams end; one that broke is reset on both sides.
    pub(super) fn end(self) {
        if self.broken {
            dial::reset(self.client);
            if let State::Open(server) = self.state {
                dial::reset(server);
            }
        }
    }
}
