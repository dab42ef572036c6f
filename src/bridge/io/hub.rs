//! The listening socket, its connections and the core, on the supervisor's loop.
//!
//! The supervisor's loop is:
//! ```text
//! loop {
//!     while let Some(action) = hub.next_action() { do it }
//!     poll(timeout: until hub.next_deadline());
//!     hub.tick(now);
//!     for event in events { if hub.owns(token) { hub.ready(event) } else { … hub.bridge(|b| b.agent_output(…)) } }
//! }
//! ```
//! What the core wants said to a connection, the hub says itself; everything else comes out of
//! [`Hub::next_action`]. The core is that of the bridge, or another that speaks with connections ([`Core`]).

use super::peer::Callers;
use super::{Core, Listener, Outbox, Step};
use crate::bridge::core::{Bridge, ConnId};
use crate::error::{Error, Result};
use mio::event::Event;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Read};
use std::time::Duration;

/// How many tokens a hub takes, from its first one on: the listener and the connections.
pub const TOKENS: usize = 1 + MAX_CONNECTIONS;

/// How many connections there may be; more wait in the backlog of the socket.
const MAX_CONNECTIONS: usize = 1024;
/// How much is read from one connection before others get their turn.
const READ_SHARE: usize = 1 << 20;
/// The size of one read.
const CHUNK: usize = 64 << 10;
/// How many connections are accepted, or refused, before others get their turn.
const ACCEPT_SHARE: usize = 64;
/// How long accepting rests when descriptors ran out.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// How long a closed connection may take to read its last words, and how many bytes they may have.
const LAST_WORDS: Duration = Duration::from_secs(2);
const LAST_WORDS_LIMIT: usize = 64 << 10;

/// A core with its sockets.
#[derive(Debug)]
pub struct Hub<C: Core = Bridge> {
    core: C,
    listener: Option<Listener>,
    registry: Registry,
    first: usize,
    now: Duration,
    next_conn: u64,
    conns: BTreeMap<usize, Conn>,
    slots: BTreeMap<ConnId, usize>,
    /// Connections with something to write.
    dirty: BTreeSet<usize>,
    /// Connections that may have more to read; they were left for fairness or because they did not read.
    unread: BTreeSet<usize>,
    /// Slots given up since the last tick. An event for the old connection may still be in the same batch, and
    /// must not be taken for one of a new connection.
    resting: BTreeSet<usize>,
    callers: Callers,
    /// When to accept again.
    accept_at: Option<Duration>,
    actions: VecDeque<C::Action>,
    /// Nothing more is told until they are done.
    held: bool,
    chunk: Box<[u8]>,
}

#[derive(Debug)]
struct Conn {
    id: ConnId,
    stream: UnixStream,
    outbox: Outbox,
    /// WRITABLE is registered: only while there is a backlog, for every such event costs a wake-up.
    writable: bool,
    /// Closed by the core; gone when the outbox is empty, or then.
    linger: Option<Duration>,
    /// The other side will send no more.
    finished: bool,
}

impl Hub<Bridge> {
    /// Tells the core what happened to the agent or an `exec`.
    pub fn bridge<T>(&mut self, told: impl FnOnce(&mut Bridge) -> T) -> T {
        self.core(told)
    }
}

impl<C: Core> Hub<C> {
    /// Takes the core and its socket, and registers with the loop under [`TOKENS`] tokens from `first` on.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when the loop does not take the socket.
    pub fn new(core: C, mut listener: Listener, registry: &Registry, first: Token) -> Result<Self> {
        let path = listener.path().to_owned();
        let system = |e| Error::system(format_args!("register the socket {}", path.display()), e);
        let registry = registry.try_clone().map_err(system)?;
        let callers = Callers::new(listener.peers());
        registry.register(listener.socket(), first, Interest::READABLE).map_err(system)?;
        Ok(Hub {
            core,
            listener: Some(listener),
            registry,
            first: first.0,
            now: Duration::ZERO,
            next_conn: 0,
            conns: BTreeMap::new(),
            slots: BTreeMap::new(),
            dirty: BTreeSet::new(),
            unread: BTreeSet::new(),
            resting: BTreeSet::new(),
            callers,
            accept_at: None,
            actions: VecDeque::new(),
            held: false,
            chunk: vec![0; CHUNK].into_boxed_slice(),
        })
    }

    /// Whether an event with this token is the hub's.
    pub fn owns(&self, token: Token) -> bool {
        (self.first..self.first + TOKENS).contains(&token.0)
    }

    /// Tells the core something that did not come from a connection.
    pub fn core<T>(&mut self, told: impl FnOnce(&mut C) -> T) -> T {
        let answer = told(&mut self.core);
        self.flush();
        answer
    }

    /// Looks at the core.
    pub fn state(&self) -> &C {
        &self.core
    }

    /// The time is `now`; to be called before anything else in a round of the loop.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        self.resting.clear();
        self.core.tick(now);
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept();
        }
        for slot in std::mem::take(&mut self.unread) {
            self.read(slot);
        }
        let late = |conn: &Conn| conn.linger.is_some_and(|until| until <= now);
        let late: Vec<usize> =
            self.conns.iter().filter(|(_, conn)| late(conn)).map(|(slot, _)| *slot).collect();
        for slot in late {
            self.remove(slot);
        }
        self.flush();
    }

    /// When to call [`Hub::tick`] next, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Duration> {
        let unread = self.unread.iter().any(|slot| self.may_read(*slot)).then_some(self.now);
        let linger = self.conns.values().filter_map(|conn| conn.linger).min();
        [self.core.next_deadline(), self.accept_at, unread, linger].into_iter().flatten().min()
    }

    /// The next thing for the supervisor to do.
    pub fn next_action(&mut self) -> Option<C::Action> {
        if self.actions.is_empty() && std::mem::take(&mut self.held) {
            self.flush();
        }
        self.actions.pop_front()
    }

    /// Whether there is something for the supervisor to do.
    pub fn has_actions(&self) -> bool {
        self.held || !self.actions.is_empty()
    }

    /// Handles an event of one of the hub's tokens.
    pub fn ready(&mut self, event: &Event) {
        let slot = event.token().0.wrapping_sub(self.first);
        if slot == 0 {
            self.accept();
        } else if self.conns.contains_key(&slot) {
            if event.is_writable() {
                self.dirty.insert(slot);
            }
            if event.is_error() || (event.is_read_closed() && event.is_write_closed()) {
                // Nobody is there to answer, but a last word may be: a `shutdown`, said and gone.
                self.read(slot);
                self.gone(slot);
            } else if event.is_readable() || event.is_read_closed() {
                self.read(slot);
            }
        }
        self.flush();
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Stops listening, and removes the socket file if it is still ours.
    pub fn stop_listening(&mut self) {
        if let Some(mut listener) = self.listener.take() {
            let _ = self.registry.deregister(listener.socket());
        }
        self.accept_at = None;
    }

    /// Whether everything said has been written: after the last action there is nothing to wait for.
    pub fn is_drained(&self) -> bool {
        self.conns.values().all(|conn| conn.outbox.is_empty())
    }

    /// Takes a connection that did not come by the socket: the supervisor's own client.
    pub fn adopt(&mut self, stream: UnixStream) {
        if let Some(slot) = self.free_slot() {
            self.admit(slot, stream);
        }
    }

    fn accept(&mut self) {
        self.accept_at = None;
        for _ in 0..ACCEPT_SHARE {
            let Some(slot) = self.free_slot() else { break };
            let Some(listener) = &mut self.listener else { return };
            match listener.socket().accept() {
                Ok((stream, _)) if self.callers.accept(&stream, listener.path(), self.now) => {
                    self.admit(slot, stream);
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // Out of descriptors or memory: the event will not come again, so a later look must.
                Err(_) => {
                    self.accept_at = Some(self.now + ACCEPT_REST);
                    return;
                }
            }
        }
        // A slot that rests is free again after the next tick; else the next connection that goes makes room.
        let may_go_on = !self.resting.is_empty() || self.free_slot().is_some();
        self.accept_at = may_go_on.then_some(self.now);
    }

    fn free_slot(&self) -> Option<usize> {
        (1..TOKENS).find(|slot| !self.conns.contains_key(slot) && !self.resting.contains(slot))
    }

    fn admit(&mut self, slot: usize, mut stream: UnixStream) {
        if self.registry.register(&mut stream, Token(self.first + slot), Interest::READABLE).is_err() {
            return;
        }
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let outbox = Outbox::default();
        self.conns.insert(slot, Conn { id, stream, outbox, writable: false, linger: None, finished: false });
        self.slots.insert(id, slot);
        self.core.conn_open(id);
        self.flush();
    }

    fn may_read(&self, slot: usize) -> bool {
        self.conns.get(&slot).is_some_and(|conn| {
            !conn.finished && conn.linger.is_none() && self.core.conn_wants_input(conn.id)
        })
    }

    fn read(&mut self, slot: usize) {
        let mut share = READ_SHARE;
        while self.may_read(slot) {
            if share == 0 {
                self.unread.insert(slot);
                return;
            }
            let Some(conn) = self.conns.get_mut(&slot) else { return };
            match conn.stream.read(&mut self.chunk) {
                Ok(0) => {
                    conn.finished = true;
                    return self.core.conn_finished(conn.id);
                }
                Ok(count) => {
                    share = share.saturating_sub(count);
                    self.core.conn_input(conn.id, &self.chunk[..count]);
                    self.flush();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.gone(slot),
            }
        }
        // Its answers pile up: what it says next is read when they have been taken.
        if self.conns.get(&slot).is_some_and(|conn| !conn.finished) {
            self.unread.insert(slot);
        }
    }

    /// The other side is gone.
    fn gone(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get(&slot) {
            let id = conn.id;
            self.remove(slot);
            self.core.conn_closed(id);
        }
    }

    fn remove(&mut self, slot: usize) {
        if let Some(mut conn) = self.conns.remove(&slot) {
            self.slots.remove(&conn.id);
            self.dirty.remove(&slot);
            self.unread.remove(&slot);
            let _ = self.registry.deregister(&mut conn.stream);
            self.resting.insert(slot);
            if self.conns.len() + self.resting.len() >= MAX_CONNECTIONS {
                self.accept_at = Some(self.now);
            }
        }
    }

    /// Does what the core wants done to connections, and writes what there is to write.
    fn flush(&mut self) {
        loop {
            while let Some(step) = if self.held { None } else { self.core.next_step() } {
                match step {
                    Step::Send { conn, bytes } => {
                        let slot = self.slots.get(&conn).copied();
                        if let Some((slot, conn)) =
                            slot.and_then(|slot| Some((slot, self.conns.get_mut(&slot)?)))
                        {
                            conn.outbox.push(bytes);
                            self.dirty.insert(slot);
                        }
                    }
                    Step::Close { conn, flush } => self.close(conn, flush),
                    Step::Other(action) => self.actions.push_back(action),
                    Step::First(action) => {
                        self.actions.push_back(action);
                        self.held = true;
                    }
                }
            }
            let Some(slot) = self.dirty.pop_first() else { break };
            self.write(slot);
        }
    }

    fn write(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(&slot) else { return };
        let id = conn.id;
        let waiting = conn.outbox.len();
        if conn.outbox.write_to(&mut conn.stream).is_err() {
            // Nobody listens any more. What was said before may still be read: the end of that, or the hang-up
            // event that is on its way, removes the connection.
            conn.outbox.clear();
        }
        let count = waiting - conn.outbox.len();
        let backlog = !conn.outbox.is_empty();
        if backlog != conn.writable {
            conn.writable = backlog;
            let interest = if backlog { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            if self.registry.reregister(&mut conn.stream, Token(self.first + slot), interest).is_err() {
                return self.gone(slot);
            }
        }
        if !backlog && conn.linger.is_some() {
            return self.remove(slot);
        }
        self.core.conn_written(id, count);
    }

    fn close(&mut self, conn: ConnId, flush: bool) {
        let Some(slot) = self.slots.get(&conn).copied() else { return };
        if flush {
            self.write(slot);
        }
        match self.conns.get_mut(&slot) {
            Some(conn) if flush && !conn.outbox.is_empty() && conn.outbox.len() <= LAST_WORDS_LIMIT => {
                conn.linger = Some(self.now + LAST_WORDS);
            }
            _ => self.remove(slot),
        }
    }
}
