//! Addresses of names, by the hosts file and the resolvers of this machine, without waiting.
//!
//! A question goes to one resolver at a time from a port of its own with a number of its own, and both kinds of
//! address are asked for at once. Only what answers exactly that counts. What does not fit a datagram is asked for again
//! over TCP, of the same resolver and within the same time.

mod stream;

use super::connection::Found;
use super::outside::{File, Outside};
use super::pump::again;
use crate::egress::dns::{Asking, Taken};
use crate::egress::hosts::{self, Options};
use crate::spec::policy::hosts::DnsName;
use crate::sys::random;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use std::collections::{BTreeMap, VecDeque};
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use stream::{Next, Stream};

/// How long an answer is believed at most, whatever it says of itself.
const BELIEVED: Duration = Duration::from_secs(30);
/// Answers that are kept.
const KEPT: usize = 256;
/// The longest datagram that is read: what is asked for by EDNS0 is less.
const DATAGRAM: usize = 4096;

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
    /// How often a resolver was asked, each time the next one.
    sent: usize,
    /// The resolver that is asked now, and how.
    asked: Option<(SocketAddr, Way)>,
    asking: Asking,
    until: Instant,
}

/// How a resolver is asked.
#[derive(Debug)]
enum Way {
    Datagrams(UdpSocket),
    Stream(Stream),
}

impl Resolver {
    /// One that has all the tokens from this number on.
    pub(super) fn new(tokens: usize) -> Self {
        Resolver { tokens, next: 0, lookups: BTreeMap::new(), known: BTreeMap::new(), found: VecDeque::new() }
    }

    /// The addresses of a name when they are known at once; else [`Resolver::next_found`] has them later, for `by`.
    pub(super) fn look_up(
        &mut self,
        registry: &Registry,
        name: &DnsName,
        by: usize,
        files: &mut dyn Outside,
    ) -> Option<Found> {
        let now = Instant::now();
        self.known.retain(|_, (_, until)| *until > now);
        if let Some((addresses, _)) = self.known.get(name) {
            return Some(Found::Addresses(addresses.clone()));
        }
        let text = files.text(File::Hosts);
        let addresses = hosts::addresses(&text, name.as_str());
        if !addresses.is_empty() {
            return Some(Found::Addresses(addresses));
        }
        if let Some(lookup) = self.lookups.values_mut().find(|lookup| lookup.name == *name) {
            lookup.asked_by.push(by);
            return None;
        }
        let text = files.text(File::Resolvers);
        let mut lookup = Lookup {
            name: name.clone(),
            asked_by: vec![by],
            servers: hosts::servers(&text),
            options: hosts::options(&text),
            sent: 0,
            asked: None,
            asking: Asking::about(name.as_str()),
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
        if lookup.hear(registry, token) {
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
                lookup.asking.failure.get_or_insert("no resolver answers");
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
        let Asking { addresses, failure, .. } = &lookup.asking;
        let found = if !addresses.is_empty() {
            self.keep(&lookup);
            Found::Addresses(addresses.iter().map(|(address, _)| *address).collect())
        } else if lookup.asking.is_over() && failure.is_none() {
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

    fn keep(&mut self, Lookup { name, asking, .. }: &Lookup) {
        let lives = asking.addresses.iter().map(|(_, lives)| *lives).min().unwrap_or_default().min(BELIEVED);
        if !lives.is_zero() && self.known.len() < KEPT {
            let addresses = asking.addresses.iter().map(|(address, _)| *address).collect();
            self.known.insert(name.clone(), (addresses, Instant::now() + lives));
        }
    }
}

impl Lookup {
    /// Asks the next resolver for both kinds of address.
    fn ask(&mut self, registry: &Registry, token: Token) -> std::result::Result<(), String> {
        let mut failure = self.asking.failure;
        let rounds = (0..self.options.attempts).flat_map(|_| self.servers.clone());
        for server in rounds.skip(self.sent).collect::<Vec<_>>() {
            self.sent += 1;
            self.asking = Asking::about(self.name.as_str());
            let asked = match self.options.over_tcp {
                true => self.ask_over_tcp(server, registry, token),
                false => self.ask_by_datagram(server, registry, token),
            };
            match asked {
                Ok(()) => {
                    self.until = Instant::now() + self.options.timeout;
                    return Ok(());
                }
                Err(_) => failure = Some("no resolver can be reached"),
            }
        }
        Err(failure.unwrap_or("no resolver answers").to_owned())
    }

    fn ask_by_datagram(&mut self, server: SocketAddr, registry: &Registry, token: Token) -> Result<()> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(server)?;
        registry.register(&mut socket, token, Interest::READABLE)?;
        for question in self.asking.questions(random::number)? {
            socket.send(&question)?;
        }
        self.asked = Some((server, Way::Datagrams(socket)));
        Ok(())
    }

    /// Asks what is not answered, all of it on one connection.
    fn ask_over_tcp(&mut self, server: SocketAddr, registry: &Registry, token: Token) -> Result<()> {
        // What was asked before is closed first: its events would have the same token.
        self.asked = None;
        let stream = Stream::new(server, &self.asking.questions(random::number)?, registry, token)?;
        self.asked = Some((server, Way::Stream(stream)));
        Ok(())
    }

    /// Takes answers in; true when there is nothing more to wait for from this resolver.
    fn hear(&mut self, registry: &Registry, token: Token) -> bool {
        while !self.asking.is_over() {
            let Some((server, way)) = &mut self.asked else { return true };
            let (server, is_stream) = (*server, matches!(way, Way::Stream(_)));
            let again = match way.next() {
                Next::Message(message) => match self.asking.take(&message) {
                    Taken::Answer => false,
                    // Anybody can send a datagram.
                    Taken::Stranger if !is_stream => false,
                    Taken::Stranger => return self.failed("a resolver answers what it was not asked"),
                    Taken::Truncated if is_stream => return self.failed("an answer is too long"),
                    Taken::Truncated => true,
                },
                Next::Waits => return false,
                Next::Failed(why) => return self.failed(why),
                Next::Ended => true,
            };
            if again && self.ask_over_tcp(server, registry, token).is_err() {
                return self.failed(stream::NONE);
            }
        }
        true
    }

    /// This resolver has said all that it will.
    fn failed(&mut self, why: &'static str) -> bool {
        self.asking.failure = Some(why);
        true
    }
}

impl Way {
    /// What the resolver says next.
    fn next(&mut self) -> Next {
        let socket = match self {
            Way::Stream(stream) => return stream.next(),
            Way::Datagrams(socket) => socket,
        };
        let mut bytes = [0; DATAGRAM];
        match again(|| socket.recv(&mut bytes)) {
            Ok(Some(count)) => Next::Message(bytes.get(..count).unwrap_or_default().to_vec()),
            Ok(None) => Next::Waits,
            Err(_) => Next::Failed("a resolver refuses questions"),
        }
    }
}
