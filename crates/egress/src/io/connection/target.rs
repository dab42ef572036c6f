//! Determines the destination of a connection and checks the rules for it.

use super::super::proxy::{ClientProxy, ProxyRequest};
use super::super::{address_denial, parse_name};
use super::{
    CONNECT_TIMEOUT, ConnectionNeed, DenialKind, NetworkDenial, RelayedConnection, RelayedConnectionState,
};
use crate::address;
use crate::io::consent::HostConsent;
use crate::sniff::{self, SniffResult};
use crate::stand_in_table::StandInTable;
use mio::Registry;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use saggar_policy::hosts::{Destination, DestinationHost, DnsName, HostRules, HostVerdict};
use std::io::{Result, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Instant;

const NO_RULE: &str = "no rule names this address, and the connection names no host";
/// The denial for an address that was never assigned, or was reused since.
const UNKNOWN_STAND_IN: &str = "addresses in this range represent names inside, and this one is unassigned; \
                                connect to the host by its name";

impl RelayedConnection {
    pub(super) fn begin(
        &mut self,
        rules: &HostRules,
        names: &mut StandInTable,
        registry: &Registry,
    ) -> Result<ConnectionNeed> {
        if self.called_address.is_loopback() && self.proxy.is_none() {
            self.proxy = ClientProxy::for_port(self.port);
            if self.proxy.is_some() {
                self.is_proxy_call = true;
                self.state = RelayedConnectionState::AwaitingProxyRequest;
                self.name_deadline = Some(Instant::now() + CONNECT_TIMEOUT);
                return Ok(ConnectionNeed::Turn);
            }
        }
        if StandInTable::is_stand_in(self.called_address) {
            let Some(name) = names.name_of(self.called_address).and_then(parse_name) else {
                return Ok(self.deny(UNKNOWN_STAND_IN.into(), None));
            };
            if !names.acquire(self.called_address) {
                return Ok(self.deny_as(DenialKind::Limit, "too many names are in use".into(), None));
            }
            self.held_stand_in = Some(self.called_address);
            return Ok(self.connect_by_name(name, rules));
        }
        match rules.check_address_port(self.called_address, self.port) {
            HostVerdict::Denied(rule) => {
                let rule = rule.to_string();
                Ok(self.deny("it is denied".into(), Some(rule)))
            }
            HostVerdict::Allowed(_) => match address_denial(rules, self.called_address, self.port) {
                Some((why, rule)) => Ok(self.deny(why, rule)),
                None => self.connect(vec![SocketAddr::new(self.called_address, self.port)], registry),
            },
            // The client of a proxy sends nothing to its host before it gets a reply, so no name can follow.
            HostVerdict::NoRule if self.proxy.is_some() => Ok(self.deny("no rule names it".into(), None)),
            HostVerdict::NeedsConsent(_) if self.proxy.is_some() => Ok(self.decide_by_address(rules)),
            HostVerdict::NoRule | HostVerdict::NeedsConsent(_) => {
                self.state = RelayedConnectionState::AwaitingName;
                self.name_deadline = Some(Instant::now() + CONNECT_TIMEOUT);
                Ok(ConnectionNeed::Turn)
            }
        }
    }

    /// Continues with a known name: checks the rules for it.
    fn connect_by_name(&mut self, name: DnsName, rules: &HostRules) -> ConnectionNeed {
        self.name = Some(name.clone());
        match rules.check_name_port(&name, self.port) {
            HostVerdict::Allowed(_) => self.start_lookup(name),
            HostVerdict::NeedsConsent(_) => self.ask_consent(DestinationHost::Name(name)),
            HostVerdict::Denied(rule) => self.deny("it is denied".into(), Some(rule.to_string())),
            HostVerdict::NoRule => self.deny("no rule names it with this port".into(), None),
        }
    }

    fn start_lookup(&mut self, name: DnsName) -> ConnectionNeed {
        self.state = RelayedConnectionState::LookingUp;
        self.name_deadline = None;
        ConnectionNeed::Lookup(name)
    }

    /// Waits for consent to this host.
    fn ask_consent(&mut self, host: DestinationHost) -> ConnectionNeed {
        self.state = RelayedConnectionState::AwaitingConsent(None);
        self.name_deadline = None;
        ConnectionNeed::Consent(Destination { host, port: self.port })
    }

    /// Decides by the address, because no name is known.
    fn decide_by_address(&mut self, rules: &HostRules) -> ConnectionNeed {
        if !matches!(rules.check_address_port(self.called_address, self.port), HostVerdict::NeedsConsent(_)) {
            return self.deny(NO_RULE.into(), None);
        }
        // No question is asked about an address that is denied in any case.
        match address_denial(rules, self.called_address, self.port) {
            Some((why, rule)) => self.deny(why, rule),
            None => self.ask_consent(DestinationHost::Address(self.called_address)),
        }
    }

    /// Checks an accepted connection against new rules; returns the denial, if any.
    pub(in crate::io) fn recheck(&mut self, rules: &HostRules) -> Option<NetworkDenial> {
        let verdict = match (&self.state, &self.name) {
            // These states are checked when the destination is known.
            (
                RelayedConnectionState::New
                | RelayedConnectionState::AwaitingName
                | RelayedConnectionState::AwaitingProxyRequest,
                _,
            ) => return None,
            (_, Some(name)) => rules.check_name_port(name, self.port),
            (_, None) => rules.check_address_port(self.called_address, self.port),
        };
        let rule = match verdict {
            HostVerdict::Denied(rule) => Some(rule.to_string()),
            HostVerdict::NeedsConsent(_)
                if self.has_consent || matches!(self.state, RelayedConnectionState::AwaitingConsent(_)) =>
            {
                return None;
            }
            HostVerdict::NeedsConsent(_) | HostVerdict::NoRule => None,
            HostVerdict::Allowed(_) => {
                if matches!(self.state, RelayedConnectionState::AwaitingConsent(_)) {
                    self.set_consent(HostConsent::Granted);
                }
                let (why, rule) = self.peer_denial(rules)?;
                return Some(self.denial(DenialKind::Policy, why, rule));
            }
        };
        Some(self.denial(DenialKind::Policy, "the policy has changed, and does not allow it".into(), rule))
    }

    /// Why the connected address is denied, with its rule, or `None`.
    fn peer_denial(&self, rules: &HostRules) -> Option<(String, Option<String>)> {
        match &self.state {
            RelayedConnectionState::Open(stream) | RelayedConnectionState::Connecting { stream, .. } => {
                let peer = stream.peer_addr().ok()?;
                address_denial(rules, peer.ip(), self.port)
            }
            _ => None,
        }
    }

    /// Sets the answer to [`ConnectionNeed::Consent`].
    pub(in crate::io) fn set_consent(&mut self, consent: HostConsent) {
        if matches!(self.state, RelayedConnectionState::AwaitingConsent(_)) {
            self.state = RelayedConnectionState::AwaitingConsent(Some(consent));
        }
    }

    /// Whether the connection waits for consent.
    pub(in crate::io) fn is_awaiting_consent(&self) -> bool {
        matches!(self.state, RelayedConnectionState::AwaitingConsent(None))
    }

    /// Continues with the answer, or checks whether the program is still connected.
    pub(super) fn handle_consent(&mut self, registry: &Registry) -> Result<ConnectionNeed> {
        let RelayedConnectionState::AwaitingConsent(answer) = &mut self.state else {
            return Ok(ConnectionNeed::Events);
        };
        match (answer.take(), self.name.clone()) {
            (None, _) if self.has_client_closed() => Ok(ConnectionNeed::Closed),
            (None, _) => Ok(ConnectionNeed::Events),
            (Some(HostConsent::Granted), name) => {
                self.has_consent = true;
                match name {
                    Some(name) => Ok(self.start_lookup(name)),
                    None => self.connect(vec![SocketAddr::new(self.called_address, self.port)], registry),
                }
            }
            (Some(HostConsent::Denied(why)), _) => Ok(self.deny(why, None)),
        }
    }

    /// Whether the program has closed its sending side. It has then given up, or sends nothing more.
    fn has_client_closed(&self) -> bool {
        let ended = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut fds = [PollFd::new(self.client.as_fd(), ended)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Reads the first bytes of the program. An address without a rule needs a name with a rule.
    pub(super) fn sniff_name(&mut self, rules: &HostRules, chunk: &mut [u8]) -> Result<ConnectionNeed> {
        let more = self.read_head(chunk)?;
        let is_asked =
            matches!(rules.check_address_port(self.called_address, self.port), HostVerdict::NeedsConsent(_));
        match self.first_bytes.as_deref().map_or(SniffResult::NeedMore, sniff::sniff) {
            SniffResult::NeedMore if self.client_read_closed || self.is_name_overdue() => {
                Ok(self.decide_by_address(rules))
            }
            SniffResult::NeedMore if more => Ok(ConnectionNeed::Turn),
            SniffResult::NeedMore => Ok(ConnectionNeed::Events),
            SniffResult::Name { name, .. } => match parse_name(&name) {
                // A question about the address is possible; no rule allows a question about this name.
                Some(name) if is_asked && rules.check_name_port(&name, self.port) == HostVerdict::NoRule => {
                    Ok(self.decide_by_address(rules))
                }
                Some(name) => Ok(self.connect_by_name(name, rules)),
                None => Ok(self.decide_by_address(rules)),
            },
            SniffResult::NoName(_) => Ok(self.decide_by_address(rules)),
            SniffResult::Malformed(why) => Ok(self.deny_malformed(why)),
        }
    }

    /// Reads from a proxy client until it has named a host.
    pub(super) fn handle_proxy_request(
        &mut self,
        rules: &HostRules,
        chunk: &mut [u8],
    ) -> Result<ConnectionNeed> {
        let more = self.read_head(chunk)?;
        let is_over = self.client_read_closed || self.is_name_overdue();
        let (Some(proxy), Some(head)) = (&mut self.proxy, &mut self.first_bytes) else {
            return Ok(ConnectionNeed::Closed);
        };
        match proxy.parse(head) {
            ProxyRequest::NeedMore if is_over => Ok(ConnectionNeed::Closed),
            ProxyRequest::NeedMore if more => Ok(ConnectionNeed::Turn),
            ProxyRequest::NeedMore => Ok(ConnectionNeed::Events),
            ProxyRequest::Reply { consumed, answer } => {
                head.drain(..consumed.min(head.len()));
                // The reply is far smaller than any socket buffer.
                (&self.client).write_all(&answer)?;
                Ok(ConnectionNeed::Turn)
            }
            ProxyRequest::Malformed(why) => Ok(self.deny_malformed(why)),
            ProxyRequest::Connect { consumed, host, port, request } => {
                head.drain(..consumed.min(head.len()));
                match request {
                    None => self.success_reply = proxy.success_reply(),
                    Some((request, body)) => {
                        self.outbound.queue(&request);
                        self.body = Some(body);
                    }
                }
                self.name_deadline = None;
                self.port = port;
                if let Ok(address) = host.parse() {
                    self.called_address = address::canonical(address);
                    self.is_proxy_call = false;
                    self.state = RelayedConnectionState::New;
                    return Ok(ConnectionNeed::Turn);
                }
                match parse_name(&host) {
                    Some(name) => Ok(self.connect_by_name(name, rules)),
                    None => Ok(self.deny("it is no name of a host".into(), None)),
                }
            }
        }
    }
}
