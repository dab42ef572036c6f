//! Relays the bytes of a connection; the first bytes and the head of each HTTP request are checked.

use super::super::parse_name;
use super::super::pump::{Flow, RelayBuffer, TRANSFER_BUDGET, relay_both_ways, retry_interrupted};
use super::{ConnectionNeed, RelayedConnection, RelayedConnectionState};
use crate::request_body::{BodyLength, RequestBody};
use crate::sniff::{self, ClientProtocol, SniffResult};
use saggar_policy::hosts::{HostRules, HostVerdict};
use std::io::{Read, Result};
use std::net::IpAddr;

/// What was checked of the bytes that a program sends.
#[derive(Debug, Clone, Copy)]
enum CheckedBytes {
    /// The start of a request or of another protocol, which names no other host so far.
    Incomplete,
    /// All of them, and all that follow need no check.
    Last,
    /// A request with a head of this size, in bytes.
    Request { head: usize, body: BodyLength },
    /// Some bytes of a request's body.
    Body { length: usize, is_complete: bool },
}

impl RelayedConnection {
    /// Transfers bytes in both directions.
    pub(super) fn relay(&mut self, rules: &HostRules, buffer: &mut RelayBuffer) -> Result<ConnectionNeed> {
        let checked = match self.forward_checked(rules, &mut buffer.chunk)? {
            Ok(flow) => flow,
            Err(refusal) => return Ok(refusal),
        };
        let RelayedConnectionState::Open(host) = &self.state else { return Ok(ConnectionNeed::Events) };
        let pumps = (&mut self.outbound, &mut self.inbound);
        let went = relay_both_ways(pumps, (&self.client, host), self.first_bytes.is_some(), buffer)?;
        self.is_broken |= went == Flow::WriterClosed;
        self.is_host_reset |= went == Flow::OuterReset;
        Ok(match went {
            Flow::WriterClosed | Flow::OuterReset | Flow::Finished => ConnectionNeed::Closed,
            Flow::More => ConnectionNeed::Turn,
            Flow::Blocked if checked == Flow::More => ConnectionNeed::Turn,
            Flow::Blocked => ConnectionNeed::Events,
        })
    }

    /// Forwards the bytes of the program that have to be checked. Each chunk is forwarded after all bytes up to its end
    /// were checked and name no other host. A request that names another host is therefore never complete at the host.
    /// No checked bytes are held back, because the protocol may wait for a response to a few bytes.
    ///
    /// Returns [`Flow::More`] if more bytes can be checked at once, or the denial.
    fn forward_checked(
        &mut self,
        rules: &HostRules,
        chunk: &mut [u8],
    ) -> Result<std::result::Result<Flow, ConnectionNeed>> {
        let before = self.outbound.moved();
        loop {
            let RelayedConnectionState::Open(host) = &self.state else { return Ok(Ok(Flow::Blocked)) };
            let Some(length) = self.first_bytes.as_ref().map(Vec::len) else { return Ok(Ok(Flow::Blocked)) };
            match self.outbound.write(host) {
                Ok(true) => {}
                Ok(false) => return Ok(Ok(Flow::Blocked)),
                Err(_) => {
                    self.first_bytes = None;
                    self.outbound.abandon();
                    return Ok(Ok(Flow::Blocked));
                }
            }
            if self.outbound.moved() - before >= TRANSFER_BUDGET {
                return Ok(Ok(Flow::More));
            }
            if length == self.forwarded_bytes && !self.client_read_closed && !self.read_head(chunk)? {
                return Ok(Ok(Flow::Blocked));
            }
            let checked = match self.check_next(rules) {
                Ok(checked) => checked,
                Err(refusal) => return Ok(Err(refusal)),
            };
            self.queue_checked(checked);
        }
    }

    /// Queues the bytes that were checked.
    fn queue_checked(&mut self, checked: CheckedBytes) {
        let Some(bytes) = &mut self.first_bytes else { return };
        let end = match checked {
            CheckedBytes::Incomplete | CheckedBytes::Last => bytes.len(),
            CheckedBytes::Request { head: length, .. } | CheckedBytes::Body { length, .. } => {
                length.min(bytes.len())
            }
        };
        self.outbound.queue(bytes.get(self.forwarded_bytes..end).unwrap_or_default());
        self.forwarded_bytes = end;
        match checked {
            CheckedBytes::Incomplete => return,
            CheckedBytes::Last => {
                self.first_bytes = None;
                if self.client_read_closed {
                    self.outbound.close_read();
                }
                return;
            }
            CheckedBytes::Request { body, .. } => self.body = Some(RequestBody::new(body)),
            CheckedBytes::Body { is_complete, .. } => self.body = self.body.filter(|_| !is_complete),
        }
        bytes.drain(..end);
        self.forwarded_bytes = 0;
    }

    /// Checks the bytes that are not forwarded yet.
    fn check_next(&mut self, rules: &HostRules) -> std::result::Result<CheckedBytes, ConnectionNeed> {
        let Some(body) = &mut self.body else { return self.check_head(rules) };
        let bytes = self.first_bytes.as_deref().unwrap_or_default();
        match body.pass(bytes) {
            Ok(0) if self.client_read_closed && !body.is_complete() => Ok(CheckedBytes::Last),
            Ok(length) => Ok(CheckedBytes::Body { length, is_complete: body.is_complete() }),
            Err(why) => Err(self.deny_malformed(why)),
        }
    }

    /// Checks whether the first bytes of the connection, or the bytes after a request, name the called host or none.
    fn check_head(&mut self, rules: &HostRules) -> std::result::Result<CheckedBytes, ConnectionNeed> {
        let mut head = self.first_bytes.as_deref().unwrap_or_default();
        // Many servers treat the end of the stream as the end of a head.
        let ended = if self.client_read_closed { [head, b"\r\n\r\n"].concat() } else { Vec::new() };
        let undecided = if self.client_read_closed { CheckedBytes::Last } else { CheckedBytes::Incomplete };
        let first = match sniff::sniff(head) {
            SniffResult::NeedMore if self.client_read_closed => {
                head = &ended;
                sniff::sniff(head)
            }
            first => first,
        };
        let (protocol, name) = match first {
            SniffResult::NeedMore => return Ok(undecided),
            SniffResult::Malformed(why) => return Err(self.deny_malformed(why)),
            SniffResult::NoName(protocol) => (protocol, None),
            SniffResult::Name { protocol, name } => (protocol, Some(name)),
        };
        let further = sniff::sniff_further(head, protocol);
        let request = (protocol == ClientProtocol::Http).then(|| sniff::request_end(head));
        if let Some(name) = name {
            self.check_name(&name, rules)?;
        }
        match (request, further) {
            (Some(Ok((head, body))), _) => Ok(CheckedBytes::Request { head, body }),
            (Some(Err(why)), _) | (_, Some(SniffResult::Malformed(why))) => Err(self.deny_malformed(why)),
            (_, None | Some(SniffResult::NoName(_))) => Ok(CheckedBytes::Last),
            (_, Some(SniffResult::NeedMore)) => Ok(undecided),
            (_, Some(SniffResult::Name { name, .. })) => {
                self.check_name(&name, rules).map(|()| CheckedBytes::Last)
            }
        }
    }

    /// Denies a connection whose first bytes name another host than the called one, or a denied host.
    fn check_name(&mut self, said: &str, rules: &HostRules) -> std::result::Result<(), ConnectionNeed> {
        match (&self.name, parse_name(said)) {
            (Some(name), _) if name.as_str() == said => Ok(()),
            (Some(_), _) => Err(self.deny(format!("the connection names another host, {said}"), None)),
            // The address has a rule; a rule that denies the name takes precedence.
            (None, Some(said)) => match rules.check_name_port(&said, self.port) {
                HostVerdict::Denied(rule) => {
                    let rule = rule.to_string();
                    self.name = Some(said);
                    Err(self.deny("it is denied".into(), Some(rule)))
                }
                HostVerdict::Allowed(_) | HostVerdict::NeedsConsent(_) | HostVerdict::NoRule => Ok(()),
            },
            (None, None) if said.parse::<IpAddr>().is_ok() => Ok(()),
            (None, None) => {
                Err(self.deny(format!("the connection names {said}, which is not a host name"), None))
            }
        }
    }

    /// Reads some of the first bytes; returns whether bytes or the end of the stream were read.
    pub(super) fn read_head(&mut self, chunk: &mut [u8]) -> Result<bool> {
        let mut client = &self.client;
        match retry_interrupted(|| client.read(chunk))? {
            None => return Ok(false),
            Some(0) => self.client_read_closed = true,
            Some(count) => {
                self.first_bytes
                    .get_or_insert_default()
                    .extend_from_slice(chunk.get(..count).unwrap_or_default());
            }
        }
        Ok(true)
    }
}
