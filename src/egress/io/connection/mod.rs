//! One connection of a program: who is meant, whether that may be, and then its bytes.
//!
//! ```text
//! New ─┬─ a stand-in address ──> Finding ──> Dialling ──> Open
//!      ├─ an address with a rule ──────────────^
//!      ├─ any other ──> Unnamed: its first bytes must name a host ──> Finding
//!      └─ a proxy of ours ──> Proxied: the client says whom it wants ──> Finding, Dialling
//! ```
//! Where somebody is to be asked about the host, it is Asked before it is Finding or Dialling.
//!
//! What the program says first is looked at before the host gets it, piece by piece; what the host says is not, and in
//! some protocols it begins.

mod bytes;
mod call;
mod target;

use super::consent::Consent;
use super::dial;
use super::owner;
use super::proxy::Proxy;
use super::pump::{Pump, Room};
use super::refusals::{Kind, Refusal};
use crate::egress::names::Names;
use crate::spec::policy::hosts::{Destination, DnsName, Known, Rules};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{Result, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long a host may take to answer, and a program to say whom it means once it has begun to.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a lookup has found.
#[derive(Debug, Clone)]
pub(super) enum Found {
    /// These, in the order in which they were told.
    Addresses(Vec<IpAddr>),
    /// There is no such name, or it has no address.
    Nothing,
    /// Nobody could say, and why.
    Failed(String),
}

/// What a connection needs to go on.
#[derive(Debug)]
pub(super) enum Need {
    /// That something happens on one of its streams, or with its lookup.
    Events,
    /// Another turn: it could move more.
    Turn,
    /// The addresses of this name.
    Addresses(DnsName),
    /// Somebody's word that this may be.
    Consent(Destination),
    /// Nothing: it is over.
    Nothing,
    /// Nothing: it may not be.
    Refusal(Box<Refusal>),
}

/// Where a connection stands.
#[derive(Debug)]
enum State {
    /// Nothing is known but the address that was called.
    New,
    /// The address says nothing: the first bytes must.
    Unnamed,
    /// The client of a proxy has not said whom it wants.
    Proxied,
    /// Somebody is asked, and what has come of it.
    Asked(Option<Consent>),
    /// Its name is looked up.
    Finding,
    /// It was.
    Found(Found),
    /// The host is called; the addresses that are left, the next one last.
    Dialling { stream: TcpStream, at: SocketAddr, rest: Vec<SocketAddr>, until: Instant },
    /// Both speak.
    Open(TcpStream),
}

/// A connection of a program.
#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    outer: Token,
    meant: IpAddr,
    port: u16,
    name: Option<DnsName>,
    /// Where the client knows that we are between.
    proxy: Option<Proxy>,
    /// The address is that of the proxy.
    called_proxy: bool,
    /// What it hears when its host is there, and when it will not be.
    granted: Vec<u8>,
    farewell: Vec<u8>,
    /// The stand-in address that is not to be given to another name.
    held: Option<IpAddr>,
    /// Somebody was asked about the host and said yes.
    consented: bool,
    state: State,
    /// The program's first bytes, until it is known whom they name; how many of them the host has.
    head: Option<Vec<u8>>,
    passed: usize,
    head_until: Option<Instant>,
    client_ended: bool,
    out: Pump,
    back: Pump,
    broken: bool,
}

impl Connection {
    /// Takes a connection over that called this address and port.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(
        mut client: TcpStream,
        meant: IpAddr,
        port: u16,
        registry: &Registry,
        (inner, outer): (Token, Token),
    ) -> Result<Self> {
        dial::to_program(&client);
        registry.register(&mut client, inner, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Connection {
            client,
            outer,
            meant,
            port,
            name: None,
            proxy: None,
            called_proxy: false,
            granted: Vec::new(),
            farewell: Vec::new(),
            held: None,
            consented: false,
            state: State::New,
            head: Some(Vec::new()),
            passed: 0,
            head_until: None,
            client_ended: false,
            out: Pump::default(),
            back: Pump::default(),
            broken: false,
        })
    }

    /// When it has waited long enough for what it waits for.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Dialling { until, .. } => Some(*until),
            _ => self.head_until,
        }
    }

    /// Whether something that the program has sent is still on its way.
    pub(super) fn has_unsent(&self) -> bool {
        !self.out.is_over()
    }

    /// Whom it is for, as far as that is known.
    pub(super) fn destination(&self) -> Option<Destination> {
        let host = match &self.name {
            Some(name) => Known::Name(name.clone()),
            None => Known::Address(self.address()?),
        };
        Some(Destination { host, port: self.port })
    }

    /// The program's end of it.
    pub(super) fn caller(&self) -> Option<owner::Socket> {
        self.client.peer_addr().ok().map(owner::Socket::Stream)
    }

    /// Whether the program and its host speak with each other.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Bytes that went to the host, and that came from it.
    pub(super) fn moved(&self) -> (u64, u64) {
        (self.out.moved(), self.back.moved())
    }

    /// Goes as far as it goes now.
    pub(super) fn go_on(
        &mut self,
        rules: &Rules,
        names: &mut Names,
        room: &mut Room,
        registry: &Registry,
    ) -> Need {
        let went = match self.state {
            State::New => self.begin(rules, names, registry),
            State::Unnamed => self.learn_name(rules, &mut room.chunk),
            State::Proxied => self.hear_client(rules, &mut room.chunk),
            State::Asked(_) => self.hear_consent(registry),
            State::Finding => Ok(Need::Events),
            State::Found(_) => self.choose(rules, registry),
            State::Dialling { .. } => self.dial(rules, room, registry),
            State::Open(_) => self.relay(rules, room),
        };
        went.unwrap_or_else(|_| {
            self.broken = true;
            Need::Nothing
        })
    }

    /// Its streams end, and what it held is free again.
    pub(super) fn end(self, names: &mut Names) {
        if let Some(held) = self.held {
            names.release(held);
        }
        let whole = matches!(self.state, State::Open(_)) && !self.broken;
        if !self.farewell.is_empty() {
            // A few bytes on a stream that has taken nearly nothing yet.
            let _ = (&self.client).write(&self.farewell);
        } else if !whole {
            dial::reset(self.client);
            if let State::Open(stream) = self.state {
                dial::reset(stream);
            }
        }
    }

    fn is_late(&self) -> bool {
        self.head_until.is_some_and(|until| until <= Instant::now())
    }

    fn refuse(&mut self, why: String, rule: Option<String>) -> Need {
        self.give_up(Kind::Policy, why, rule)
    }

    /// What the program says is not what its protocol has.
    fn malformed(&mut self, why: &str) -> Need {
        self.give_up(Kind::Malformed, why.to_owned(), None)
    }

    /// The host is not to be had.
    fn unreachable(&mut self, why: String) -> Need {
        self.give_up(Kind::Unreachable, why, None)
    }

    fn give_up(&mut self, kind: Kind, why: String, rule: Option<String>) -> Need {
        Need::Refusal(Box::new(self.refusal(kind, why, rule)))
    }

    /// It ends, and its client hears why where it can.
    fn refusal(&mut self, kind: Kind, why: String, rule: Option<String>) -> Refusal {
        let name = self.name.as_ref().map(|name| name.as_str().to_owned());
        let refusal = Refusal {
            kind,
            name,
            address: self.address(),
            port: Some(self.port),
            why,
            rule,
            ..Refusal::default()
        };
        self.broken = true;
        if let Some(proxy) = self.proxy.as_ref().filter(|_| !self.is_open()) {
            self.farewell = proxy.refused(kind, &refusal.to_string());
        }
        refusal
    }

    /// The address that was called, where it says something to anybody outside: a stand-in does not, nor does where
    /// our own proxy is.
    fn address(&self) -> Option<IpAddr> {
        Some(self.meant).filter(|meant| !Names::is_synthetic(*meant) && !self.called_proxy)
    }
}
