//! Published ports: carries those who call a port of the host to a server inside, on the mio loop of the supervisor.
//!
//! ```text
//! a client of the host ──> Listener ──> Caller ── a socket that pid 1 made (Stock) ──> 127.0.0.1:PORT inside
//! ```
//! As in the relay nothing waits, and everything is bounded. It is a way in, and none out: nothing of the sandbox gets a
//! socket of the host's network, and the port of the host is no port inside.

mod caller;
mod listen;
mod stock;

pub use listen::Listeners;

use super::AT_ONCE;
use super::pump::Room;
use crate::error::{Error, Result};
use crate::sys::Errno;
use crate::sys::net::Family;
use caller::{Caller, Need};
use mio::event::Event;
use mio::{Interest, Registry, Token};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use stock::{Stocks, Supply};

/// Tokens: the listeners, then a pair for each connection; below those of the relay.
const BASE: usize = 1 << 38;
const CONNECTIONS: usize = BASE + (1 << 16);

/// Connections at once.
const MOST: usize = 512;
/// That nobody listens is told again after this time.
const EVERY: Duration = Duration::from_secs(1);

/// The published ports of one sandbox.
#[derive(Debug)]
pub struct Publisher {
    doors: Vec<Door>,
    callers: BTreeMap<usize, (usize, Caller)>,
    /// Connections at once.
    most: usize,
    next: usize,
    stocks: Stocks,
    /// Connections that have more to move, though no event says so.
    unfinished: BTreeSet<usize>,
    /// Doors that have more callers, though no event says so.
    unheard: BTreeSet<usize>,
    /// Doors whose callers wait for room.
    full: BTreeSet<usize>,
    untold: Vec<Unanswered>,
    room: Room,
}

/// A published port.
#[derive(Debug)]
struct Door {
    listener: mio::net::TcpListener,
    published: Published,
    /// When it was told that nobody listens, and how many have called since.
    told: Option<Instant>,
    since: u64,
}

/// A port of the host that leads inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Where on the host.
    pub address: SocketAddr,
    /// The port inside.
    pub to: u16,
}

/// Somebody called a published port, and was reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// Which.
    #[serde(flatten)]
    pub published: Published,
    /// Why.
    pub why: String,
    /// How often, since it was told last.
    pub times: u64,
}

impl std::fmt::Display for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "published: {} leads to port {} inside", self.address, self.to)
    }
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Published { address, to } = self.published;
        write!(f, "published: {address}: nobody answers on port {to} inside: {}", self.why)?;
        if self.times > 1 { write!(f, ", {} times", self.times) } else { Ok(()) }
    }
}

impl Publisher {
    /// How many descriptors it takes of so many.
    pub fn share(descriptors: usize) -> usize {
        (descriptors / 2).min(2 * MOST)
    }

    /// One with so many descriptors at most, that publishes nothing yet.
    pub fn new(descriptors: usize) -> Self {
        Publisher {
            doors: Vec::new(),
            callers: BTreeMap::new(),
            most: (descriptors / 2).max(1),
            next: 0,
            stocks: Stocks::default(),
            unfinished: BTreeSet::new(),
            unheard: BTreeSet::new(),
            full: BTreeSet::new(),
            untold: Vec::new(),
            room: Room::default(),
        }
    }

    /// Publishes a port on this socket of the host, which listens and does not block.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn publish(&mut self, registry: &Registry, published: Published, socket: OwnedFd) -> Result<()> {
        let mut listener = mio::net::TcpListener::from_std(socket.into());
        registry
            .register(&mut listener, Token(BASE + self.doors.len()), Interest::READABLE)
            .map_err(|e| Error::system("hear a published port", e))?;
        self.doors.push(Door { listener, published, told: None, since: 0 });
        Ok(())
    }

    /// Asks for the sockets that it wants; `ask` says whether it could be asked.
    pub fn ask(&mut self, mut ask: impl FnMut(Family) -> bool) {
        for family in [Family::Four, Family::Six] {
            let stock = self.stocks.of(family);
            while stock.wanted() > 0 && ask(family) {
                stock.ask();
            }
        }
    }

    /// Takes a socket of the sandbox's network, or why there is none.
    pub fn supply(&mut self, registry: &Registry, family: Family, socket: Result<OwnedFd, Errno>) {
        let missing = socket.as_ref().err().copied();
        let Some(id) = self.stocks.of(family).put(socket) else { return };
        match missing {
            None => self.go_on(registry, id),
            Some(errno) => {
                let need =
                    self.callers.get_mut(&id).map(|(_, caller)| caller.failed(errno.desc().to_owned()));
                self.satisfy(registry, id, need);
            }
        }
    }

    /// Handles an event; false when the token is somebody else's.
    pub fn ready(&mut self, registry: &Registry, event: &Event) -> bool {
        let token = event.token().0;
        if !(BASE..super::BASE).contains(&token) {
            return false;
        }
        match token.checked_sub(CONNECTIONS) {
            Some(both) => self.go_on(registry, both / 2),
            None => self.accept(registry, token - BASE),
        }
        true
    }

    /// What is due by time, and what was left undone for fairness. To be called in every round of the loop.
    pub fn tick(&mut self, registry: &Registry) {
        let now = Instant::now();
        let late = |caller: &Caller| caller.deadline().is_some_and(|at| at <= now);
        let due: BTreeSet<usize> =
            self.callers.iter().filter(|(_, (_, caller))| late(caller)).map(|(id, _)| *id).collect();
        for id in due.into_iter().chain(std::mem::take(&mut self.unfinished)) {
            self.go_on(registry, id);
        }
        for at in std::mem::take(&mut self.unheard) {
            self.accept(registry, at);
        }
    }

    /// How long the loop may wait at most.
    pub fn patience(&self) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.unheard.is_empty() {
            return Some(Duration::ZERO);
        }
        let next = self.callers.values().filter_map(|(_, caller)| caller.deadline()).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Whether something that servers have said is still on its way to who has called. For when no program is left.
    pub fn has_unsent(&self) -> bool {
        self.callers.values().any(|(_, caller)| caller.has_unsent())
    }

    /// Who was not answered since the last call.
    pub fn unanswered(&mut self) -> Vec<Unanswered> {
        std::mem::take(&mut self.untold)
    }

    fn accept(&mut self, registry: &Registry, at: usize) {
        for _ in 0..AT_ONCE {
            let Some(door) = self.doors.get(at) else { return };
            if self.callers.len() >= self.most {
                self.full.insert(at);
                return;
            }
            let client = match door.listener.accept() {
                Ok((client, _)) => client,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) | None => return,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.full.insert(at);
                        return;
                    }
                    // The caller is gone again (accept(2)).
                    Some(_) => continue,
                },
            };
            let id = self.next;
            self.next += 1;
            let tokens = (Token(CONNECTIONS + 2 * id), Token(CONNECTIONS + 2 * id + 1));
            if let Ok(caller) = Caller::new(client, door.published.to, registry, tokens) {
                self.callers.insert(id, (at, caller));
                self.go_on(registry, id);
            }
        }
        self.unheard.insert(at);
    }

    /// Goes on with a connection as far as it goes now.
    fn go_on(&mut self, registry: &Registry, id: usize) {
        let need = self.callers.get_mut(&id).map(|(_, caller)| caller.go_on(&mut self.room));
        self.satisfy(registry, id, need);
    }

    /// Gives a connection what it needs, as long as that is there.
    fn satisfy(&mut self, registry: &Registry, id: usize, mut need: Option<Need>) {
        while let (Some(now), Some((at, caller))) = (need.take(), self.callers.get_mut(&id)) {
            match now {
                Need::Events => {}
                Need::Turn => drop(self.unfinished.insert(id)),
                Need::Socket(family) => {
                    need = match self.stocks.of(family).take(id) {
                        Supply::Socket(socket) => Some(caller.call(socket, registry)),
                        Supply::Waits => None,
                        Supply::Missing(errno) => Some(caller.failed(errno.desc().to_owned())),
                    };
                }
                Need::Nothing => self.end(id),
                Need::Nobody(why) => {
                    let at = *at;
                    self.tell(at, why);
                    self.end(id);
                }
            }
        }
    }

    fn end(&mut self, id: usize) {
        if let Some((_, caller)) = self.callers.remove(&id) {
            [Family::Four, Family::Six].into_iter().for_each(|family| self.stocks.of(family).forget(id));
            self.unheard.append(&mut self.full);
            caller.end();
        }
    }

    /// That nobody answers is told once in a second, with how many have called.
    fn tell(&mut self, at: usize, why: String) {
        let Some(door) = self.doors.get_mut(at) else { return };
        door.since += 1;
        if door.told.is_none_or(|told| told.elapsed() >= EVERY) {
            door.told = Some(Instant::now());
            let times = std::mem::take(&mut door.since);
            self.untold.push(Unanswered { published: door.published, why, times });
        }
    }
}
