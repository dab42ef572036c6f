//! The relay: carries the connections of a sandbox to the hosts that its policy names, on the mio loop of a process of
//! its own ([`crate::relay`]).
//!
//! ```text
//! a program ──> a socket of the sandbox's namespace ── rules, first bytes ──> lookup ── address ──> the host
//!                        (names: answered here)                denied: reported, and reset
//! ```
//! Nothing here blocks, and everything is bounded: connections, buffered bytes, names, and reported denials.

mod attribution;
mod connection;
mod consent;
mod counters;
mod deadlines;
mod denials;
mod dial;
mod linger;
mod lookup;
mod name_server;
mod proxy;
pub mod publish;
mod pump;
mod recent_calls;
mod rejected_traffic;
mod relay_services;
mod seccomp_notify;
mod socket_owner;

pub use attribution::{Attribution, CallReport};
pub use consent::{ConsentQuestion, HostConsent};
pub use counters::{HostCounts, HostCountsRow};
pub use denials::{DenialKind, NetworkDenial};
pub use relay_services::{RelayServices, ResolverFile};
pub use socket_owner::{CallingProgram, SocketOwnerQuery as Whose};

use super::address;
use super::stand_in_table::StandInTable;
use connection::{ConnectionNeed, RelayedConnection};
use consent::ConsentTable;
use counters::HostCounters;
use deadlines::Deadlines;
use denials::DenialLog;
use linger::LingeringClient;
use lookup::Resolver;
use mio::event::Event;
use mio::{Interest, Registry, Token};
use name_server::{NameAnswer, TcpNameConnection, UdpNameServer};
use pump::{Flow, RelayBuffer};
use rejected_traffic::RejectedTrafficSniffer;
use saggar_policy::hosts::{DNS_PORT, Destination, DnsName, HostRules, HostVerdict};
use saggar_sys::error::{Error, Result};
use saggar_sys::net::IpFamily;
use saggar_sys::redirect;
use saggar_sys::reject_sniffer::RejectKind;
use saggar_sys::seccomp::listener::SyscallNotification;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Tokens of the relay, far above all others: captured sockets, lookups, and two for each connection.
const FIRST_TOKEN: usize = 1 << 40;
const FIRST_LOOKUP_TOKEN: usize = FIRST_TOKEN + (1 << 16);
const FIRST_CONNECTION_TOKEN: usize = FIRST_TOKEN + (1 << 32);

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 1024;
/// Maximum number of connections and questions handled on one socket before others are served.
const MAX_PER_SOCKET: usize = 64;
/// Maximum number of connections that continue in one iteration without an event. Each may transfer much data while
/// others wait.
const MAX_PER_ROUND: usize = 8;

/// The relay of one sandbox.
pub(crate) struct NetworkRelay {
    rules: HostRules,
    names: StandInTable,
    resolver: Resolver,
    sockets: Vec<RelaySocket>,
    /// Published ports in the sandbox, on which servers for clients of the host listen.
    published_ports: Vec<u16>,
    connections: BTreeMap<usize, RelayClient>,
    deadlines: Deadlines,
    /// Maximum number of connections.
    max_connections: usize,
    next_connection: usize,
    /// Connections that can transfer more without a new event.
    unfinished: BTreeSet<usize>,
    /// The connection that continues first.
    next_turn: usize,
    /// Sockets with more input, without a new event.
    pending_sockets: BTreeSet<usize>,
    /// Sockets that do not accept while the connection limit is reached. They continue when a connection ends.
    full_sockets: BTreeSet<usize>,
    denials: DenialLog,
    services: Box<dyn RelayServices>,
    counters: HostCounters,
    consents: ConsentTable,
    buffer: RelayBuffer,
}

/// A socket of the sandbox's namespace.
enum RelaySocket {
    Tcp(mio::net::TcpListener, u16),
    Dns(UdpNameServer),
    /// Traffic that no socket accepts.
    Rejected(RejectedTrafficSniffer),
}

/// A client of the relay.
enum RelayClient {
    /// A connection to a host.
    Relayed(Box<RelayedConnection>),
    /// A connection with DNS questions over TCP.
    Dns(TcpNameConnection),
    /// A connection that has ended, except that its client still sends.
    Lingering(LingeringClient),
}

impl std::fmt::Debug for NetworkRelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl NetworkRelay {
    /// Creates a relay with at most this many open descriptors. `outside` performs the operations that need rights.
    /// The initial rules deny everything, and no port is listened on yet.
    pub(crate) fn new(outside: Box<dyn RelayServices>, descriptors: usize) -> Self {
        NetworkRelay {
            rules: HostRules::default(),
            names: StandInTable::default(),
            resolver: Resolver::new(FIRST_LOOKUP_TOKEN),
            sockets: Vec::new(),
            published_ports: Vec::new(),
            connections: BTreeMap::new(),
            deadlines: Deadlines::default(),
            max_connections: (descriptors / 2).clamp(1, MAX_CONNECTIONS),
            next_connection: 0,
            unfinished: BTreeSet::new(),
            next_turn: 0,
            pending_sockets: BTreeSet::new(),
            full_sockets: BTreeSet::new(),
            denials: DenialLog::default(),
            services: outside,
            counters: HostCounters::default(),
            consents: ConsentTable::default(),
            buffer: RelayBuffer::default(),
        }
    }

    /// Adds a published port: a call to it on loopback is meant for a server in the sandbox and is not reported as a
    /// call to the host.
    pub(crate) fn add_published_port(&mut self, port: u16) {
        self.published_ports.push(port);
    }

    /// Listens on this socket for connections to its port of any address.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`].
    pub(crate) fn add_listener(
        &mut self,
        registry: &Registry,
        kind: redirect::SocketProtocol,
        port: u16,
        socket: OwnedFd,
    ) -> Result<()> {
        let token = Token(FIRST_TOKEN + self.sockets.len());
        let socket = match kind {
            redirect::SocketProtocol::Tcp => {
                self.services.add_listened_port(port);
                let mut listener = mio::net::TcpListener::from_std(socket.into());
                registry
                    .register(&mut listener, token, Interest::READABLE)
                    .map(|()| RelaySocket::Tcp(listener, port))
            }
            redirect::SocketProtocol::Udp => {
                UdpNameServer::new(socket, registry, token).map(RelaySocket::Dns)
            }
        };
        self.sockets.push(socket.map_err(|e| Error::system("receive from a port of the sandbox", e))?);
        Ok(())
    }

    /// Adds the sniffer of the kernel's rejections of traffic that no socket accepts.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`].
    pub(crate) fn add_reject_sniffer(
        &mut self,
        registry: &Registry,
        what: (IpFamily, RejectKind),
        socket: OwnedFd,
    ) -> Result<()> {
        let token = Token(FIRST_TOKEN + self.sockets.len());
        let witness = RejectedTrafficSniffer::new(socket, what, registry, token);
        let witness = witness.map_err(|e| Error::system("receive the rejected traffic of the sandbox", e))?;
        self.sockets.push(RelaySocket::Rejected(witness));
        Ok(())
    }

    /// Passes on the seccomp listener of pid 1's filter, whose notifications are then answered.
    pub(crate) fn set_seccomp_listener(&mut self, listener: OwnedFd) {
        self.services.set_seccomp_listener(listener);
    }

    /// Handles an event; returns false if the token belongs to another component.
    pub(crate) fn on_event(&mut self, registry: &Registry, event: &Event) -> bool {
        let token = event.token().0;
        if token < FIRST_TOKEN {
            return false;
        }
        if let Some(both) = token.checked_sub(FIRST_CONNECTION_TOKEN) {
            self.advance(registry, both / 2);
        } else if token >= FIRST_LOOKUP_TOKEN {
            self.resolver.on_event(registry, event.token());
            self.deliver_lookups(registry);
        } else {
            self.handle_socket(registry, token - FIRST_TOKEN);
        }
        true
    }

    /// Handles timeouts and work deferred for fairness. Must be called in each iteration of the loop.
    pub(crate) fn tick(&mut self, registry: &Registry) {
        let now = Instant::now();
        self.resolver.tick(registry, now);
        self.deliver_lookups(registry);
        for id in self.deadlines.expired(now).into_iter().chain(self.take_unfinished()) {
            self.advance(registry, id);
        }
        for at in std::mem::take(&mut self.pending_sockets) {
            self.handle_socket(registry, at);
        }
    }

    /// The unfinished connections that continue now; the others continue in later iterations.
    fn take_unfinished(&mut self) -> Vec<usize> {
        let after = self.unfinished.range(self.next_turn..).take(MAX_PER_ROUND);
        let mut ids: Vec<usize> = after.copied().collect();
        if ids.len() < MAX_PER_ROUND {
            let begin = self.unfinished.range(..self.next_turn).take(MAX_PER_ROUND - ids.len());
            ids.extend(begin.copied());
        }
        self.unfinished.retain(|id| !ids.contains(id));
        self.next_turn = ids.last().map_or(0, |id| id + 1);
        ids
    }

    /// Maximum time that the loop may wait.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.pending_sockets.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadlines = [self.deadlines.next(), self.resolver.deadline(), self.denials.deadline()];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// While bytes of programs are not written to their host yet, the number of those that are. For use after the last
    /// program has exited.
    pub(crate) fn unsent_progress(&self) -> Option<u64> {
        let relayed = self.connections.values().filter_map(|caller| match caller {
            RelayClient::Relayed(connection) if connection.has_unsent() => Some(connection.bytes_moved().0),
            _ => None,
        });
        relayed.reduce(u64::wrapping_add)
    }

    /// Denials to report since the last call.
    pub(crate) fn take_denials(&mut self) -> Vec<NetworkDenial> {
        let mut refusals = self.denials.take_due(Instant::now());
        refusals.extend(self.services.take_denials());
        refusals
    }

    /// Calls since the last call that set the mode of a directory; the relay cannot answer them.
    pub(crate) fn take_mode_requests(&mut self) -> Vec<SyscallNotification> {
        self.services.take_mode_requests()
    }

    /// Enables consent questions, which [`NetworkRelay::take_questions`] returns.
    pub(crate) fn enable_questions(&mut self) {
        self.consents.enable_questions();
    }

    /// New and withdrawn questions since the last call.
    pub(crate) fn take_questions(&mut self) -> Vec<ConsentQuestion> {
        self.consents.take_questions()
    }

    /// Answers a question; with `keep`, permanently.
    pub(crate) fn answer_question(
        &mut self,
        registry: &Registry,
        number: u64,
        consent: &HostConsent,
        keep: bool,
    ) {
        for id in self.consents.answer(number, consent, keep, Instant::now()) {
            if let Some(RelayClient::Relayed(connection)) = self.connections.get_mut(&id) {
                connection.set_consent(consent.clone());
                self.advance(registry, id);
            }
        }
    }

    /// Adds a permanent allowance for this destination from an earlier run.
    pub(crate) fn allow_host(&mut self, to: Destination) {
        self.consents.grant(to);
    }

    /// Replaces the rules; closes connections that the new rules do not allow.
    pub(crate) fn set_rules(&mut self, registry: &Registry, rules: HostRules) {
        self.rules = rules;
        let ids: Vec<usize> = self.connections.keys().copied().collect();
        for id in ids {
            let Some(RelayClient::Relayed(connection)) = self.connections.get_mut(&id) else { continue };
            if let Some(refusal) = connection.recheck(&self.rules) {
                self.record_denial(refusal, id);
                self.close_connection(id);
            } else if !connection.is_open() {
                if !connection.is_awaiting_consent() {
                    self.consents.forget(id);
                }
                self.advance(registry, id);
            }
        }
    }

    /// The number of open connections, and the counters of all hosts.
    pub(crate) fn account(&self) -> (usize, Vec<HostCountsRow>) {
        let mut counters = self.counters.clone();
        let mut stand = 0;
        for caller in self.connections.values() {
            if let RelayClient::Relayed(connection) = caller
                && connection.is_open()
                && let Some(to) = connection.destination()
            {
                stand += 1;
                counters.add_bytes(&to, connection.bytes_moved());
            }
        }
        (stand, counters.rows())
    }

    /// Handles input on a socket of the sandbox.
    fn handle_socket(&mut self, registry: &Registry, at: usize) {
        match self.sockets.get(at) {
            Some(RelaySocket::Dns(_)) => self.answer_dns_datagrams(at),
            Some(RelaySocket::Tcp(..)) => self.accept(registry, at),
            Some(RelaySocket::Rejected(_)) => self.report_rejected(at),
            None => {}
        }
    }

    fn answer_dns_datagrams(&mut self, at: usize) {
        let Some(RelaySocket::Dns(socket)) = self.sockets.get(at) else { return };
        for _ in 0..MAX_PER_SOCKET {
            let Some((length, from, to)) = socket.receive(&mut self.buffer.chunk) else { return };
            let query = self.buffer.chunk.get(..length).unwrap_or_default();
            let NameAnswer { response: answer, denial: refusal } =
                name_server::answer_query(query, &self.rules, &mut self.names);
            if let Some(answer) = answer {
                socket.send(&answer, from, to);
            }
            if let Some(refusal) = refusal {
                self.counters.count_denial(&refusal);
                let outside = &mut self.services;
                let program =
                    || name_server::querying_socket(&from).and_then(|socket| outside.find_program(socket));
                self.denials.add(refusal, Instant::now(), program);
            }
        }
        self.pending_sockets.insert(at);
    }

    fn report_rejected(&mut self, at: usize) {
        for _ in 0..MAX_PER_SOCKET {
            let Some(RelaySocket::Rejected(witness)) = self.sockets.get(at) else { return };
            let Some(unheard) = witness.next_rejected() else { return };
            if let Some(refusal) = unheard.denial(&self.rules, &self.names, &self.published_ports) {
                self.counters.count_denial(&refusal);
                let outside = &mut self.services;
                let program = || outside.find_program(unheard.client_socket());
                self.denials.add(refusal, Instant::now(), program);
            }
        }
        self.pending_sockets.insert(at);
    }

    fn accept(&mut self, registry: &Registry, at: usize) {
        for _ in 0..MAX_PER_SOCKET {
            let Some(RelaySocket::Tcp(listener, port)) = self.sockets.get(at) else { return };
            if self.connections.len() >= self.max_connections {
                self.pause_accepting(at);
                return;
            }
            let (client, port) = match listener.accept() {
                Ok((client, _)) => (client, *port),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) | None => return,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.pause_accepting(at);
                        return;
                    }
                    // The connection was aborted, or the network reports a pending error (accept(2)).
                    Some(_) => continue,
                },
            };
            let id = self.next_connection;
            self.next_connection += 1;
            let taken = if port == DNS_PORT {
                TcpNameConnection::new(client, registry, Token(FIRST_CONNECTION_TOKEN + 2 * id))
                    .map(RelayClient::Dns)
            } else {
                self.open_connection(client, port, registry, id)
                    .map(|connection| RelayClient::Relayed(Box::new(connection)))
            };
            if let Ok(caller) = taken {
                self.connections.insert(id, caller);
                self.advance(registry, id);
            }
        }
        self.pending_sockets.insert(at);
    }

    /// Stops accepting on this socket until a connection ends.
    fn pause_accepting(&mut self, at: usize) {
        self.full_sockets.insert(at);
        let why = "too many connections at once: this one waits until another ends".into();
        let refusal = NetworkDenial { kind: DenialKind::Limit, why, ..NetworkDenial::default() };
        self.denials.add(refusal, Instant::now(), || None);
    }

    /// Determines the destination of a new connection.
    fn open_connection(
        &mut self,
        client: mio::net::TcpStream,
        port: u16,
        registry: &Registry,
        id: usize,
    ) -> std::io::Result<RelayedConnection> {
        let meant = address::canonical(client.local_addr()?.ip());
        let tokens = (Token(FIRST_CONNECTION_TOKEN + 2 * id), Token(FIRST_CONNECTION_TOKEN + 2 * id + 1));
        RelayedConnection::new(client, meant, port, registry, tokens)
    }

    /// Advances a connection as far as possible without blocking.
    fn advance(&mut self, registry: &Registry, id: usize) {
        let Some(caller) = self.connections.get_mut(&id) else { return };
        let mut refusals = Vec::new();
        let ended = match caller {
            RelayClient::Dns(stream) => {
                let mut answer = |query: &[u8]| {
                    let NameAnswer { response: answer, denial: refusal } =
                        name_server::answer_query(query, &self.rules, &mut self.names);
                    refusals.extend(refusal);
                    answer
                };
                let went = stream.serve(&mut self.buffer.chunk, &mut answer);
                has_ended(went, id, &mut self.unfinished)
            }
            RelayClient::Lingering(client) => {
                let went = client.discard(&mut self.buffer.chunk);
                has_ended(went, id, &mut self.unfinished)
            }
            RelayClient::Relayed(connection) => {
                let stood = connection.is_open();
                let ended = loop {
                    match connection.advance(&self.rules, &mut self.names, &mut self.buffer, registry) {
                        ConnectionNeed::Events => break false,
                        ConnectionNeed::Turn => {
                            self.unfinished.insert(id);
                            break false;
                        }
                        ConnectionNeed::Lookup(name) => {
                            let files = &mut *self.services;
                            if let Some(found) = self.resolver.look_up(registry, &name, id, files) {
                                connection.on_lookup_result(found);
                            }
                        }
                        ConnectionNeed::Consent(to) => {
                            let outside = &mut self.services;
                            let program =
                                || connection.client_socket().and_then(|socket| outside.find_program(socket));
                            if let Some(consent) = self.consents.ask(to, id, Instant::now(), program) {
                                connection.set_consent(consent);
                            }
                        }
                        ConnectionNeed::Closed => break true,
                        ConnectionNeed::Denied(refusal) => {
                            refusals.push(*refusal);
                            break true;
                        }
                    }
                };
                if !stood
                    && connection.is_open()
                    && let Some(to) = connection.destination()
                {
                    self.counters.count_connection(&to);
                }
                ended
            }
        };
        self.deadlines.set(id, caller.deadline());
        for refusal in refusals {
            self.record_denial(refusal, id);
        }
        if ended {
            self.close_connection(id);
        }
    }

    /// Reports and counts a denial.
    fn record_denial(&mut self, refusal: NetworkDenial, id: usize) {
        self.counters.count_denial(&refusal);
        let caller = self.connections.get(&id).and_then(RelayClient::socket);
        let outside = &mut self.services;
        self.denials.add(refusal, Instant::now(), || outside.find_program(caller?));
    }

    /// Closes a connection and removes it, or has its client linger.
    fn close_connection(&mut self, id: usize) {
        let Some(caller) = self.connections.remove(&id) else { return };
        self.deadlines.set(id, None);
        self.unfinished.remove(&id);
        self.resolver.forget(id);
        self.consents.forget(id);
        self.pending_sockets.append(&mut self.full_sockets);
        if let RelayClient::Relayed(connection) = caller {
            if let Some(to) = connection.destination().filter(|_| connection.is_open()) {
                self.counters.add_bytes(&to, connection.bytes_moved());
            }
            if let Some(client) = connection.close(&mut self.names) {
                self.deadlines.set(id, Some(client.deadline()));
                self.connections.insert(id, RelayClient::Lingering(client));
                // Its input may have arrived before, without another event.
                self.unfinished.insert(id);
            }
        }
    }

    /// Delivers the results of lookups.
    fn deliver_lookups(&mut self, registry: &Registry) {
        while let Some((id, found)) = self.resolver.next_result() {
            if let Some(RelayClient::Relayed(connection)) = self.connections.get_mut(&id) {
                connection.on_lookup_result(found);
                self.advance(registry, id);
            }
        }
    }
}

impl RelayClient {
    fn deadline(&self) -> Option<Instant> {
        match self {
            RelayClient::Relayed(connection) => connection.deadline(),
            RelayClient::Dns(stream) => Some(stream.deadline()),
            RelayClient::Lingering(client) => Some(client.deadline()),
        }
    }

    /// The program's socket.
    fn socket(&self) -> Option<socket_owner::SocketOwnerQuery> {
        match self {
            RelayClient::Relayed(connection) => connection.client_socket(),
            RelayClient::Dns(stream) => stream.client_socket(),
            RelayClient::Lingering(_) => None,
        }
    }
}

/// Whether a connection has ended; one that can transfer more at once gets another turn.
fn has_ended(went: Flow, id: usize, unfinished: &mut BTreeSet<usize>) -> bool {
    if went == Flow::More {
        unfinished.insert(id);
    }
    matches!(went, Flow::Finished | Flow::WriterClosed)
}

/// Why this address and port are denied, with the rule, or `None`; the policy allows the name. An address with an
/// embedded IPv4 address is checked as that address, too.
fn address_denial(rules: &HostRules, address: IpAddr, port: u16) -> Option<(String, Option<String>)> {
    let denial =
        address::reachable_addresses(address).find_map(|meant| match rules.check_address_port(meant, port) {
            HostVerdict::Denied(rule) => Some(rule.to_string()),
            HostVerdict::Allowed(_) | HostVerdict::NeedsConsent(_) | HostVerdict::NoRule => None,
        });
    if denial.is_some() {
        return Some(("its address is denied".into(), denial));
    }
    let is_named = matches!(
        rules.check_address_port(address, port),
        HostVerdict::Allowed(_) | HostVerdict::NeedsConsent(_)
    );
    match address::classify(address) {
        address::AddressClass::Forbidden(what) => return Some((format!("{address} is {what}"), None)),
        address::AddressClass::Private if !is_named => {
            return Some((format!("{address} is a private address, and no rule names it"), None));
        }
        address::AddressClass::Private | address::AddressClass::Public => {}
    }
    address::reachable_addresses(address).find_map(|meant| {
        match dial::is_local_address(SocketAddr::new(meant, port)) {
            Ok(false) => None,
            Ok(true) => Some((format!("{address} is an address of this machine"), None)),
            Err(error) => Some((format!("find a way to {address}: {error}"), None)),
        }
    })
}

/// Parses a name; `None` if it is not one.
fn parse_name(text: &str) -> Option<DnsName> {
    DnsName::parse(text).ok()
}
