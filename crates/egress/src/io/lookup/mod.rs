//! Non-blocking lookup of names in the hosts file and through the resolvers of this machine.
//!
//! A query is sent to one resolver at a time, from a random port and with a random id, for both address types at once.
//! Only an exact reply is accepted. A truncated reply is repeated over TCP, to the same resolver and within the same
//! timeout.

mod stream;

use super::connection::LookupResult;
use super::pump::retry_interrupted;
use super::relay_services::{RelayServices, ResolverFile};
use crate::dns::{ReceivedResponse, ResolverQuery};
use crate::resolver_files::{self, ResolverOptions};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use saggar_policy::hosts::DnsName;
use saggar_sys::random;
use std::collections::{BTreeMap, VecDeque};
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use stream::{NextReply, ResolverStream};

/// Maximum time that a reply is cached, whatever its time to live.
const MAX_CACHE_TIME: Duration = Duration::from_secs(30);
/// Maximum number of cached replies.
const MAX_CACHED: usize = 256;
/// Size of the receive buffer for a datagram, in bytes. The EDNS0 size in queries is smaller.
const DATAGRAM: usize = 4096;

/// Looks up names.
#[derive(Debug)]
pub(super) struct Resolver {
    first_token: usize,
    next_lookup: usize,
    lookups: BTreeMap<usize, Lookup>,
    cache: BTreeMap<DnsName, (Vec<IpAddr>, Instant)>,
    results: VecDeque<(usize, LookupResult)>,
}

/// A running lookup of a name.
#[derive(Debug)]
struct Lookup {
    name: DnsName,
    /// The connections that wait for it.
    waiting: Vec<usize>,
    servers: Vec<SocketAddr>,
    options: ResolverOptions,
    /// Number of queries sent, each to the next resolver.
    queries_sent: usize,
    /// The current resolver, and the transport of the query.
    transport: Option<(SocketAddr, QueryTransport)>,
    query: ResolverQuery,
    deadline: Instant,
}

/// The transport of a query.
#[derive(Debug)]
enum QueryTransport {
    Udp(UdpSocket),
    Tcp(ResolverStream),
}

impl Resolver {
    /// Creates a resolver that uses all tokens from this number on.
    pub(super) fn new(tokens: usize) -> Self {
        Resolver {
            first_token: tokens,
            next_lookup: 0,
            lookups: BTreeMap::new(),
            cache: BTreeMap::new(),
            results: VecDeque::new(),
        }
    }

    /// The addresses of a name, if they are known at once. Otherwise [`Resolver::next_result`] returns them later, for
    /// `by`.
    pub(super) fn look_up(
        &mut self,
        registry: &Registry,
        name: &DnsName,
        by: usize,
        files: &mut dyn RelayServices,
    ) -> Option<LookupResult> {
        let now = Instant::now();
        self.cache.retain(|_, (_, until)| *until > now);
        if let Some((addresses, _)) = self.cache.get(name) {
            return Some(LookupResult::Addresses(addresses.clone()));
        }
        let text = files.read_file(ResolverFile::Hosts);
        let addresses = resolver_files::hosts_addresses(&text, name.as_str());
        if !addresses.is_empty() {
            return Some(LookupResult::Addresses(addresses));
        }
        if let Some(lookup) = self.lookups.values_mut().find(|lookup| lookup.name == *name) {
            lookup.waiting.push(by);
            return None;
        }
        let text = files.read_file(ResolverFile::Resolvers);
        let mut lookup = Lookup {
            name: name.clone(),
            waiting: vec![by],
            servers: resolver_files::nameservers(&text),
            options: resolver_files::resolver_options(&text),
            queries_sent: 0,
            transport: None,
            query: ResolverQuery::for_name(name.as_str()),
            deadline: now,
        };
        let token = self.next_lookup;
        self.next_lookup += 1;
        match lookup.query_next_server(registry, Token(self.first_token + token)) {
            Ok(()) => {
                self.lookups.insert(token, lookup);
                None
            }
            Err(why) => Some(LookupResult::Failed(why)),
        }
    }

    /// Removes a waiting connection.
    pub(super) fn forget(&mut self, by: usize) {
        self.lookups.values_mut().for_each(|lookup| lookup.waiting.retain(|one| *one != by));
        self.lookups.retain(|_, lookup| !lookup.waiting.is_empty());
    }

    /// Handles an event.
    pub(super) fn on_event(&mut self, registry: &Registry, token: Token) {
        let Some(number) = token.0.checked_sub(self.first_token) else { return };
        let Some(lookup) = self.lookups.get_mut(&number) else { return };
        if lookup.receive_replies(registry, token) {
            self.advance(registry, number);
        }
    }

    /// Queries the next resolver after a timeout.
    pub(super) fn tick(&mut self, registry: &Registry, now: Instant) {
        let late: Vec<usize> = self
            .lookups
            .iter()
            .filter(|(_, lookup)| lookup.deadline <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(lookup) = self.lookups.get_mut(&number) {
                lookup.query.failure.get_or_insert("no resolver answers");
            }
            self.advance(registry, number);
        }
    }

    /// When [`Resolver::tick`] must be called next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.lookups.values().map(|lookup| lookup.deadline).min()
    }

    /// The next result, and the connection that it is for.
    pub(super) fn next_result(&mut self) -> Option<(usize, LookupResult)> {
        self.results.pop_front()
    }

    /// Ends a lookup that is complete, or queries the next resolver if the current one has failed.
    fn advance(&mut self, registry: &Registry, number: usize) {
        let Some(mut lookup) = self.lookups.remove(&number) else { return };
        let ResolverQuery { addresses, failure, .. } = &lookup.query;
        let found = if !addresses.is_empty() {
            self.cache_result(&lookup);
            LookupResult::Addresses(addresses.iter().map(|(address, _)| *address).collect())
        } else if lookup.query.is_complete() && failure.is_none() {
            LookupResult::NoAddress
        } else {
            match lookup.query_next_server(registry, Token(self.first_token + number)) {
                Ok(()) => {
                    self.lookups.insert(number, lookup);
                    return;
                }
                Err(why) => LookupResult::Failed(why),
            }
        };
        self.results.extend(lookup.waiting.iter().map(|by| (*by, found.clone())));
    }

    fn cache_result(&mut self, Lookup { name, query: asking, .. }: &Lookup) {
        let lives =
            asking.addresses.iter().map(|(_, lives)| *lives).min().unwrap_or_default().min(MAX_CACHE_TIME);
        if !lives.is_zero() && self.cache.len() < MAX_CACHED {
            let addresses = asking.addresses.iter().map(|(address, _)| *address).collect();
            self.cache.insert(name.clone(), (addresses, Instant::now() + lives));
        }
    }
}

impl Lookup {
    /// Queries the next resolver for both address types.
    fn query_next_server(&mut self, registry: &Registry, token: Token) -> std::result::Result<(), String> {
        let mut failure = self.query.failure;
        let rounds = (0..self.options.attempts).flat_map(|_| self.servers.clone());
        for server in rounds.skip(self.queries_sent).collect::<Vec<_>>() {
            self.queries_sent += 1;
            self.query = ResolverQuery::for_name(self.name.as_str());
            let asked = match self.options.over_tcp {
                true => self.query_over_tcp(server, registry, token),
                false => self.query_over_udp(server, registry, token),
            };
            match asked {
                Ok(()) => {
                    self.deadline = Instant::now() + self.options.timeout;
                    return Ok(());
                }
                Err(_) => failure = Some("no resolver can be reached"),
            }
        }
        Err(failure.unwrap_or("no resolver answers").to_owned())
    }

    fn query_over_udp(&mut self, server: SocketAddr, registry: &Registry, token: Token) -> Result<()> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(server)?;
        registry.register(&mut socket, token, Interest::READABLE)?;
        for question in self.query.encode_questions(random::number)? {
            socket.send(&question)?;
        }
        self.transport = Some((server, QueryTransport::Udp(socket)));
        Ok(())
    }

    /// Sends the unanswered queries on one TCP connection.
    fn query_over_tcp(&mut self, server: SocketAddr, registry: &Registry, token: Token) -> Result<()> {
        // The earlier socket is closed first, because its events would have the same token.
        self.transport = None;
        let stream =
            ResolverStream::new(server, &self.query.encode_questions(random::number)?, registry, token)?;
        self.transport = Some((server, QueryTransport::Tcp(stream)));
        Ok(())
    }

    /// Processes replies; returns true if no more are expected from this resolver.
    fn receive_replies(&mut self, registry: &Registry, token: Token) -> bool {
        while !self.query.is_complete() {
            let Some((server, way)) = &mut self.transport else { return true };
            let (server, is_stream) = (*server, matches!(way, QueryTransport::Tcp(_)));
            let again = match way.next_reply() {
                NextReply::Message(message) => match self.query.receive(&message) {
                    ReceivedResponse::Answer => false,
                    // Any host can send a datagram, so it is ignored.
                    ReceivedResponse::Unrelated if !is_stream => false,
                    ReceivedResponse::Unrelated => {
                        return self.set_failure("a resolver answers what it was not asked");
                    }
                    ReceivedResponse::Truncated if is_stream => {
                        return self.set_failure("an answer is too long");
                    }
                    ReceivedResponse::Truncated => true,
                },
                NextReply::Pending => return false,
                NextReply::Failed(why) => return self.set_failure(why),
                NextReply::Ended => true,
            };
            if again && self.query_over_tcp(server, registry, token).is_err() {
                return self.set_failure(stream::CONNECT_FAILED);
            }
        }
        true
    }

    /// Records why this resolver's reply is incomplete; no more replies are expected.
    fn set_failure(&mut self, why: &'static str) -> bool {
        self.query.failure = Some(why);
        true
    }
}

impl QueryTransport {
    /// The next reply of the resolver.
    fn next_reply(&mut self) -> NextReply {
        let socket = match self {
            QueryTransport::Tcp(stream) => return stream.next_reply(),
            QueryTransport::Udp(socket) => socket,
        };
        let mut bytes = [0; DATAGRAM];
        match retry_interrupted(|| socket.recv(&mut bytes)) {
            Ok(Some(count)) => NextReply::Message(bytes.get(..count).unwrap_or_default().to_vec()),
            Ok(None) => NextReply::Pending,
            Err(_) => NextReply::Failed("a resolver refuses questions"),
        }
    }
}
