//! `--host`: what would happen to a connection to one port of one host, and why. Nothing is looked up or dialled.

use super::network;
use crate::cmd::prepare::Prepared;
use crate::egress::address;
use crate::egress::names::Names;
use crate::spec::Network;
use crate::spec::policy::hosts::{DNS_PORT, Destination, DnsName, Known, Rules, Verdict};
use crate::spec::policy::{Effective, HostRule, Setting};
use crate::text::line;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// What would happen to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// saggar dials the host and relays.
    Relayed,
    /// saggar answers itself.
    Answered,
    /// Somebody is asked first.
    Asked,
    /// It is the host's network, which nothing of saggar's stands before.
    Open,
    /// It is refused.
    Refused,
}

/// The answer to `--host`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    version: u32,
    host: String,
    port: u16,
    state: State,
    decided_by: Decision,
    /// What else is to be known of it.
    notes: Vec<&'static str>,
}

/// What makes it so.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Decision {
    what: String,
    layer: String,
    why: &'static str,
}

const CHECKED: &str = "the address that the name resolves to is checked, and that very address is dialled";
const NEVER: &str =
    "loopback, link-local, multicast and metadata addresses and those of this machine are never reached";
const PRIVATE: &str = "an address of a private network is reached only where a rule names it as an address";
const ASKED: &str =
    "an agent's connection waits for the answer to a permission request; a program of wrap has nobody to ask";
const UNSEEN: &str = "whose port it is nobody sees: a rule's host does not count, nor does a denial";
const BY_API: &str = "it is the upstream of the model API: by [api] requests to it go through a socket of the sandbox, with the key added outside";
const BY_TLS: &str = "a client that says an allowed name in TLS or HTTP is relayed all the same: the name is resolved and dialled";

/// Explains a connection to `to`.
pub(super) fn explain(prepared: &Prepared, to: &Destination) -> Answer {
    let policy = &prepared.policy.effective;
    let (state, decided_by, notes) = match &prepared.spec.network {
        Network::Policy(rules) if to.port == DNS_PORT => {
            let why = "saggar answers itself, for the names that are allowed and whatever address is asked";
            (State::Answered, built_in("DNS", why), vec![name_note(rules, &to.host)])
        }
        Network::Policy(rules) => match &to.host {
            Known::Name(name) => of_name(policy, rules, name, to.port),
            Known::Address(address) => of_address(policy, rules, *address, to.port),
        },
        mode @ Network::Narrow(narrow) => {
            let state = if narrow.ports.contains(&to.port) { State::Open } else { State::Refused };
            (state, by_mode(policy, network::what(mode)), vec![Some(UNSEEN)])
        }
        mode @ Network::None => (State::Refused, by_mode(policy, network::what(mode)), Vec::new()),
        mode @ Network::Host => (State::Open, by_mode(policy, network::what(mode)), Vec::new()),
    };
    let notes = notes.into_iter().chain([api_note(prepared, to)]).flatten().collect();
    Answer { version: 1, host: to.host.to_string(), port: to.port, state, decided_by, notes }
}

/// The upstream of the model API is reached by that alone, unless a rule names it too.
fn api_note(prepared: &Prepared, to: &Destination) -> Option<&'static str> {
    let upstream = &prepared.spec.api.as_ref()?.upstream;
    (upstream.host == to.host && upstream.port == to.port).then_some(BY_API)
}

/// What is found out, with what else there may be to say.
type Explained = (State, Decision, Vec<Option<&'static str>>);

fn of_name(policy: &Effective, rules: &Rules, name: &DnsName, port: u16) -> Explained {
    match rules.name(name, port) {
        Verdict::Allowed(rule) => {
            let decision = by_rule(&policy.hosts.allow, rule, "it allows this name at this port");
            (State::Relayed, decision, vec![Some(CHECKED), Some(PRIVATE), Some(NEVER)])
        }
        Verdict::Asked(rule) => {
            let decision =
                by_rule(&policy.hosts.ask, rule, "it has somebody asked about this name at this port");
            (State::Asked, decision, vec![Some(ASKED), Some(CHECKED), Some(PRIVATE), Some(NEVER)])
        }
        Verdict::Denied(rule) => {
            let decision = by_rule(&policy.hosts.deny, rule, "it denies this name, whatever is allowed");
            (State::Refused, decision, vec![name_note(rules, &Known::Name(name.clone()))])
        }
        Verdict::Unnamed => {
            let decision = by_mode(policy, "no rule of network.allow or network.ask names it at this port");
            (
                State::Refused,
                decision,
                vec![name_note(rules, &Known::Name(name.clone())), port_note(rules, port)],
            )
        }
    }
}

fn of_address(policy: &Effective, rules: &Rules, address: IpAddr, port: u16) -> Explained {
    if let Some(kind) = never(address) {
        return (State::Refused, built_in(kind, "it is never reached, whatever the rules say"), Vec::new());
    }
    match rules.address(address, port) {
        Verdict::Allowed(rule) => {
            let decision = by_rule(&policy.hosts.allow, rule, "it allows this address at this port");
            (State::Relayed, decision, vec![Some(NEVER)])
        }
        Verdict::Asked(rule) => {
            let decision =
                by_rule(&policy.hosts.ask, rule, "it has somebody asked about this address at this port");
            (State::Asked, decision, vec![Some(ASKED), Some(NEVER)])
        }
        Verdict::Denied(rule) => {
            let decision = by_rule(&policy.hosts.deny, rule, "it denies this address, whatever is allowed");
            (State::Refused, decision, Vec::new())
        }
        Verdict::Unnamed => {
            let by_name = rules.ports().contains(&port).then_some(BY_TLS);
            let decision =
                by_mode(policy, "no rule of network.allow or network.ask names this address at this port");
            (State::Refused, decision, vec![by_name, port_note(rules, port)])
        }
    }
}

/// Whether an address is never reached, by what it is.
fn never(address: IpAddr) -> Option<&'static str> {
    match address::kind(address) {
        _ if Names::is_synthetic(address) => Some("an address that stands for a name inside"),
        address::Kind::Forbidden(what) => Some(what),
        address::Kind::Private | address::Kind::Public => None,
    }
}

/// What DNS says of a name.
fn name_note(rules: &Rules, host: &Known) -> Option<&'static str> {
    let Known::Name(name) = host else { return None };
    Some(match rules.knows(name) {
        Verdict::Allowed(_) | Verdict::Asked(_) => "DNS answers for this name, since it is allowed at a port",
        Verdict::Denied(_) | Verdict::Unnamed => {
            "DNS does not answer for this name, since it is allowed at no port"
        }
    })
}

/// What a client sees of a port that nobody listens at.
fn port_note(rules: &Rules, port: u16) -> Option<&'static str> {
    let note = "no host is allowed at this port, so that a connection is refused at once, and that is told";
    (!rules.ports().contains(&port)).then_some(note)
}

fn built_in(what: &str, why: &'static str) -> Decision {
    Decision { what: what.to_owned(), layer: "built-in".to_owned(), why }
}

fn by_mode(policy: &Effective, why: &'static str) -> Decision {
    let Setting { value, layer } = &policy.network;
    Decision { what: format!("network.mode {value}"), layer: layer.to_string(), why }
}

fn by_rule(rules: &[Setting<HostRule>], rule: &HostRule, why: &'static str) -> Decision {
    let layer =
        rules.iter().find(|held| held.value == *rule).map_or_else(String::new, |held| held.layer.to_string());
    Decision { what: format!("the rule {rule}"), layer, why }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Relayed => "relayed",
            State::Answered => "answered by saggar",
            State::Asked => "asked about",
            State::Open => "open, as on the host",
            State::Refused => "refused",
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}", line(&self.host), self.port, self.state)?;
        let Decision { what, layer, why } = &self.decided_by;
        writeln!(f, "  because  {} ({layer}): {why}", line(what))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  note     {note}"))
    }
}
