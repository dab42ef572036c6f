//! Which hosts a sandbox reaches when its network goes by policy (`[network]`).
//!
//! A denial stands over every allowance, and what no rule speaks of is not reached. Names are judged by rules that
//! name names, and addresses by rules that name addresses: a `*` is any name, and no address.

mod destination;
mod name;
mod net;
mod ports;
mod rule;
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
}

/// What the rules say to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It can be reached, by this rule.
    Allowed(&'a HostRule),
    /// It cannot, by this rule.
    Denied(&'a HostRule),
    /// It cannot, since no rule names it.
    Unnamed,
}

impl Rules {
    /// Whether the name can be reached at any port: who asks for its address gets one then.
    pub fn knows(&self, name: &DnsName) -> Verdict<'_> {
        let denials: Vec<&HostRule> = self.deny.iter().filter(|rule| rule.host.is(name)).collect();
        let is_open = |rule: &&HostRule| rule.host.is(name) && !rule.is_denied_by(&denials);
        match (self.allow.iter().find(is_open), denials.first()) {
            (Some(rule), _) => Verdict::Allowed(rule),
            (None, Some(rule)) => Verdict::Denied(rule),
            (None, None) => Verdict::Unnamed,
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

    /// Every port that something is allowed at, in order, each once.
    pub fn ports(&self) -> Vec<u16> {
        Ports::all_of(self.allow.iter().map(|rule| rule.ports.allowed())).collect()
    }

    /// Whether nothing at all can be reached.
    pub fn is_nothing(&self) -> bool {
        let is_closed = |rule: &HostRule| {
            let denials: Vec<_> = self.deny.iter().filter(|denial| denial.host.covers(&rule.host)).collect();
            rule.is_denied_by(&denials)
        };
        self.allow.iter().all(is_closed)
    }

    fn verdict(&self, port: u16, is_meant: impl Fn(&Host) -> bool) -> Verdict<'_> {
        if let Some(rule) = self.deny.iter().find(|rule| is_meant(&rule.host) && rule.ports.deny(port)) {
            return Verdict::Denied(rule);
        }
        match self.allow.iter().find(|rule| is_meant(&rule.host) && rule.ports.allow(port)) {
            Some(rule) => Verdict::Allowed(rule),
            None => Verdict::Unnamed,
        }
    }
}
