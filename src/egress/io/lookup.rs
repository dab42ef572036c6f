//! Addresses of names, by the hosts file and the resolvers of this machine, without waiting.
//!
//! A question goes to one resolver at a time from a port of its own with a number of its own, and both kinds of
//! address are asked for at once. Only what answers exactly that counts.

use super::connection::Found;
use crate::egress::dns::{self, Kind, Reply};
use crate::egress::hosts::{self, Options};
use crate::spec::policy::hosts::DnsName;
use crate::sys::random;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// How long an answer is believed at most, whatever it says of itself.
const BELIEVED: Duration = Duration::from_secs(30);
/// Answers that are kept.
const KEPT: usize = 256;
/// The longest answer: what is asked for by EDNS0 is less.
const LONGEST: usize = 4096;

/// Looks names up.
#[derive(Debug)]
pub(super) struct Resolver {
    tokens: usize,
    next: usize,
    lookups: BTreeMap<usize, Lookup>,
    known: BTreeMap<DnsName, (Vec<IpAddr>, Instant)>,
    found: VecDeque<(usize, Found)>,
}

/// A name that is being looked up.
#[derive(Debug)]
struct Lookup {
    name: DnsName,
    /// Who waits for it.
    asked_by: Vec<usize>,
    servers: Vec<SocketAddr>,
    options: Options,
    /// How many questions were sent, each to the next resolver.
    sent: usize,
    socket: Option<UdpSocket>,
    /// The numbers of the questions that are not answered.
    open: Vec<(u16, Kind)>,
    addresses: Vec<(IpAddr, Duration)>,
    failure: Option<&'static str>,
    until: Instant,
}

impl Resolver {
    /// One that has all the tokens from this number on.
    pub(super) fn new(tokens: usize) -> Self {
        Resolver { tokens, next: 0, lookups: BTreeMap::new(), known: BTreeMap::new(), found: VecDeque::new() }
    }

    /// The addresses of a name when they are known at once; else [`Resolver::next_found`] has them later, for `by`.
    pub(super) fn look_up(&mut self, registry: &Registry, name: &DnsName, by: usize) -> Option<Found> {
        let now = Instant::now();
        self.known.retain(|_, (_, until)| *until > now);
        if let Some((addresses, _)) = self.known.get(name) {
            return Some(Found::Addresses(addresses.clone()));
        }
        let text = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let addresses = hosts::addresses(&text, name.as_str());
        if !addresses.is_empty() {
            return Some(Found::Addresses(addresses));
        }
        if let Some(lookup) = self.lookups.values_mut().find(|lookup| lookup.name == *name) {
            lookup.asked_by.push(by);
            return None;
        }
        let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let mut lookup = Lookup {
            name: name.clone(),
            asked_by: vec![by],
            servers: hosts::servers(&text),
            options: hosts::options(&text),
            sent: 0,
            socket: None,
            open: Vec::new(),
            addresses: Vec::new(),
            failure: None,
            until: now,
        };
        let token = self.next;
        self.next += 1;
        match lookup.ask(registry, Token(self.tokens + token)) {
            Ok(()) => {
                self.lookups.insert(token, lookup);
                None
            }
            Err(why) => Some(Found::Failed(why)),
        }
    }

    /// Nobody waits under this number any more.
    pub(super) fn forget(&mut self, by: usize) {
        self.lookups.values_mut().for_each(|lookup| lookup.asked_by.retain(|one| *one != by));
        self.lookups.retain(|_, lookup| !lookup.asked_by.is_empty());
    }

    /// Something arrived.
    pub(super) fn ready(&mut self, registry: &Registry, token: Token) {
        let Some(number) = token.0.checked_sub(self.tokens) else { return };
        let Some(lookup) = self.lookups.get_mut(&number) else { return };
        if lookup.hear() {
            self.go_on(registry, number);
        }
    }

    /// Asks the next resolver where one has not answered in time.
    pub(super) fn tick(&mut self, registry: &Registry, now: Instant) {
        let late: Vec<usize> = self
            .lookups
            .iter()
            .filter(|(_, lookup)| lookup.until <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(lookup) = self.lookups.get_mut(&number) {
                lookup.failure.get_or_insert("no resolver answers");
            }
            self.go_on(registry, number);
        }
    }

    /// When [`Resolver::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.lookups.values().map(|lookup| lookup.until).min()
    }

    /// What was found, and for whom.
    pub(super) fn next_found(&mut self) -> Option<(usize, Found)> {
        self.found.pop_front()
    }

    /// A lookup has all its answers, or will have no more from the resolver that it asked.
    fn go_on(&mut self, registry: &Registry, number: usize) {
        let Some(mut lookup) = self.lookups.remove(&number) else { return };
        let answered = lookup.open.is_empty() && lookup.failure.is_none();
        let found = if !lookup.addresses.is_empty() {
            self.keep(&lookup);
            Found::Addresses(lookup.addresses.iter().map(|(address, _)| *address).collect())
        } else if answered {
            Found::Nothing
        } else {
            match lookup.ask(registry, Token(self.tokens + number)) {
                Ok(()) => {
                    self.lookups.insert(number, lookup);
                    return;
                }
                Err(why) => Found::Failed(why),
            }
        };
        self.found.extend(lookup.asked_by.iter().map(|by| (*by, found.clone())));
    }

    fn keep(&mut self, lookup: &Lookup) {
        let lives = lookup.addresses.iter().map(|(_, lives)| *lives).min().unwrap_or_default().min(BELIEVED);
        if !lives.is_zero() && self.known.len() < KEPT {
            let addresses = lookup.addresses.iter().map(|(address, _)| *address).collect();
            self.known.insert(lookup.name.clone(), (addresses, Instant::now() + lives));
        }
    }
}

impl Lookup {
    /// Asks the next resolver for both kinds of address.
    fn ask(&mut self, registry: &Registry, token: Token) -> Result<(), String> {
        let rounds = (0..self.options.attempts).flat_map(|_| self.servers.clone());
        for server in rounds.skip(self.sent).collect::<Vec<_>>() {
            self.sent += 1;
            self.addresses.clear();
            match self.ask_one(server, registry, token) {
                Ok(()) => {
                    self.failure = None;
                    self.until = Instant::now() + self.options.timeout;
                    return Ok(());
                }
                Err(_) => self.failure = Some("no resolver can be reached"),
            }
        }
        Err(self.failure.unwrap_or("no resolver answers").to_owned())
    }

    fn ask_one(&mut self, server: SocketAddr, registry: &Registry, token: Token) -> std::io::Result<()> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(server)?;
        registry.register(&mut socket, token, Interest::READABLE)?;
        self.open.clear();
        for kind in [Kind::A, Kind::Aaaa] {
            let mut number = [0; 2];
            random::fill(&mut number)?;
            let number = u16::from_ne_bytes(number);
            let question = dns::query(number, self.name.as_str(), kind)
                .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
            socket.send(&question)?;
            self.open.push((number, kind));
        }
        self.socket = Some(socket);
        Ok(())
    }

    /// Takes answers in; true when there is nothing more to wait for from this resolver.
    fn hear(&mut self) -> bool {
        let Some(socket) = &self.socket else { return true };
        let mut bytes = [0; LONGEST];
        loop {
            let message = match socket.recv(&mut bytes) {
                Ok(count) => bytes.get(..count).unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
                Err(_) => {
                    self.failure = Some("a resolver refuses questions");
                    return true;
                }
            };
            let answered = self.open.iter().position(|(number, kind)| {
                let reply = dns::reply(message, *number, self.name.as_str(), *kind);
                match &reply {
                    Some(Reply::Addresses(addresses)) => self.addresses.extend(addresses),
                    Some(Reply::Failed(why)) => self.failure = Some(why),
                    Some(Reply::Truncated) => self.failure = Some("an answer is too long"),
                    Some(Reply::None) | None => {}
                }
                reply.is_some()
            });
            if let Some(at) = answered {
                self.open.remove(at);
            }
            if self.open.is_empty() {
                return true;
            }
        }
    }
}
