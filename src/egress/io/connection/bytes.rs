//! The bytes of a connection: the first ones are judged, and all are moved.

use super::super::name_of;
use super::super::pump::{Flow, Room, again, exchange};
use super::{Connection, Need, State};
use crate::egress::sniff::{self, Sniffed};
use crate::spec::policy::hosts::{Rules, Verdict};
use std::io::{Read, Result};
use std::net::IpAddr;

impl Connection {
    /// Moves bytes.
    pub(super) fn relay(&mut self, rules: &Rules, room: &mut Room) -> Result<Need> {
        if let Some(refusal) = self.pass_head(rules, &mut room.chunk)? {
            return Ok(refusal);
        }
        let State::Open(host) = &self.state else { return Ok(Need::Events) };
        let pumps = (&mut self.out, &mut self.back);
        let went = exchange(pumps, (&self.client, host), self.head.is_some(), room)?;
        self.broken |= went == Flow::Refused;
        Ok(match went {
            Flow::Refused | Flow::Over => Need::Nothing,
            Flow::Goes => Need::Turn,
            Flow::Waits => Need::Events,
        })
    }

    /// Passes on what the program says first, each piece when all up to its end names nobody else: whoever names
    /// another host never gets to the end of its request. Nothing is held back, since it may be a protocol that says
    /// little before it hears something.
    fn pass_head(&mut self, rules: &Rules, chunk: &mut [u8]) -> Result<Option<Need>> {
        loop {
            let State::Open(host) = &self.state else { return Ok(None) };
            let Some(length) = self.head.as_ref().map(Vec::len) else { return Ok(None) };
            match self.out.write(host) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(_) => {
                    self.head = None;
                    self.out.give_up();
                    return Ok(None);
                }
            }
            if length == self.passed && !self.client_ended && !self.read_head(chunk)? {
                return Ok(None);
            }
            let decided = match self.judge_head(rules) {
                Ok(decided) => decided,
                Err(refusal) => return Ok(Some(refusal)),
            };
            let head = self.head.as_deref().unwrap_or_default();
            self.out.push(head.get(self.passed..).unwrap_or_default());
            self.passed = head.len();
            if decided {
                self.head = None;
                if self.client_ended {
                    self.out.end();
                }
            }
        }
    }

    /// Whether the first bytes have named the host that is called, or nobody; not yet, where that may come.
    fn judge_head(&mut self, rules: &Rules) -> std::result::Result<bool, Need> {
        let mut head = self.head.as_deref().unwrap_or_default();
        // For many servers a head ends where the stream does.
        let ended = if self.client_ended { [head, b"\r\n\r\n"].concat() } else { Vec::new() };
        let first = match sniff::sniff(head) {
            Sniffed::More if self.client_ended => {
                head = &ended;
                sniff::sniff(head)
            }
            first => first,
        };
        let (protocol, name) = match first {
            Sniffed::More => return Ok(self.client_ended),
            Sniffed::Wrong(why) => return Err(self.malformed(why)),
            Sniffed::Nameless(protocol) => (protocol, None),
            Sniffed::Name { protocol, name } => (protocol, Some(name)),
        };
        let further = sniff::sniff_on(head, protocol);
        if let Some(name) = name {
            self.judge_name(&name, rules)?;
        }
        match further {
            None | Some(Sniffed::Nameless(_)) => Ok(true),
            Some(Sniffed::More) => Ok(self.client_ended),
            Some(Sniffed::Wrong(why)) => Err(self.malformed(why)),
            Some(Sniffed::Name { name, .. }) => self.judge_name(&name, rules).map(|()| true),
        }
    }

    /// Refuses a connection that names another host than the one that is called, or one that is denied.
    fn judge_name(&mut self, said: &str, rules: &Rules) -> std::result::Result<(), Need> {
        match (&self.name, name_of(said)) {
            (Some(name), _) if name.as_str() == said => Ok(()),
            (Some(_), _) => Err(self.refuse(format!("the connection names another host, {said}"), None)),
            // The address has a rule; a rule against the name stands above it.
            (None, Some(said)) => match rules.name(&said, self.port) {
                Verdict::Denied(rule) => {
                    let rule = rule.to_string();
                    self.name = Some(said);
                    Err(self.refuse("it is denied".into(), Some(rule)))
                }
                Verdict::Allowed(_) | Verdict::Asked(_) | Verdict::Unnamed => Ok(()),
            },
            (None, None) if said.parse::<IpAddr>().is_ok() => Ok(()),
            (None, None) => {
                Err(self.refuse(format!("the connection names {said}, which is no name of a host"), None))
            }
        }
    }

    /// Takes in some of what the program says first; whether there was something, or the end of it.
    pub(super) fn read_head(&mut self, chunk: &mut [u8]) -> Result<bool> {
        let mut client = &self.client;
        match again(|| client.read(chunk))? {
            None => return Ok(false),
            Some(0) => self.client_ended = true,
            Some(count) => {
                self.head.get_or_insert_default().extend_from_slice(chunk.get(..count).unwrap_or_default());
            }
        }
        Ok(true)
    }
}
