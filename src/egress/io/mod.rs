//! The relay: carries the connections of a sandbox to the hosts that its policy names, on the mio loop of a process of
//! its own ([`crate::relay`]).
//!
//! ```text
//! a program ──> a socket of the sandbox's namespace ── rules, first bytes ──> lookup ── address ──> the host
//!                        (names: our own answers)                  refused: told, and reset
//! ```
//! Nothing here waits, and everything is bounded: connections, bytes on their way, names, refusals that are told.

mod asker;
mod attribution;
mod callers;
mod connection;
mod consent;
mod counters;
mod dial;
mod due;
mod lookup;
mod names;
mod outside;
mod owner;
mod proxy;
pub mod publish;
mod pump;
mod refusals;
mod unheard;

pub use attribution::Attribution;
pub use consent::{Consent, Question};
pub use counters::{Count, Counted};
pub use outside::{File, Outside};
pub use owner::{Program, Socket as Whose};
pub use refusals::{Kind, Refusal};

use super::address;
use super::names::Names;
use crate::error::{Error, Result};
use crate::spec::policy::hosts::{DNS_PORT, Destination, DnsName, Rules, Verdict};
use crate::sys::catch;
use crate::sys::net::Family;
use crate::sys::unheard::Answer;
use connection::{Connection, Need};
use consent::Consents;
use counters::Counters;
use due::Due;
use lookup::Resolver;
use mio::event::Event;
use mio::{Interest, Registry, Token};
use names::{Answered, OverTcp, OverUdp};
use pump::{Flow, Room};
use refusals::Refusals;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use unheard::Witness;

/// Tokens of the relay, far above everybody else's: sockets that catch, lookups, and a pair for each connection.
const BASE: usize = 1 << 40;
const LOOKUPS: usize = BASE + (1 << 16);
const CONNECTIONS: usize = BASE + (1 << 32);

/// Connections at once.
const MOST: usize = 1024;
/// Callers and questions that one socket has answered before others have their turn.
const AT_ONCE: usize = 64;
/// Connections that go on in one round without an event: each may move a good deal, and others wait for their turn.
const ROUND: usize = 8;

/// The relay of one sandbox.
pub struct Relay {
    rules: Rules,
    names: Names,
    resolver: Resolver,
    sockets: Vec<Socket>,
    /// Ports inside at which somebody of the host's is looked for.
    published: Vec<u16>,
    connections: BTreeMap<usize, Caller>,
    due: Due,
    /// Connections at once.
    most: usize,
    next: usize,
    /// Connections that have more to move, though no event says so.
    unfinished: BTreeSet<usize>,
    /// The connection whose turn comes first.
    turn: usize,
    /// Sockets that have more to hear, though no event says so.
    unheard: BTreeSet<usize>,
    /// Sockets whose callers wait for room: it comes when a connection ends.
    full: BTreeSet<usize>,
    refusals: Refusals,
    outside: Box<dyn Outside>,
    counters: Counters,
    consents: Consents,
    room: Room,
}

/// A socket of the sandbox's namespace.
enum Socket {
    Connections(mio::net::TcpListener, u16),
    Names(OverUdp),
    /// What nobody hears.
    Unheard(Witness),
}

/// Who called.
enum Caller {
    /// Somebody who wants to speak with a host.
    Of(Box<Connection>),
    /// Somebody who asks for names over TCP.
    Names(OverTcp),
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl Relay {
    /// A relay that may have so many descriptors open, and has others do what takes rights; by its rules nothing is
    /// reached, until they change, and it hears no port yet.
    pub fn new(outside: Box<dyn Outside>, descriptors: usize) -> Self {
        Relay {
            rules: Rules::default(),
            names: Names::default(),
            resolver: Resolver::new(LOOKUPS),
            sockets: Vec::new(),
            published: Vec::new(),
            connections: BTreeMap::new(),
            due: Due::default(),
            most: (descriptors / 2).clamp(1, MOST),
            next: 0,
            unfinished: BTreeSet::new(),
            turn: 0,
            unheard: BTreeSet::new(),
            full: BTreeSet::new(),
            refusals: Refusals::default(),
            outside,
            counters: Counters::default(),
            consents: Consents::default(),
            room: Room::default(),
        }
    }

    /// A program inside may listen on this port for callers of the host: it is not looked upon as one of the host's.
    pub fn publishes(&mut self, port: u16) {
        self.published.push(port);
    }

    /// Hears what calls this port of any address.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn hear(&mut self, registry: &Registry, kind: catch::Kind, port: u16, socket: OwnedFd) -> Result<()> {
        let token = Token(BASE + self.sockets.len());
        let socket = match kind {
            catch::Kind::Tcp => {
                self.outside.hears(port);
                let mut listener = mio::net::TcpListener::from_std(socket.into());
                registry
                    .register(&mut listener, token, Interest::READABLE)
                    .map(|()| Socket::Connections(listener, port))
            }
            catch::Kind::Udp => OverUdp::new(socket, registry, token).map(Socket::Names),
        };
        self.sockets.push(socket.map_err(|e| Error::system("hear a port of the sandbox", e))?);
        Ok(())
    }

    /// Sees how the kernel answers calls that nobody hears.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn witness(&mut self, registry: &Registry, what: (Family, Answer), socket: OwnedFd) -> Result<()> {
        let token = Token(BASE + self.sockets.len());
        let witness = Witness::new(socket, what, registry, token);
        let witness = witness.map_err(|e| Error::system("see what nobody hears in the sandbox", e))?;
        self.sockets.push(Socket::Unheard(witness));
        Ok(())
    }

    /// Has what pid 1's filter asks about answered.
    pub fn answer_for(&mut self, listener: OwnedFd) {
        self.outside.answer_for(listener);
    }

    /// Handles an event; false when the token is somebody else's.
    pub fn ready(&mut self, registry: &Registry, event: &Event) -> bool {
        let token = event.token().0;
        if token < BASE {
            return false;
        }
        if let Some(both) = token.checked_sub(CONNECTIONS) {
            self.go_on(registry, both / 2);
        } else if token >= LOOKUPS {
            self.resolver.ready(registry, event.token());
            self.tell_found(registry);
        } else {
            self.heard(registry, token - BASE);
        }
        true
    }

    /// What is due by time, and what was left undone for fairness. To be called in every round of the loop.
    pub fn tick(&mut self, registry: &Registry) {
        let now = Instant::now();
        self.resolver.tick(registry, now);
        self.tell_found(registry);
        for id in self.due.by(now).into_iter().chain(self.whose_turn()) {
            self.go_on(registry, id);
        }
        for at in std::mem::take(&mut self.unheard) {
            self.heard(registry, at);
        }
    }

    /// Who goes on now of those that have more to move; the others next time.
    fn whose_turn(&mut self) -> Vec<usize> {
        let after = self.unfinished.range(self.turn..).take(ROUND);
        let mut ids: Vec<usize> = after.copied().collect();
        if ids.len() < ROUND {
            let begin = self.unfinished.range(..self.turn).take(ROUND - ids.len());
            ids.extend(begin.copied());
        }
        self.unfinished.retain(|id| !ids.contains(id));
        self.turn = ids.last().map_or(0, |id| id + 1);
        ids
    }

    /// How long the loop may wait at most.
    pub fn patience(&self) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.unheard.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadlines = [self.due.next(), self.resolver.deadline(), self.refusals.deadline()];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Whether something that programs have sent is still on its way to a host. For when no program is left.
    pub fn has_unsent(&self) -> bool {
        self.connections
            .values()
            .any(|caller| matches!(caller, Caller::Of(connection) if connection.has_unsent()))
    }

    /// What was refused since the last call.
    pub fn refusals(&mut self) -> Vec<Refusal> {
        let mut refusals = self.refusals.take(Instant::now());
        refusals.extend(self.outside.refusals());
        refusals
    }

    /// Somebody can be asked about hosts, from now on: [`Relay::questions`].
    pub fn may_ask(&mut self) {
        self.consents.may_ask();
    }

    /// What is to be asked, and no longer, since the last call.
    pub fn questions(&mut self) -> Vec<Question> {
        self.consents.take()
    }

    /// Takes the answer to a question; with `keep`, for good.
    pub fn answer(&mut self, registry: &Registry, number: u64, consent: &Consent, keep: bool) {
        for id in self.consents.answer(number, consent, keep, Instant::now()) {
            if let Some(Caller::Of(connection)) = self.connections.get_mut(&id) {
                connection.answered(consent.clone());
                self.go_on(registry, id);
            }
        }
    }

    /// Somebody has said yes to this host before, for good.
    pub fn consent(&mut self, to: Destination) {
        self.consents.give(to);
    }

    /// The hosts that somebody has said yes to for good.
    pub fn consented(&self) -> impl Iterator<Item = &Destination> {
        self.consents.given()
    }

    /// Other rules from now on: connections that they do not allow end.
    pub fn change(&mut self, registry: &Registry, rules: Rules) {
        self.rules = rules;
        let ids: Vec<usize> = self.connections.keys().copied().collect();
        for id in ids {
            let Some(Caller::Of(connection)) = self.connections.get_mut(&id) else { continue };
            if let Some(refusal) = connection.judge_again(&self.rules) {
                self.refused(refusal, id);
                self.end(id);
            } else if !connection.is_open() {
                if !connection.waits_for_consent() {
                    self.consents.forget(id);
                }
                self.go_on(registry, id);
            }
        }
    }

    /// Connections that stand, and what was done for each host, those among it.
    pub fn account(&self) -> (usize, Vec<Counted>) {
        let mut counters = self.counters.clone();
        let mut stand = 0;
        for caller in self.connections.values() {
            if let Caller::Of(connection) = caller
                && connection.is_open()
                && let Some(to) = connection.destination()
            {
                stand += 1;
                counters.moved(&to, connection.moved());
            }
        }
        (stand, counters.rows())
    }

    /// Somebody calls a socket of the sandbox.
    fn heard(&mut self, registry: &Registry, at: usize) {
        match self.sockets.get(at) {
            Some(Socket::Names(_)) => self.answer_datagrams(at),
            Some(Socket::Connections(..)) => self.accept(registry, at),
            Some(Socket::Unheard(_)) => self.tell_unheard(at),
            None => {}
        }
    }

    fn answer_datagrams(&mut self, at: usize) {
        let Some(Socket::Names(socket)) = self.sockets.get(at) else { return };
        for _ in 0..AT_ONCE {
            let Some((length, from, to)) = socket.receive(&mut self.room.chunk) else { return };
            let query = self.room.chunk.get(..length).unwrap_or_default();
            let Answered { answer, refusal } = names::answer(query, &self.rules, &mut self.names);
            if let Some(answer) = answer {
                socket.send(&answer, from, to);
            }
            if let Some(refusal) = refusal {
                self.counters.refused(&refusal);
                let outside = &mut self.outside;
                let program = || names::asker(&from).and_then(|socket| outside.program(socket));
                self.refusals.add(refusal, Instant::now(), program);
            }
        }
        self.unheard.insert(at);
    }

    fn tell_unheard(&mut self, at: usize) {
        for _ in 0..AT_ONCE {
            let Some(Socket::Unheard(witness)) = self.sockets.get(at) else { return };
            let Some(unheard) = witness.next() else { return };
            if let Some(refusal) = unheard.refusal(&self.rules, &self.names, &self.published) {
                self.counters.refused(&refusal);
                let outside = &mut self.outside;
                let program = || outside.program(unheard.caller());
                self.refusals.add(refusal, Instant::now(), program);
            }
        }
        self.unheard.insert(at);
    }

    fn accept(&mut self, registry: &Registry, at: usize) {
        for _ in 0..AT_ONCE {
            let Some(Socket::Connections(listener, port)) = self.sockets.get(at) else { return };
            if self.connections.len() >= self.most {
                self.is_full(at);
                return;
            }
            let (client, port) = match listener.accept() {
                Ok((client, _)) => (client, *port),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) | None => return,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.is_full(at);
                        return;
                    }
                    // The caller is gone again, or the network says of it what it has to say (accept(2)).
                    Some(_) => continue,
                },
            };
            let id = self.next;
            self.next += 1;
            let taken = if port == DNS_PORT {
                OverTcp::new(client, registry, Token(CONNECTIONS + 2 * id)).map(Caller::Names)
            } else {
                self.meet(client, port, registry, id).map(|connection| Caller::Of(Box::new(connection)))
            };
            if let Ok(caller) = taken {
                self.connections.insert(id, caller);
                self.go_on(registry, id);
            }
        }
        self.unheard.insert(at);
    }

    /// Callers of this socket wait until another connection ends.
    fn is_full(&mut self, at: usize) {
        self.full.insert(at);
        let why = "too many connections at once: this one waits until another ends".into();
        let refusal = Refusal { kind: Kind::Limit, why, ..Refusal::default() };
        self.refusals.add(refusal, Instant::now(), || None);
    }

    /// Whom a new connection means.
    fn meet(
        &mut self,
        client: mio::net::TcpStream,
        port: u16,
        registry: &Registry,
        id: usize,
    ) -> std::io::Result<Connection> {
        let meant = address::plain(client.local_addr()?.ip());
        let tokens = (Token(CONNECTIONS + 2 * id), Token(CONNECTIONS + 2 * id + 1));
        Connection::new(client, meant, port, registry, tokens)
    }

    /// Goes on with a connection as far as it goes now.
    fn go_on(&mut self, registry: &Registry, id: usize) {
        let Some(caller) = self.connections.get_mut(&id) else { return };
        let mut refusals = Vec::new();
        let ended = match caller {
            Caller::Names(stream) => {
                let mut answer = |query: &[u8]| {
                    let Answered { answer, refusal } = names::answer(query, &self.rules, &mut self.names);
                    refusals.extend(refusal);
                    answer
                };
                match stream.serve(&mut self.room.chunk, &mut answer) {
                    Flow::Waits => false,
                    Flow::Over | Flow::Refused => true,
                    Flow::Goes => {
                        self.unfinished.insert(id);
                        false
                    }
                }
            }
            Caller::Of(connection) => {
                let stood = connection.is_open();
                let ended = loop {
                    match connection.go_on(&self.rules, &mut self.names, &mut self.room, registry) {
                        Need::Events => break false,
                        Need::Turn => {
                            self.unfinished.insert(id);
                            break false;
                        }
                        Need::Addresses(name) => {
                            let files = &mut *self.outside;
                            if let Some(found) = self.resolver.look_up(registry, &name, id, files) {
                                connection.found(found);
                            }
                        }
                        Need::Consent(to) => {
                            let outside = &mut self.outside;
                            let program = || connection.caller().and_then(|socket| outside.program(socket));
                            if let Some(consent) = self.consents.ask(to, id, Instant::now(), program) {
                                connection.answered(consent);
                            }
                        }
                        Need::Nothing => break true,
                        Need::Refusal(refusal) => {
                            refusals.push(*refusal);
                            break true;
                        }
                    }
                };
                if !stood
                    && connection.is_open()
                    && let Some(to) = connection.destination()
                {
                    self.counters.stands(&to);
                }
                ended
            }
        };
        self.due.set(id, caller.deadline());
        for refusal in refusals {
            self.refused(refusal, id);
        }
        if ended {
            self.end(id);
        }
    }

    /// Tells of a refusal, and counts it.
    fn refused(&mut self, refusal: Refusal, id: usize) {
        self.counters.refused(&refusal);
        let caller = self.connections.get(&id).and_then(Caller::socket);
        let outside = &mut self.outside;
        self.refusals.add(refusal, Instant::now(), || outside.program(caller?));
    }

    /// A connection is over.
    fn end(&mut self, id: usize) {
        let Some(caller) = self.connections.remove(&id) else { return };
        self.due.set(id, None);
        self.unfinished.remove(&id);
        self.resolver.forget(id);
        self.consents.forget(id);
        self.unheard.append(&mut self.full);
        if let Caller::Of(connection) = caller {
            if let Some(to) = connection.destination().filter(|_| connection.is_open()) {
                self.counters.moved(&to, connection.moved());
            }
            connection.end(&mut self.names);
        }
    }

    /// Passes on what lookups have found.
    fn tell_found(&mut self, registry: &Registry) {
        while let Some((id, found)) = self.resolver.next_found() {
            if let Some(Caller::Of(connection)) = self.connections.get_mut(&id) {
                connection.found(found);
                self.go_on(registry, id);
            }
        }
    }
}

impl Caller {
    fn deadline(&self) -> Option<Instant> {
        match self {
            Caller::Of(connection) => connection.deadline(),
            Caller::Names(stream) => Some(stream.deadline()),
        }
    }

    /// The program's end.
    fn socket(&self) -> Option<owner::Socket> {
        match self {
            Caller::Of(connection) => connection.caller(),
            Caller::Names(stream) => stream.caller(),
        }
    }
}

/// Why this address may not be called on this port for whoever may call its name, and the rule that says so. One that
/// stands for an IPv4 address is judged by that too.
fn wrong_address(rules: &Rules, address: IpAddr, port: u16) -> Option<(String, Option<String>)> {
    let denial = address::meanings(address).find_map(|meant| match rules.address(meant, port) {
        Verdict::Denied(rule) => Some(rule.to_string()),
        Verdict::Allowed(_) | Verdict::Asked(_) | Verdict::Unnamed => None,
    });
    if denial.is_some() {
        return Some(("its address is denied".into(), denial));
    }
    let is_named = matches!(rules.address(address, port), Verdict::Allowed(_) | Verdict::Asked(_));
    match address::kind(address) {
        address::Kind::Forbidden(what) => return Some((format!("{address} is {what}"), None)),
        address::Kind::Private if !is_named => {
            return Some((format!("{address} is a private address, and no rule names it"), None));
        }
        address::Kind::Private | address::Kind::Public => {}
    }
    address::meanings(address).find_map(|meant| match dial::is_own(SocketAddr::new(meant, port)) {
        Ok(false) => None,
        Ok(true) => Some((format!("{address} is an address of this machine"), None)),
        Err(error) => Some((format!("find a way to {address}: {error}"), None)),
    })
}

/// The name, where it is one.
fn name_of(text: &str) -> Option<DnsName> {
    DnsName::parse(text).ok()
}
