//! The listening socket, its connections and the core, on the supervisor's event loop.
//!
//! The supervisor's loop is:
//! ```text
//! loop {
//!     while let Some(action) = hub.next_action() { carry it out }
//!     poll(timeout: until hub.next_deadline());
//!     hub.tick(now);
//!     for event in events {
//!         if hub.owns_token(token) { hub.on_event(event) } else { … hub.with_bridge(|b| b.agent_output(…)) }
//!     }
//! }
//! ```
//! The hub itself carries out the core's actions on connections. All other actions are returned by
//! [`ConnectionHub::next_action`]. The core is the bridge or another implementation of [`HubCore`].

use super::peer_filter::PeerFilter;
use super::{HubCore, HubStep, Outbox, UnixSocketListener};
use crate::core::{Bridge, ConnId};
use mio::event::Event;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use saggar_sys::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::time::Duration;

/// Number of tokens that a hub uses, from its first one on: the listener and the connections.
pub const HUB_TOKENS: usize = 1 + MAX_CONNECTIONS;

/// Maximum number of connections. More wait in the backlog of the socket.
const MAX_CONNECTIONS: usize = 1024;
/// Maximum number of bytes read from one connection before others are served.
const READ_BUDGET: usize = 1 << 20;
/// Size of one read, in bytes.
const CHUNK: usize = 64 << 10;
/// Maximum number of connections accepted, or rejected, before others are served.
const ACCEPT_BUDGET: usize = 64;
/// Delay before the next accept when no descriptors are left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Time limit for a closed connection to read its last output and to close its own side, and the maximum size of that
/// output, in bytes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CLOSE_BACKLOG: usize = 64 << 10;

/// A core with its sockets.
#[derive(Debug)]
pub struct ConnectionHub<C: HubCore = Bridge> {
    core: C,
    listener: Option<UnixSocketListener>,
    registry: Registry,
    first_token: usize,
    now: Duration,
    next_conn: u64,
    connections: BTreeMap<usize, HubConnection>,
    slots: BTreeMap<ConnId, usize>,
    /// Connections with output to write.
    unwritten: BTreeSet<usize>,
    /// Connections that may have more input. They were skipped for fairness or because their client did not read.
    unread: BTreeSet<usize>,
    /// Slots released since the last tick. An event of the old connection may still be in the same batch, and must not
    /// be delivered to a new connection.
    retired_slots: BTreeSet<usize>,
    peer_filter: PeerFilter,
    /// When to accept again.
    accept_at: Option<Duration>,
    actions: VecDeque<C::Action>,
    /// The core gets no more events until the queued actions are carried out.
    awaits_actions: bool,
    chunk: Box<[u8]>,
}

#[derive(Debug)]
struct HubConnection {
    id: ConnId,
    stream: UnixStream,
    outbox: Outbox,
    /// WRITABLE is registered. Only while there is a backlog, because every such event costs a wake-up.
    wants_writable: bool,
    /// Set when the core has closed the connection. It is removed when the outbox is empty and the client has closed its
    /// sending side, or at this time. A connection that is closed with unread input would be reset (unix(7)).
    close_deadline: Option<Duration>,
    /// The client has closed its sending side.
    read_closed: bool,
}

impl ConnectionHub<Bridge> {
    /// Reports an event of the agent or an `exec` to the core.
    pub fn with_bridge<T>(&mut self, action: impl FnOnce(&mut Bridge) -> T) -> T {
        self.with_core(action)
    }
}

impl<C: HubCore> ConnectionHub<C> {
    /// Takes the core and its socket, and registers the socket with the loop. Uses [`HUB_TOKENS`] tokens from `first`
    /// on.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`] if the socket cannot be registered.
    pub fn new(core: C, mut listener: UnixSocketListener, registry: &Registry, first: Token) -> Result<Self> {
        let path = listener.path().to_owned();
        let system = |e| Error::system(format_args!("register the socket {}", path.display()), e);
        let registry = registry.try_clone().map_err(system)?;
        let callers = PeerFilter::new(listener.peers());
        registry.register(listener.socket(), first, Interest::READABLE).map_err(system)?;
        Ok(ConnectionHub {
            core,
            listener: Some(listener),
            registry,
            first_token: first.0,
            now: Duration::ZERO,
            next_conn: 0,
            connections: BTreeMap::new(),
            slots: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            unread: BTreeSet::new(),
            retired_slots: BTreeSet::new(),
            peer_filter: callers,
            accept_at: None,
            actions: VecDeque::new(),
            awaits_actions: false,
            chunk: vec![0; CHUNK].into_boxed_slice(),
        })
    }

    /// Whether this token belongs to the hub.
    pub fn owns_token(&self, token: Token) -> bool {
        (self.first_token..self.first_token + HUB_TOKENS).contains(&token.0)
    }

    /// Reports an event to the core that did not come from a connection.
    pub fn with_core<T>(&mut self, action: impl FnOnce(&mut C) -> T) -> T {
        let answer = action(&mut self.core);
        self.flush();
        answer
    }

    /// The core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Sets the current time. Must be called first in each iteration of the loop.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        self.retired_slots.clear();
        self.core.tick(now);
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept();
        }
        for slot in std::mem::take(&mut self.unread) {
            self.read(slot);
        }
        let late = |conn: &HubConnection| conn.close_deadline.is_some_and(|until| until <= now);
        let late: Vec<usize> =
            self.connections.iter().filter(|(_, conn)| late(conn)).map(|(slot, _)| *slot).collect();
        for slot in late {
            self.remove(slot);
        }
        self.flush();
    }

    /// When to call [`ConnectionHub::tick`] next, unless an event comes before.
    pub fn next_deadline(&self) -> Option<Duration> {
        let has_turn = |slot: &usize| self.may_read(*slot) || self.is_closing(*slot);
        let unread = self.unread.iter().any(has_turn).then_some(self.now);
        let linger = self.connections.values().filter_map(|conn| conn.close_deadline).min();
        [self.core.next_deadline(), self.accept_at, unread, linger].into_iter().flatten().min()
    }

    /// The next action for the supervisor.
    pub fn next_action(&mut self) -> Option<C::Action> {
        if self.actions.is_empty() && std::mem::take(&mut self.awaits_actions) {
            self.flush();
        }
        self.actions.pop_front()
    }

    /// Whether there is an action for the supervisor.
    pub fn has_actions(&self) -> bool {
        self.awaits_actions || !self.actions.is_empty()
    }

    /// Handles an event of one of the hub's tokens.
    pub fn on_event(&mut self, event: &Event) {
        let slot = event.token().0.wrapping_sub(self.first_token);
        if slot == 0 {
            self.accept();
        } else if self.connections.contains_key(&slot) {
            if event.is_writable() {
                self.unwritten.insert(slot);
            }
            if event.is_error() || (event.is_read_closed() && event.is_write_closed()) {
                // The client has disconnected, but may have sent input before, such as a `shutdown`.
                self.read(slot);
                self.handle_disconnect(slot);
            } else if event.is_readable() || event.is_read_closed() {
                self.read(slot);
            }
        }
        self.flush();
    }

    /// Number of open connections.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Stops listening, and removes the socket file if it is still the hub's own.
    pub fn stop_listening(&mut self) {
        if let Some(mut listener) = self.listener.take() {
            let _ = self.registry.deregister(listener.socket());
        }
        self.accept_at = None;
    }

    /// Whether all output has been written. After the last action the supervisor waits for this.
    pub fn is_drained(&self) -> bool {
        self.connections.values().all(|conn| conn.outbox.is_empty())
    }

    /// Adds a connection that was not accepted from the socket: the supervisor's own client.
    pub fn add_connection(&mut self, stream: UnixStream) {
        if let Some(slot) = self.free_slot() {
            self.register_connection(slot, stream);
        }
    }

    fn accept(&mut self) {
        self.accept_at = None;
        for _ in 0..ACCEPT_BUDGET {
            let Some(slot) = self.free_slot() else { break };
            let Some(listener) = &mut self.listener else { return };
            match listener.socket().accept() {
                Ok((stream, _)) if self.peer_filter.admits(&stream, listener.path(), self.now) => {
                    self.register_connection(slot, stream);
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // No descriptors or memory are left. The event does not come again, so accept is retried later.
                Err(_) => {
                    self.accept_at = Some(self.now + ACCEPT_RETRY_DELAY);
                    return;
                }
            }
        }
        // A retired slot is free again after the next tick. Otherwise the next closed connection frees one.
        let can_accept = !self.retired_slots.is_empty() || self.free_slot().is_some();
        self.accept_at = can_accept.then_some(self.now);
    }

    fn free_slot(&self) -> Option<usize> {
        (1..HUB_TOKENS)
            .find(|slot| !self.connections.contains_key(slot) && !self.retired_slots.contains(slot))
    }

    fn register_connection(&mut self, slot: usize, mut stream: UnixStream) {
        if self.registry.register(&mut stream, Token(self.first_token + slot), Interest::READABLE).is_err() {
            return;
        }
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let outbox = Outbox::default();
        self.connections.insert(
            slot,
            HubConnection {
                id,
                stream,
                outbox,
                wants_writable: false,
                close_deadline: None,
                read_closed: false,
            },
        );
        self.slots.insert(id, slot);
        self.core.conn_opened(id);
        self.flush();
    }

    fn may_read(&self, slot: usize) -> bool {
        self.connections.get(&slot).is_some_and(|conn| {
            !conn.read_closed && conn.close_deadline.is_none() && self.core.conn_wants_input(conn.id)
        })
    }

    /// Whether the core has closed the connection.
    fn is_closing(&self, slot: usize) -> bool {
        self.connections.get(&slot).is_some_and(|conn| conn.close_deadline.is_some())
    }

    fn read(&mut self, slot: usize) {
        if self.is_closing(slot) {
            return self.discard(slot);
        }
        let mut share = READ_BUDGET;
        while self.may_read(slot) {
            if share == 0 {
                self.unread.insert(slot);
                return;
            }
            let Some(conn) = self.connections.get_mut(&slot) else { return };
            match conn.stream.read(&mut self.chunk) {
                Ok(0) => {
                    conn.read_closed = true;
                    return self.core.conn_half_closed(conn.id);
                }
                Ok(count) => {
                    share = share.saturating_sub(count);
                    self.core.conn_input(conn.id, &self.chunk[..count]);
                    self.flush();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.handle_disconnect(slot),
            }
        }
        // Its output is backlogged. Its input is read when the client has read the output.
        if self.connections.get(&slot).is_some_and(|conn| !conn.read_closed) {
            self.unread.insert(slot);
        }
    }

    /// Discards the input of a connection that the core has closed; removes the connection at the end of its input.
    fn discard(&mut self, slot: usize) {
        let Some(conn) = self.connections.get_mut(&slot) else { return };
        let mut share = READ_BUDGET;
        while !conn.read_closed && share > 0 {
            match conn.stream.read(&mut self.chunk) {
                Ok(count) => {
                    conn.read_closed = count == 0;
                    share = share.saturating_sub(count);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => conn.read_closed = true,
            }
        }
        if !conn.read_closed {
            self.unread.insert(slot);
        } else if conn.outbox.is_empty() {
            self.remove(slot);
        }
    }

    /// Ends the sending side of a connection that the core has closed, once its output is written.
    fn end_output(&mut self, slot: usize) {
        let Some(conn) = self.connections.get(&slot) else { return };
        if conn.outbox.is_empty() {
            // A client that has disconnected is found by the next read.
            let _ = conn.stream.shutdown(Shutdown::Write);
        }
        self.discard(slot);
    }

    /// Handles a disconnected client.
    fn handle_disconnect(&mut self, slot: usize) {
        if let Some(conn) = self.connections.get(&slot) {
            let id = conn.id;
            self.remove(slot);
            self.core.conn_closed(id);
        }
    }

    fn remove(&mut self, slot: usize) {
        if let Some(mut conn) = self.connections.remove(&slot) {
            self.slots.remove(&conn.id);
            self.unwritten.remove(&slot);
            self.unread.remove(&slot);
            let _ = self.registry.deregister(&mut conn.stream);
            self.retired_slots.insert(slot);
            if self.connections.len() + self.retired_slots.len() >= MAX_CONNECTIONS {
                self.accept_at = Some(self.now);
            }
        }
    }

    /// Carries out the core's actions on connections, and writes pending output.
    fn flush(&mut self) {
        loop {
            while let Some(step) = if self.awaits_actions { None } else { self.core.next_step() } {
                match step {
                    HubStep::Send { conn, bytes } => {
                        let slot = self.slots.get(&conn).copied();
                        if let Some((slot, conn)) =
                            slot.and_then(|slot| Some((slot, self.connections.get_mut(&slot)?)))
                        {
                            conn.outbox.push(bytes);
                            self.unwritten.insert(slot);
                        }
                    }
                    HubStep::Close { conn, flush } => self.close(conn, flush),
                    HubStep::Other(action) => self.actions.push_back(action),
                    HubStep::OtherFirst(action) => {
                        self.actions.push_back(action);
                        self.awaits_actions = true;
                    }
                }
            }
            let Some(slot) = self.unwritten.pop_first() else { break };
            self.write(slot);
        }
    }

    fn write(&mut self, slot: usize) {
        let Some(conn) = self.connections.get_mut(&slot) else { return };
        let id = conn.id;
        let waiting = conn.outbox.len();
        if conn.outbox.write_to(&mut conn.stream).is_err() {
            // The client does not read any more. Earlier input may still be unread: its end, or the pending hang-up
            // event, removes the connection.
            conn.outbox.clear();
        }
        let count = waiting - conn.outbox.len();
        let backlog = !conn.outbox.is_empty();
        if backlog != conn.wants_writable {
            conn.wants_writable = backlog;
            let interest = if backlog { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            if self.registry.reregister(&mut conn.stream, Token(self.first_token + slot), interest).is_err() {
                return self.handle_disconnect(slot);
            }
        }
        if conn.close_deadline.is_some() {
            return self.end_output(slot);
        }
        self.core.conn_written(id, count);
    }

    fn close(&mut self, conn: ConnId, flush: bool) {
        let Some(slot) = self.slots.get(&conn).copied() else { return };
        if flush {
            self.write(slot);
        }
        match self.connections.get_mut(&slot) {
            Some(conn) if flush && conn.outbox.len() <= MAX_CLOSE_BACKLOG => {
                conn.close_deadline = Some(self.now + CLOSE_TIMEOUT);
                self.end_output(slot);
            }
            _ => self.remove(slot),
        }
    }
}
