//! Published ports: forwards connections to a port of the host to a server in the sandbox, on the mio loop of the
//! supervisor.
//!
//! ```text
//! a client of the host ──> PortListener ──> PublishedConnection ──> 127.0.0.1:PORT in the sandbox
//!                                                   ^ a socket that pid 1 created (SocketPool)
//! ```
//! As in the relay nothing blocks, and everything is bounded. Connections lead into the sandbox only: no process of
//! the sandbox gets a socket of the host's network, and the port of the host is not a port in the sandbox.

mod connection;
mod listeners;
mod socket_pool;

pub use listeners::PublishedListeners;

use super::MAX_PER_SOCKET;
use super::pump::RelayBuffer;
use connection::{PublishedConnection, PublishedConnectionNeed};
use mio::event::Event;
use mio::{Interest, Registry, Token};
use saggar_sys::Errno;
use saggar_sys::error::{Error, Result};
use saggar_sys::net::IpFamily;
use serde::{Deserialize, Serialize};
use socket_pool::{PooledSocket, SocketPools};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Tokens: the listeners, then two for each connection; below those of the relay.
const FIRST_TOKEN: usize = 1 << 38;
const FIRST_CONNECTION_TOKEN: usize = FIRST_TOKEN + (1 << 16);

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 512;
/// Minimum interval between reports of the same unreachable port.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The published ports of one sandbox.
#[derive(Debug)]
pub(crate) struct PortPublisher {
    ports: Vec<PortListener>,
    connections: BTreeMap<usize, (usize, PublishedConnection)>,
    /// Maximum number of connections.
    max_connections: usize,
    next_connection: usize,
    socket_pools: SocketPools,
    /// Connections that can transfer more without a new event.
    unfinished: BTreeSet<usize>,
    /// Listeners with more clients to accept, without a new event.
    pending_ports: BTreeSet<usize>,
    /// Listeners that do not accept while the connection limit is reached.
    full_ports: BTreeSet<usize>,
    unreported: Vec<UnreachablePort>,
    buffer: RelayBuffer,
}

/// The listener of a published port.
#[derive(Debug)]
struct PortListener {
    listener: mio::net::TcpListener,
    published: PortForward,
    /// The time of the last report that the port is unreachable, and the number of connections since.
    reported_at: Option<Instant>,
    calls_since: u64,
}

/// A port of the host that is forwarded to the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortForward {
    /// The address and port on the host.
    pub address: SocketAddr,
    /// The port in the sandbox.
    pub to: u16,
}

/// A connection to a published port that was reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachablePort {
    /// The published port.
    #[serde(flatten)]
    pub published: PortForward,
    /// The reason.
    pub why: String,
    /// Number of connections since the last report.
    pub times: u64,
}

impl std::fmt::Display for PortForward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "published: {} leads to port {} inside", self.address, self.to)
    }
}

impl std::fmt::Display for UnreachablePort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PortForward { address, to } = self.published;
        write!(f, "published: {address}: no process answers on port {to} inside: {}", self.why)?;
        if self.times > 1 { write!(f, ", {} times", self.times) } else { Ok(()) }
    }
}

impl PortPublisher {
    /// The share of this many descriptors for published ports.
    pub(crate) fn descriptor_share(descriptors: usize) -> usize {
        (descriptors / 2).min(2 * MAX_CONNECTIONS)
    }

    /// Creates a publisher without ports that uses at most this many descriptors.
    pub(crate) fn new(descriptors: usize) -> Self {
        PortPublisher {
            ports: Vec::new(),
            connections: BTreeMap::new(),
            max_connections: (descriptors / 2).max(1),
            next_connection: 0,
            socket_pools: SocketPools::default(),
            unfinished: BTreeSet::new(),
            pending_ports: BTreeSet::new(),
            full_ports: BTreeSet::new(),
            unreported: Vec::new(),
            buffer: RelayBuffer::default(),
        }
    }

    /// Publishes a port on this socket of the host, which must be listening and non-blocking.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`].
    pub(crate) fn publish(
        &mut self,
        registry: &Registry,
        published: PortForward,
        socket: OwnedFd,
    ) -> Result<()> {
        let mut listener = mio::net::TcpListener::from_std(socket.into());
        registry
            .register(&mut listener, Token(FIRST_TOKEN + self.ports.len()), Interest::READABLE)
            .map_err(|e| Error::system("accept on a published port", e))?;
        self.ports.push(PortListener { listener, published, reported_at: None, calls_since: 0 });
        Ok(())
    }

    /// Requests the sockets that it needs; `ask` returns whether the request was sent.
    pub(crate) fn request_sockets(&mut self, mut ask: impl FnMut(IpFamily) -> bool) {
        for family in [IpFamily::V4, IpFamily::V6] {
            let stock = self.socket_pools.for_family(family);
            while stock.shortfall() > 0 && ask(family) {
                stock.count_request();
            }
        }
    }

    /// Adds a socket of the sandbox's network, or the error of its creation.
    pub(crate) fn add_socket(
        &mut self,
        registry: &Registry,
        family: IpFamily,
        socket: Result<OwnedFd, Errno>,
    ) {
        let missing = socket.as_ref().err().copied();
        let Some(id) = self.socket_pools.for_family(family).add(socket) else { return };
        match missing {
            None => self.advance(registry, id),
            Some(errno) => {
                let need = self
                    .connections
                    .get_mut(&id)
                    .map(|(_, caller)| caller.try_next_address(errno.desc().to_owned()));
                self.provide(registry, id, need);
            }
        }
    }

    /// Handles an event; returns false if the token belongs to another component.
    pub(crate) fn on_event(&mut self, registry: &Registry, event: &Event) -> bool {
        let token = event.token().0;
        if !(FIRST_TOKEN..super::FIRST_TOKEN).contains(&token) {
            return false;
        }
        match token.checked_sub(FIRST_CONNECTION_TOKEN) {
            Some(both) => self.advance(registry, both / 2),
            None => self.accept(registry, token - FIRST_TOKEN),
        }
        true
    }

    /// Handles timeouts and work deferred for fairness. Must be called in each iteration of the loop.
    pub(crate) fn tick(&mut self, registry: &Registry) {
        let now = Instant::now();
        let late = |caller: &PublishedConnection| caller.deadline().is_some_and(|at| at <= now);
        let due: BTreeSet<usize> =
            self.connections.iter().filter(|(_, (_, caller))| late(caller)).map(|(id, _)| *id).collect();
        for id in due.into_iter().chain(std::mem::take(&mut self.unfinished)) {
            self.advance(registry, id);
        }
        for at in std::mem::take(&mut self.pending_ports) {
            self.accept(registry, at);
        }
    }

    /// Maximum time that the loop may wait.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.pending_ports.is_empty() {
            return Some(Duration::ZERO);
        }
        let next = self.connections.values().filter_map(|(_, caller)| caller.deadline()).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// While bytes of servers may not be written to their clients yet, the number of those that are. For use after the last
    /// program has exited.
    pub(crate) fn unsent_progress(&self) -> Option<u64> {
        let unsent = self.connections.values().filter(|(_, caller)| caller.has_unsent());
        unsent.map(|(_, caller)| caller.bytes_sent()).reduce(u64::wrapping_add)
    }

    /// Unreachable ports to report since the last call.
    pub(crate) fn take_unreachable(&mut self) -> Vec<UnreachablePort> {
        std::mem::take(&mut self.unreported)
    }

    fn accept(&mut self, registry: &Registry, at: usize) {
        for _ in 0..MAX_PER_SOCKET {
            let Some(door) = self.ports.get(at) else { return };
            if self.connections.len() >= self.max_connections {
                self.full_ports.insert(at);
                return;
            }
            let client = match door.listener.accept() {
                Ok((client, _)) => client,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) | None => return,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.full_ports.insert(at);
                        return;
                    }
                    // The client has already disconnected (accept(2)).
                    Some(_) => continue,
                },
            };
            let id = self.next_connection;
            self.next_connection += 1;
            let tokens = (Token(FIRST_CONNECTION_TOKEN + 2 * id), Token(FIRST_CONNECTION_TOKEN + 2 * id + 1));
            if let Ok(caller) = PublishedConnection::new(client, door.published.to, registry, tokens) {
                self.connections.insert(id, (at, caller));
                self.advance(registry, id);
            }
        }
        self.pending_ports.insert(at);
    }

    /// Advances a connection as far as possible without blocking.
    fn advance(&mut self, registry: &Registry, id: usize) {
        let need = self.connections.get_mut(&id).map(|(_, caller)| caller.advance(&mut self.buffer));
        self.provide(registry, id, need);
    }

    /// Provides what a connection needs, while it is available.
    fn provide(&mut self, registry: &Registry, id: usize, mut need: Option<PublishedConnectionNeed>) {
        while let (Some(now), Some((at, caller))) = (need.take(), self.connections.get_mut(&id)) {
            match now {
                PublishedConnectionNeed::Events => {}
                PublishedConnectionNeed::Turn => drop(self.unfinished.insert(id)),
                PublishedConnectionNeed::Socket(family) => {
                    need = match self.socket_pools.for_family(family).take(id) {
                        PooledSocket::Socket(socket) => Some(caller.connect(socket, registry)),
                        PooledSocket::Pending => None,
                        PooledSocket::Unavailable(errno) => {
                            Some(caller.try_next_address(errno.desc().to_owned()))
                        }
                    };
                }
                PublishedConnectionNeed::Closed => self.close_connection(id),
                PublishedConnectionNeed::Unanswered(why) => {
                    let at = *at;
                    self.report_unreachable(at, why);
                    self.close_connection(id);
                }
            }
        }
    }

    fn close_connection(&mut self, id: usize) {
        if let Some((_, caller)) = self.connections.remove(&id) {
            [IpFamily::V4, IpFamily::V6]
                .into_iter()
                .for_each(|family| self.socket_pools.for_family(family).forget(id));
            self.pending_ports.append(&mut self.full_ports);
            caller.close();
        }
    }

    /// Reports an unreachable port at most once per second, with the number of connections.
    fn report_unreachable(&mut self, at: usize, why: String) {
        let Some(door) = self.ports.get_mut(at) else { return };
        door.calls_since += 1;
        if door.reported_at.is_none_or(|told| told.elapsed() >= REPORT_INTERVAL) {
            door.reported_at = Some(Instant::now());
            let times = std::mem::take(&mut door.calls_since);
            self.unreported.push(UnreachablePort { published: door.published, why, times });
        }
    }
}
