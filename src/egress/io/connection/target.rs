//! Whom a connection means, and whether it may.

use super::super::proxy::{Proxy, Said};
use super::super::{name_of, wrong_address};
use super::{Connection, Kind, Need, PATIENCE, Refusal, State};
use crate::egress::address;
use crate::egress::io::consent::Consent;
use crate::egress::names::Names;
use crate::egress::sniff::{self, Sniffed};
use crate::spec::policy::hosts::{Destination, DnsName, Known, Rules, Verdict};
use mio::Registry;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Result, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Instant;

const NO_RULE: &str = "no rule names this address, and the connection names no host";
/// It was made up, or kept for too long.
const STANDS_FOR_NONE: &str =
    "addresses like this one stand for names inside, and it stands for none; call the host by its name";

impl Connection {
    pub(super) fn begin(&mut self, rules: &Rules, names: &mut Names, registry: &Registry) -> Result<Need> {
        if self.meant.is_loopback() && self.proxy.is_none() {
            self.proxy = Proxy::on(self.port);
            if self.proxy.is_some() {
                self.called_proxy = true;
                self.state = State::Proxied;
                self.head_until = Some(Instant::now() + PATIENCE);
                return Ok(Need::Turn);
            }
        }
        if Names::is_synthetic(self.meant) {
            let Some(name) = names.name_of(self.meant).and_then(name_of) else {
                return Ok(self.refuse(STANDS_FOR_NONE.into(), None));
            };
            if !names.hold(self.meant) {
                return Ok(self.give_up(Kind::Limit, "too many names are in use".into(), None));
            }
            self.held = Some(self.meant);
            return Ok(self.by_name(name, rules));
        }
        match rules.address(self.meant, self.port) {
            Verdict::Denied(rule) => {
                let rule = rule.to_string();
                Ok(self.refuse("it is denied".into(), Some(rule)))
            }
            Verdict::Allowed(_) => match wrong_address(rules, self.meant, self.port) {
                Some((why, rule)) => Ok(self.refuse(why, rule)),
                None => self.call(vec![SocketAddr::new(self.meant, self.port)], registry),
            },
            // The client of a proxy says nothing to its host before that is there.
            Verdict::Unnamed if self.proxy.is_some() => Ok(self.refuse("no rule names it".into(), None)),
            Verdict::Asked(_) if self.proxy.is_some() => Ok(self.nameless(rules)),
            Verdict::Unnamed | Verdict::Asked(_) => {
                self.state = State::Unnamed;
                self.head_until = Some(Instant::now() + PATIENCE);
                Ok(Need::Turn)
            }
        }
    }

    /// The name is known now; whether it may be called.
    fn by_name(&mut self, name: DnsName, rules: &Rules) -> Need {
        self.name = Some(name.clone());
        match rules.name(&name, self.port) {
            Verdict::Allowed(_) => self.find(name),
            Verdict::Asked(_) => self.ask(Known::Name(name)),
            Verdict::Denied(rule) => self.refuse("it is denied".into(), Some(rule.to_string())),
            Verdict::Unnamed => self.refuse("no rule names it with this port".into(), None),
        }
    }

    fn find(&mut self, name: DnsName) -> Need {
        self.state = State::Finding;
        self.head_until = None;
        Need::Addresses(name)
    }

    /// Somebody is to be asked about this host.
    fn ask(&mut self, host: Known) -> Need {
        self.state = State::Asked(None);
        self.head_until = None;
        Need::Consent(Destination { host, port: self.port })
    }

    /// There is nothing to go by but the address.
    fn nameless(&mut self, rules: &Rules) -> Need {
        if !matches!(rules.address(self.meant, self.port), Verdict::Asked(_)) {
            return self.refuse(NO_RULE.into(), None);
        }
        // Nobody is asked about what may not be anyway.
        match wrong_address(rules, self.meant, self.port) {
            Some((why, rule)) => self.refuse(why, rule),
            None => self.ask(Known::Address(self.meant)),
        }
    }

    /// Why these rules do not let it go on, where they do not. It has been judged by others.
    pub(in crate::egress::io) fn judge_again(&mut self, rules: &Rules) -> Option<Refusal> {
        let verdict = match (&self.state, &self.name) {
            // They are judged when it is known whom they mean.
            (State::New | State::Unnamed | State::Proxied, _) => return None,
            (_, Some(name)) => rules.name(name, self.port),
            (_, None) => rules.address(self.meant, self.port),
        };
        let rule = match verdict {
            Verdict::Denied(rule) => Some(rule.to_string()),
            Verdict::Asked(_) if self.consented || matches!(self.state, State::Asked(_)) => return None,
            Verdict::Asked(_) | Verdict::Unnamed => None,
            Verdict::Allowed(_) => {
                if matches!(self.state, State::Asked(_)) {
                    self.answered(Consent::Given);
                }
                let (why, rule) = self.wrong_peer(rules)?;
                return Some(self.refusal(Kind::Policy, why, rule));
            }
        };
        Some(self.refusal(Kind::Policy, "the policy has changed, and does not allow it".into(), rule))
    }

    /// Why the address that was dialled is not to be spoken with, where it is not.
    fn wrong_peer(&self, rules: &Rules) -> Option<(String, Option<String>)> {
        match &self.state {
            State::Open(stream) | State::Dialling { stream, .. } => {
                let peer = stream.peer_addr().ok()?;
                wrong_address(rules, peer.ip(), self.port)
            }
            _ => None,
        }
    }

    /// Takes what has come of [`Need::Consent`].
    pub(in crate::egress::io) fn answered(&mut self, consent: Consent) {
        if matches!(self.state, State::Asked(_)) {
            self.state = State::Asked(Some(consent));
        }
    }

    /// Whether somebody is asked about its host and has not answered.
    pub(in crate::egress::io) fn waits_for_consent(&self) -> bool {
        matches!(self.state, State::Asked(None))
    }

    /// Goes on with what somebody has said, or looks whether the program still wants to know.
    pub(super) fn hear_consent(&mut self, registry: &Registry) -> Result<Need> {
        let State::Asked(answer) = &mut self.state else { return Ok(Need::Events) };
        match (answer.take(), self.name.clone()) {
            (None, _) if self.is_gone() => Ok(Need::Nothing),
            (None, _) => Ok(Need::Events),
            (Some(Consent::Given), name) => {
                self.consented = true;
                match name {
                    Some(name) => Ok(self.find(name)),
                    None => self.call(vec![SocketAddr::new(self.meant, self.port)], registry),
                }
            }
            (Some(Consent::Withheld(why)), _) => Ok(self.refuse(why, None)),
        }
    }

    /// Whether the program has ended its side: it has given up, or says nothing more and may.
    fn is_gone(&self) -> bool {
        let ended = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut fds = [PollFd::new(self.client.as_fd(), ended)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Reads what the program says first. An address without a rule needs a name that has one.
    pub(super) fn learn_name(&mut self, rules: &Rules, chunk: &mut [u8]) -> Result<Need> {
        let more = self.read_head(chunk)?;
        let is_asked = matches!(rules.address(self.meant, self.port), Verdict::Asked(_));
        match self.head.as_deref().map_or(Sniffed::More, sniff::sniff) {
            Sniffed::More if self.client_ended || self.is_late() => Ok(self.nameless(rules)),
            Sniffed::More if more => Ok(Need::Turn),
            Sniffed::More => Ok(Need::Events),
            Sniffed::Name { name, .. } => match name_of(&name) {
                // About its address somebody can be asked, and about this name nobody.
                Some(name) if is_asked && rules.name(&name, self.port) == Verdict::Unnamed => {
                    Ok(self.nameless(rules))
                }
                Some(name) => Ok(self.by_name(name, rules)),
                None => Ok(self.nameless(rules)),
            },
            Sniffed::Nameless(_) => Ok(self.nameless(rules)),
            Sniffed::Wrong(why) => Ok(self.malformed(why)),
        }
    }

    /// Hears the client of a proxy until it has said whom it wants.
    pub(super) fn hear_client(&mut self, rules: &Rules, chunk: &mut [u8]) -> Result<Need> {
        let more = self.read_head(chunk)?;
        let is_over = self.client_ended || self.is_late();
        let (Some(proxy), Some(head)) = (&mut self.proxy, &mut self.head) else { return Ok(Need::Nothing) };
        match proxy.hear(head) {
            Said::More if is_over => Ok(Need::Nothing),
            Said::More if more => Ok(Need::Turn),
            Said::More => Ok(Need::Events),
            Said::Greeting { consumed, answer } => {
                head.drain(..consumed.min(head.len()));
                // Far less than any buffer for it.
                (&self.client).write_all(&answer)?;
                Ok(Need::Turn)
            }
            Said::Wrong(why) => Ok(self.malformed(why)),
            Said::Host { consumed, host, port, request } => {
                head.drain(..consumed.min(head.len()));
                match request {
                    None => self.granted = proxy.granted(),
                    Some(request) => {
                        self.out.push(&request);
                        self.out.push(head);
                        self.head = None;
                        if self.client_ended {
                            self.out.end();
                        }
                    }
                }
                self.head_until = None;
                self.port = port;
                if let Ok(address) = host.parse() {
                    self.meant = address::plain(address);
                    self.called_proxy = false;
                    self.state = State::New;
                    return Ok(Need::Turn);
                }
                match name_of(&host) {
                    Some(name) => Ok(self.by_name(name, rules)),
                    None => Ok(self.refuse("it is no name of a host".into(), None)),
                }
            }
        }
    }
}
