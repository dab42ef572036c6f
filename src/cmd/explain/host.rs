//! `--host`: explains what happens to a connection to a host and port. Nothing is resolved or connected.

use super::network;
use crate::app::prepare::PreparedSandbox;
use crate::egress::address;
use crate::egress::stand_in_table::StandInTable;
use crate::spec::NetworkSpec;
use crate::spec::policy::hosts::{DNS_PORT, Destination, DestinationHost, DnsName, HostRules, HostVerdict};
use crate::spec::policy::{EffectivePolicy, HostRule, Setting};
use crate::text::one_line;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// The outcome of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ConnectionOutcome {
    /// saggar connects to the host and relays.
    Relayed,
    /// saggar answers itself.
    Answered,
    /// saggar asks for consent first.
    Asked,
    /// The sandbox uses the host's network without control by saggar.
    Open,
    /// The connection is refused.
    Refused,
}

/// The explanation for `--host`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HostExplanation {
    version: u32,
    host: String,
    port: u16,
    state: ConnectionOutcome,
    decided_by: HostDecision,
    /// Further conditions.
    notes: Vec<&'static str>,
}

/// The cause of an outcome.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct HostDecision {
    what: String,
    layer: String,
    why: &'static str,
}

const NOTE_CHECKED: &str =
    "the address that the name resolves to is checked, and that very address is dialled";
const NOTE_NEVER: &str =
    "loopback, link-local, multicast and metadata addresses and those of this machine are never reached";
const NOTE_PRIVATE: &str =
    "an address of a private network is reached only where a rule names it as an address";
const NOTE_CONSENT: &str = "an agent's connection waits for the answer to a permission request; a program of wrap has no client to ask";
const NOTE_UNKNOWN_OWNER: &str =
    "the host of a connection is not visible: a rule's host has no effect, nor has a denial";
const NOTE_API: &str = "it is the upstream of the model API: by [api] requests to it go through a socket of the sandbox, with the key added outside";
const NOTE_TLS: &str = "a client that sends an allowed name in TLS or HTTP is relayed all the same: the name is \
                        resolved and dialled";

/// Explains a connection to `to`.
pub(super) fn explain(prepared: &PreparedSandbox, to: &Destination) -> HostExplanation {
    let policy = &prepared.policy.effective;
    let (state, decided_by, notes) = match &prepared.spec.network {
        NetworkSpec::Policy(rules) if to.port == DNS_PORT => {
            let why = "saggar answers itself, for allowed names, at any server address";
            (ConnectionOutcome::Answered, built_in("DNS", why), vec![name_note(rules, &to.host)])
        }
        NetworkSpec::Policy(rules) => match &to.host {
            DestinationHost::Name(name) => explain_name(policy, rules, name, to.port),
            DestinationHost::Address(address) => explain_address(policy, rules, *address, to.port),
        },
        mode @ NetworkSpec::RestrictedHost(narrow) => {
            let state = if narrow.ports.contains(&to.port) {
                ConnectionOutcome::Open
            } else {
                ConnectionOutcome::Refused
            };
            (state, by_mode(policy, network::describe_mode(mode)), vec![Some(NOTE_UNKNOWN_OWNER)])
        }
        mode @ NetworkSpec::None => {
            (ConnectionOutcome::Refused, by_mode(policy, network::describe_mode(mode)), Vec::new())
        }
        mode @ NetworkSpec::Host => {
            (ConnectionOutcome::Open, by_mode(policy, network::describe_mode(mode)), Vec::new())
        }
    };
    let notes = notes.into_iter().chain([api_note(prepared, to)]).flatten().collect();
    HostExplanation { version: 1, host: to.host.to_string(), port: to.port, state, decided_by, notes }
}

/// Notes that `to` is the upstream of the model API, reachable only by `[api]` unless a rule names it too.
fn api_note(prepared: &PreparedSandbox, to: &Destination) -> Option<&'static str> {
    let upstream = &prepared.spec.model_api.as_ref()?.upstream;
    (upstream.host == to.host && upstream.port == to.port).then_some(NOTE_API)
}

/// The outcome, its cause and optional notes.
type HostResult = (ConnectionOutcome, HostDecision, Vec<Option<&'static str>>);

fn explain_name(policy: &EffectivePolicy, rules: &HostRules, name: &DnsName, port: u16) -> HostResult {
    match rules.check_name_port(name, port) {
        HostVerdict::Allowed(rule) => {
            let decision = by_rule(&policy.hosts.allow, rule, "it allows this name at this port");
            (
                ConnectionOutcome::Relayed,
                decision,
                vec![Some(NOTE_CHECKED), Some(NOTE_PRIVATE), Some(NOTE_NEVER)],
            )
        }
        HostVerdict::NeedsConsent(rule) => {
            let decision =
                by_rule(&policy.hosts.ask, rule, "it asks for permission for this name at this port");
            (
                ConnectionOutcome::Asked,
                decision,
                vec![Some(NOTE_CONSENT), Some(NOTE_CHECKED), Some(NOTE_PRIVATE), Some(NOTE_NEVER)],
            )
        }
        HostVerdict::Denied(rule) => {
            let decision =
                by_rule(&policy.hosts.deny, rule, "it denies this name, even if another rule allows it");
            (
                ConnectionOutcome::Refused,
                decision,
                vec![name_note(rules, &DestinationHost::Name(name.clone()))],
            )
        }
        HostVerdict::NoRule => {
            let decision = by_mode(policy, "no rule of network.allow or network.ask names it at this port");
            (
                ConnectionOutcome::Refused,
                decision,
                vec![name_note(rules, &DestinationHost::Name(name.clone())), port_note(rules, port)],
            )
        }
    }
}

fn explain_address(policy: &EffectivePolicy, rules: &HostRules, address: IpAddr, port: u16) -> HostResult {
    if let Some(kind) = never_reached_reason(address) {
        return (
            ConnectionOutcome::Refused,
            built_in(kind, "it is never reachable, even if a rule allows it"),
            Vec::new(),
        );
    }
    match rules.check_address_port(address, port) {
        HostVerdict::Allowed(rule) => {
            let decision = by_rule(&policy.hosts.allow, rule, "it allows this address at this port");
            (ConnectionOutcome::Relayed, decision, vec![Some(NOTE_NEVER)])
        }
        HostVerdict::NeedsConsent(rule) => {
            let decision =
                by_rule(&policy.hosts.ask, rule, "it asks for permission for this address at this port");
            (ConnectionOutcome::Asked, decision, vec![Some(NOTE_CONSENT), Some(NOTE_NEVER)])
        }
        HostVerdict::Denied(rule) => {
            let decision =
                by_rule(&policy.hosts.deny, rule, "it denies this address, even if another rule allows it");
            (ConnectionOutcome::Refused, decision, Vec::new())
        }
        HostVerdict::NoRule => {
            let by_name = rules.reachable_ports().contains(&port).then_some(NOTE_TLS);
            let decision =
                by_mode(policy, "no rule of network.allow or network.ask names this address at this port");
            (ConnectionOutcome::Refused, decision, vec![by_name, port_note(rules, port)])
        }
    }
}

/// Returns the reason why an address is never reachable, whatever the rules.
fn never_reached_reason(address: IpAddr) -> Option<&'static str> {
    match address::classify(address) {
        _ if StandInTable::is_stand_in(address) => Some("an address that represents a name inside"),
        address::AddressClass::Forbidden(what) => Some(what),
        address::AddressClass::Private | address::AddressClass::Public => None,
    }
}

/// Notes whether DNS answers for a name.
fn name_note(rules: &HostRules, host: &DestinationHost) -> Option<&'static str> {
    let DestinationHost::Name(name) = host else { return None };
    Some(match rules.check_name(name) {
        HostVerdict::Allowed(_) | HostVerdict::NeedsConsent(_) => {
            "DNS answers for this name, since it is allowed at a port"
        }
        HostVerdict::Denied(_) | HostVerdict::NoRule => {
            "DNS does not answer for this name, since it is allowed at no port"
        }
    })
}

/// Notes that nothing listens at a port, and what a client gets.
fn port_note(rules: &HostRules, port: u16) -> Option<&'static str> {
    let note = "no host is allowed at this port, so that a connection is refused at once and reported";
    (!rules.reachable_ports().contains(&port)).then_some(note)
}

fn built_in(what: &str, why: &'static str) -> HostDecision {
    HostDecision { what: what.to_owned(), layer: "built-in".to_owned(), why }
}

fn by_mode(policy: &EffectivePolicy, why: &'static str) -> HostDecision {
    let Setting { value, layer } = &policy.network;
    HostDecision { what: format!("network.mode {value}"), layer: layer.to_string(), why }
}

fn by_rule(rules: &[Setting<HostRule>], rule: &HostRule, why: &'static str) -> HostDecision {
    let layer =
        rules.iter().find(|held| held.value == *rule).map_or_else(String::new, |held| held.layer.to_string());
    HostDecision { what: format!("the rule {rule}"), layer, why }
}

impl fmt::Display for ConnectionOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionOutcome::Relayed => "relayed",
            ConnectionOutcome::Answered => "answered by saggar",
            ConnectionOutcome::Asked => "asked about",
            ConnectionOutcome::Open => "open, as on the host",
            ConnectionOutcome::Refused => "refused",
        })
    }
}

impl fmt::Display for HostExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}", one_line(&self.host), self.port, self.state)?;
        let HostDecision { what, layer, why } = &self.decided_by;
        writeln!(f, "  because  {} ({layer}): {why}", one_line(what))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  note     {note}"))
    }
}
