//! Relays the bytes of a connection; the first bytes are checked.

use super::super::parse_name;
use super::super::pump::{Flow, RelayBuffer, relay_both_ways, retry_interrupted};
use super::{ConnectionNeed, RelayedConnection, RelayedConnectionState};
use crate::egress::sniff::{self, SniffResult};
use crate::spec::policy::hosts::{HostRules, HostVerdict};
use std::io::{Read, Result};
use std::net::IpAddr;

impl RelayedConnection {
    /// Transfers bytes in both directions.
    pub(super) fn relay(&mut self, rules: &HostRules, buffer: &mut RelayBuffer) -> Result<ConnectionNeed> {
        if let Some(refusal) = self.forward_head(rules, &mut buffer.chunk)? {
            return Ok(refusal);
        }
        let RelayedConnectionState::Open(host) = &self.state else { return Ok(ConnectionNeed::Events) };
        let pumps = (&mut self.outbound, &mut self.inbound);
        let went = relay_both_ways(pumps, (&self.client, host), self.first_bytes.is_some(), buffer)?;
        self.is_broken |= went == Flow::WriterClosed;
        self.is_host_reset |= went == Flow::OuterReset;
        Ok(match went {
            Flow::WriterClosed | Flow::OuterReset | Flow::Finished => ConnectionNeed::Closed,
            Flow::More => ConnectionNeed::Turn,
            Flow::Blocked => ConnectionNeed::Events,
        })
    }

    /// Forwards the first bytes of the program. Each chunk is forwarded after all bytes up to its end were checked and
    /// name no other host. A request that names another host is therefore never complete at the host. No checked bytes
    /// are held back, because the protocol may wait for a response to a few bytes.
    fn forward_head(&mut self, rules: &HostRules, chunk: &mut [u8]) -> Result<Option<ConnectionNeed>> {
        loop {
            let RelayedConnectionState::Open(host) = &self.state else { return Ok(None) };
            let Some(length) = self.first_bytes.as_ref().map(Vec::len) else { return Ok(None) };
            match self.outbound.write(host) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(_) => {
                    self.first_bytes = None;
                    self.outbound.abandon();
                    return Ok(None);
                }
            }
            if length == self.forwarded_bytes && !self.client_read_closed && !self.read_head(chunk)? {
                return Ok(None);
            }
            let decided = match self.check_head(rules) {
                Ok(decided) => decided,
                Err(refusal) => return Ok(Some(refusal)),
            };
            let head = self.first_bytes.as_deref().unwrap_or_default();
            self.outbound.queue(head.get(self.forwarded_bytes..).unwrap_or_default());
            self.forwarded_bytes = head.len();
            if decided {
                self.first_bytes = None;
                if self.client_read_closed {
                    self.outbound.close_read();
                }
            }
        }
    }

    /// Returns whether the check of the first bytes is complete: they name the called host or none. False while a name
    /// may follow.
    fn check_head(&mut self, rules: &HostRules) -> std::result::Result<bool, ConnectionNeed> {
        let mut head = self.first_bytes.as_deref().unwrap_or_default();
        // Many servers treat the end of the stream as the end of a head.
        let ended = if self.client_read_closed { [head, b"\r\n\r\n"].concat() } else { Vec::new() };
        let first = match sniff::sniff(head) {
            SniffResult::NeedMore if self.client_read_closed => {
                head = &ended;
                sniff::sniff(head)
            }
            first => first,
        };
        let (protocol, name) = match first {
            SniffResult::NeedMore => return Ok(self.client_read_closed),
            SniffResult::Malformed(why) => return Err(self.deny_malformed(why)),
            SniffResult::NoName(protocol) => (protocol, None),
            SniffResult::Name { protocol, name } => (protocol, Some(name)),
        };
        let further = sniff::sniff_further(head, protocol);
        if let Some(name) = name {
            self.check_name(&name, rules)?;
        }
        match further {
            None | Some(SniffResult::NoName(_)) => Ok(true),
            Some(SniffResult::NeedMore) => Ok(self.client_read_closed),
            Some(SniffResult::Malformed(why)) => Err(self.deny_malformed(why)),
            Some(SniffResult::Name { name, .. }) => self.check_name(&name, rules).map(|()| true),
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
