//! One connection of a program: finds its host, checks the rules, and relays its bytes.
//!
//! ```text
//! New ─┬─ a stand-in address ──> LookingUp ──> Connecting ──> Open
//!      ├─ an address with a rule ──────────────────^
//!      ├─ any other ──> AwaitingName: its first bytes must name a host ──> LookingUp
//!      └─ the proxy ──> AwaitingProxyRequest: the client names a host ──> LookingUp, Connecting
//! ```
//! If the host needs consent, the state is AwaitingConsent before LookingUp or Connecting.
//!
//! The first bytes of the program, and the head of each HTTP request, are checked chunk by chunk before they are sent to
//! the host. The bytes of the host are not checked; in some protocols the host sends first.

mod connect;
mod relay;
mod target;

use super::consent::HostConsent;
use super::denials::{DenialKind, NetworkDenial};
use super::dial;
use super::linger::LingeringClient;
use super::proxy::ClientProxy;
use super::pump::{Pump, RelayBuffer};
use super::socket_owner;
use crate::request_body::RequestBody;
use crate::stand_in_table::StandInTable;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use saggar_policy::hosts::{Destination, DestinationHost, DnsName, HostRules};
use std::io::{Result, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Time limit for a host to accept a connection, and for a program to name its host once it has sent bytes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The result of a lookup.
#[derive(Debug, Clone)]
pub(super) enum LookupResult {
    /// The addresses, in the order of the reply.
    Addresses(Vec<IpAddr>),
    /// The name does not exist or has no address.
    NoAddress,
    /// The lookup failed; the reason.
    Failed(String),
}

/// The condition for a connection to continue.
#[derive(Debug)]
pub(super) enum ConnectionNeed {
    /// An event on one of its streams, or the result of its lookup.
    Events,
    /// Another turn, because it can transfer more at once.
    Turn,
    /// The addresses of this name.
    Lookup(DnsName),
    /// Consent to this destination.
    Consent(Destination),
    /// None: the connection has ended.
    Closed,
    /// None: the connection was denied.
    Denied(Box<NetworkDenial>),
}

/// The state of a connection.
#[derive(Debug)]
enum RelayedConnectionState {
    /// Only the called address is known.
    New,
    /// The address identifies no host, so the first bytes must name one.
    AwaitingName,
    /// The client of a proxy has not named a host.
    AwaitingProxyRequest,
    /// Waits for consent to the host; the answer, once it has arrived.
    AwaitingConsent(Option<HostConsent>),
    /// Waits for the lookup of its name.
    LookingUp,
    /// The lookup is complete.
    LookedUp(LookupResult),
    /// Connects to the host; `remaining` are the other addresses, the next one last.
    Connecting { stream: TcpStream, address: SocketAddr, remaining: Vec<SocketAddr>, deadline: Instant },
    /// Both streams are connected.
    Open(TcpStream),
}

/// A connection of a program.
#[derive(Debug)]
pub(super) struct RelayedConnection {
    client: TcpStream,
    host_token: Token,
    called_address: IpAddr,
    port: u16,
    name: Option<DnsName>,
    /// The proxy protocol, if the client called a proxy.
    proxy: Option<ClientProxy>,
    /// Whether the called address is that of the proxy.
    is_proxy_call: bool,
    /// The replies to the proxy client after a successful connect and after a failure.
    success_reply: Vec<u8>,
    failure_reply: Vec<u8>,
    /// The stand-in address that must not be assigned to another name.
    held_stand_in: Option<IpAddr>,
    /// Whether the user consented to the host.
    has_consent: bool,
    state: RelayedConnectionState,
    /// The first bytes of the program, or of its present HTTP request, until they are checked; `forwarded_bytes` of them
    /// were sent to the host. `None` when no more are checked.
    first_bytes: Option<Vec<u8>>,
    forwarded_bytes: usize,
    /// The rest of an HTTP request whose head was checked. `first_bytes` then starts in it.
    body: Option<RequestBody>,
    name_deadline: Option<Instant>,
    client_read_closed: bool,
    outbound: Pump,
    inbound: Pump,
    is_broken: bool,
    /// Whether the host reset the connection.
    is_host_reset: bool,
}

impl RelayedConnection {
    /// Takes over a connection to this address and port.
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
        dial::configure_program_stream(&client);
        registry.register(&mut client, inner, Interest::READABLE | Interest::WRITABLE)?;
        Ok(RelayedConnection {
            client,
            host_token: outer,
            called_address: meant,
            port,
            name: None,
            proxy: None,
            is_proxy_call: false,
            success_reply: Vec::new(),
            failure_reply: Vec::new(),
            held_stand_in: None,
            has_consent: false,
            state: RelayedConnectionState::New,
            first_bytes: Some(Vec::new()),
            forwarded_bytes: 0,
            body: None,
            name_deadline: None,
            client_read_closed: false,
            outbound: Pump::default(),
            inbound: Pump::default(),
            is_broken: false,
            is_host_reset: false,
        })
    }

    /// When the connection times out in its current state.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            RelayedConnectionState::Connecting { deadline: until, .. } => Some(*until),
            _ => self.name_deadline,
        }
    }

    /// Whether bytes of the program are not written to the host yet.
    pub(super) fn has_unsent(&self) -> bool {
        !self.outbound.is_finished()
    }

    /// The destination, as far as it is known.
    pub(super) fn destination(&self) -> Option<Destination> {
        let host = match &self.name {
            Some(name) => DestinationHost::Name(name.clone()),
            None => DestinationHost::Address(self.reported_address()?),
        };
        Some(Destination { host, port: self.port })
    }

    /// The program's socket.
    pub(super) fn client_socket(&self) -> Option<socket_owner::SocketOwnerQuery> {
        self.client.peer_addr().ok().map(socket_owner::SocketOwnerQuery::Stream)
    }

    /// Whether both streams are connected.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, RelayedConnectionState::Open(_))
    }

    /// Numbers of bytes sent to the host and received from it.
    pub(super) fn bytes_moved(&self) -> (u64, u64) {
        (self.outbound.moved(), self.inbound.moved())
    }

    /// Advances as far as possible without blocking.
    pub(super) fn advance(
        &mut self,
        rules: &HostRules,
        names: &mut StandInTable,
        buffer: &mut RelayBuffer,
        registry: &Registry,
    ) -> ConnectionNeed {
        let went = match self.state {
            RelayedConnectionState::New => self.begin(rules, names, registry),
            RelayedConnectionState::AwaitingName => self.sniff_name(rules, &mut buffer.chunk),
            RelayedConnectionState::AwaitingProxyRequest => {
                self.handle_proxy_request(rules, &mut buffer.chunk)
            }
            RelayedConnectionState::AwaitingConsent(_) => self.handle_consent(registry),
            RelayedConnectionState::LookingUp => Ok(ConnectionNeed::Events),
            RelayedConnectionState::LookedUp(_) => self.connect_to_found(rules, registry),
            RelayedConnectionState::Connecting { .. } => self.check_connect(rules, buffer, registry),
            RelayedConnectionState::Open(_) => self.relay(rules, buffer),
        };
        went.unwrap_or_else(|_| {
            self.is_broken = true;
            ConnectionNeed::Closed
        })
    }

    /// Closes both streams and releases the stand-in address. Returns the program's end if the program has to read a
    /// reply, or the end of one, although it may still send.
    pub(super) fn close(self, names: &mut StandInTable) -> Option<LingeringClient> {
        if let Some(held) = self.held_stand_in {
            names.release(held);
        }
        if !self.failure_reply.is_empty() {
            // A few bytes on a stream to which almost nothing was written.
            let _ = (&self.client).write(&self.failure_reply);
            return Some(LingeringClient::new(self.client));
        }
        let RelayedConnectionState::Open(host) = self.state else {
            dial::reset_on_close(&self.client);
            return None;
        };
        if self.is_broken {
            dial::reset_on_close(&self.client);
            dial::reset_on_close(&host);
            return None;
        }
        let may_send = self.outbound.may_send();
        if self.outbound.is_abandoned() && (may_send || !self.is_host_reset) {
            return Some(LingeringClient::new(self.client));
        }
        if self.is_host_reset && may_send && self.inbound.moved() > 0 {
            return Some(LingeringClient::after_reset(self.client));
        }
        if self.is_host_reset {
            dial::reset_on_close(&self.client);
        }
        None
    }

    fn is_name_overdue(&self) -> bool {
        self.name_deadline.is_some_and(|until| until <= Instant::now())
    }

    fn deny(&mut self, why: String, rule: Option<String>) -> ConnectionNeed {
        self.deny_as(DenialKind::Policy, why, rule)
    }

    /// Denies the connection because the program violates its protocol.
    fn deny_malformed(&mut self, why: &str) -> ConnectionNeed {
        self.deny_as(DenialKind::Malformed, why.to_owned(), None)
    }

    /// Ends the connection because the host is unreachable.
    fn deny_unreachable(&mut self, why: String) -> ConnectionNeed {
        self.deny_as(DenialKind::Unreachable, why, None)
    }

    fn deny_as(&mut self, kind: DenialKind, why: String, rule: Option<String>) -> ConnectionNeed {
        ConnectionNeed::Denied(Box::new(self.denial(kind, why, rule)))
    }

    /// Ends the connection; a proxy client gets a reply with the reason.
    fn denial(&mut self, kind: DenialKind, why: String, rule: Option<String>) -> NetworkDenial {
        let name = self.name.as_ref().map(|name| name.as_str().to_owned());
        let refusal = NetworkDenial {
            kind,
            name,
            address: self.reported_address(),
            port: Some(self.port),
            why,
            rule,
            ..NetworkDenial::default()
        };
        self.is_broken = true;
        if let Some(proxy) = self.proxy.as_ref().filter(|_| !self.is_open()) {
            self.failure_reply = proxy.denial_reply(kind, &refusal.to_string());
        }
        refusal
    }

    /// The called address, if it has a meaning outside the sandbox. Stand-in addresses and the address of the proxy
    /// have none.
    fn reported_address(&self) -> Option<IpAddr> {
        Some(self.called_address).filter(|meant| !StandInTable::is_stand_in(*meant) && !self.is_proxy_call)
    }
}
