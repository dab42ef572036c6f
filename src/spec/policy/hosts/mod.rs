//! Which hosts a sandbox reaches when its network goes by policy (`[network]`).
//!
//! A denial stands over every allowance, an allowance over the rules to ask by, and what no rule speaks of is not reached. Names are judged by rules that
//! name names, and addresses by rules that name addresses: a `*` is any name, and no address.

mod destination;
mod name;
mod net;
mod ports;
mod rule;
pub mod stand_in;
#[cfg(test)]
mod tests;

pub use destination::{Destination, Known};
pub use name::DnsName;
pub use net::Net;
pub use ports::Ports;
pub use rule::{Host, HostRule};

use std::net::IpAddr;

/// The most ports that the rules of a sandbox name together: each is a listening socket inside it.
pub const MOST_PORTS: usize = 128;

/// The port of DNS, where saggar itself answers.
pub const DNS_PORT: u16 = 53;

/// Every rule of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// What can be reached.
    pub allow: Vec<HostRule>,
    /// What cannot, whatever is allowed.
    pub deny: Vec<HostRule>,
    /// What can be reached once somebody has said so, and nobody has allowed it before.
    pub ask: Vec<HostRule>,
}

/// What the rules say to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It can be reached, by this rule.
    Allowed(&'a HostRule),
    /// Somebody is asked whether it can be, by this rule.
    Asked(&'a HostRule),
    /// It cannot, by this rule.
    Denied(&'a HostRule),
    /// It cannot, since no rule names it.
    Unnamed,
}

impl Rules {
    /// Whether the name can be reached at any port, or may be: who asks for its address gets one then.
    pub fn knows(&self, name: &DnsName) -> Verdict<'_> {
        let denials: Vec<&HostRule> = self.deny.iter().filter(|rule| rule.host.is(name)).collect();
        let is_open = |rule: &&HostRule| rule.host.is(name) && !rule.is_denied_by(&denials);
        match (self.allow.iter().find(is_open), self.ask.iter().find(is_open), denials.first()) {
            (Some(rule), ..) => Verdict::Allowed(rule),
            (None, Some(rule), _) => Verdict::Asked(rule),
            (None, None, Some(rule)) => Verdict::Denied(rule),
            (None, None, None) => Verdict::Unnamed,
        }
    }

    /// What is said to a connection to this port of a host that is known by its name.
    pub fn name(&self, name: &DnsName, port: u16) -> Verdict<'_> {
        self.verdict(port, |host| host.is(name))
    }

    /// What is said to a connection to this port of a plain address.
    pub fn address(&self, address: IpAddr, port: u16) -> Verdict<'_> {
        self.verdict(port, |host| host.holds(address))
    }

    /// Every port that something can be reached at, in order, each once.
    pub fn ports(&self) -> Vec<u16> {
        Ports::all_of(self.allow.iter().chain(&self.ask).map(|rule| rule.ports.allowed())).collect()
    }

    /// Ports that are open where hosts cannot be told apart, in order, each once: those of what is allowed without
    /// asking, and that of DNS where a name is.
    pub fn bare_ports(&self) -> Vec<u16> {
        let open = || self.allow.iter().filter(|rule| !self.is_closed(rule));
        let mut ports: Vec<_> = Ports::all_of(open().map(|rule| rule.ports.allowed())).collect();
        if open().any(|rule| !matches!(rule.host, Host::Net(_)))
            && let Err(at) = ports.binary_search(&DNS_PORT)
        {
            ports.insert(at, DNS_PORT);
        }
        ports
    }

    /// Whether nothing at all can be reached.
    pub fn is_nothing(&self) -> bool {
        self.allow.iter().chain(&self.ask).all(|rule| self.is_closed(rule))
    }

    /// Whether denials leave nothing of it.
    fn is_closed(&self, rule: &HostRule) -> bool {
        let denials: Vec<_> = self.deny.iter().filter(|denial| denial.host.covers(&rule.host)).collect();
        rule.is_denied_by(&denials)
    }

    fn verdict(&self, port: u16, is_meant: impl Fn(&Host) -> bool) -> Verdict<'_> {
        if let Some(rule) = self.deny.iter().find(|rule| is_meant(&rule.host) && rule.ports.deny(port)) {
            return Verdict::Denied(rule);
        }
        let is_open = |rule: &&HostRule| is_meant(&rule.host) && rule.ports.allow(port);
        let allowed = self.allow.iter().find(is_open).map(Verdict::Allowed);
        allowed.or_else(|| self.ask.iter().find(is_open).map(Verdict::Asked)).unwrap_or(Verdict::Unnamed)
    }
}
