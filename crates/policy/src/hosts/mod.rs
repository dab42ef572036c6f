//! The hosts that a sandbox can reach in the network mode `policy` (`[network]`).
//!
//! A denial takes precedence over an allowance, and an allowance over a rule that asks for consent. A host
//! that no rule matches cannot be reached. Names are checked against rules with names, and addresses
//! against rules with addresses: `*` matches any name and no address.

mod destination;
mod name;
mod net;
mod ports;
mod rule;
pub mod synthetic_address;
#[cfg(test)]
mod tests;

pub use destination::{Destination, DestinationHost};
pub use name::DnsName;
pub use net::IpNet;
pub use ports::PortSet;
pub use rule::{HostPattern, HostRule};

use std::net::IpAddr;

/// The most ports that the rules of a sandbox may name together: each is a listening socket in the sandbox.
pub const MAX_PORTS: usize = 128;

/// The port of DNS, on which saggar itself answers.
pub const DNS_PORT: u16 = 53;

/// All host rules of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRules {
    /// Hosts that are allowed.
    pub allow: Vec<HostRule>,
    /// Hosts that are denied, even if they are allowed.
    pub deny: Vec<HostRule>,
    /// Hosts that need consent when a program connects, unless they are allowed.
    pub ask: Vec<HostRule>,
}

/// The result of checking a host against the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostVerdict<'a> {
    /// Allowed by this rule.
    Allowed(&'a HostRule),
    /// Allowed only after consent, by this rule.
    NeedsConsent(&'a HostRule),
    /// Denied by this rule.
    Denied(&'a HostRule),
    /// Denied, because no rule matches.
    NoRule,
}

impl HostRules {
    /// Checks a name independently of the port. DNS answers with an address if any port is allowed or needs
    /// consent.
    pub fn check_name(&self, name: &DnsName) -> HostVerdict<'_> {
        let denials: Vec<&HostRule> = self.deny.iter().filter(|rule| rule.host.matches_name(name)).collect();
        let is_open = |rule: &&HostRule| rule.host.matches_name(name) && !rule.is_denied_by(&denials);
        match (self.allow.iter().find(is_open), self.ask.iter().find(is_open), denials.first()) {
            (Some(rule), ..) => HostVerdict::Allowed(rule),
            (None, Some(rule), _) => HostVerdict::NeedsConsent(rule),
            (None, None, Some(rule)) => HostVerdict::Denied(rule),
            (None, None, None) => HostVerdict::NoRule,
        }
    }

    /// Checks a connection to a port of a host that is known by name.
    pub fn check_name_port(&self, name: &DnsName, port: u16) -> HostVerdict<'_> {
        self.first_match(port, |host| host.matches_name(name))
    }

    /// Checks a connection to a port of a plain address.
    pub fn check_address_port(&self, address: IpAddr, port: u16) -> HostVerdict<'_> {
        self.first_match(port, |host| host.matches_address(address))
    }

    /// Every port of the rules that allow or ask, in ascending order, without duplicates.
    pub fn reachable_ports(&self) -> Vec<u16> {
        PortSet::iter_ports(self.allow.iter().chain(&self.ask).map(|rule| rule.ports.allowed_ranges()))
            .collect()
    }

    /// Ports that are open if hosts cannot be distinguished, in ascending order, without duplicates: those
    /// that are allowed without consent, and the DNS port if a name is allowed.
    pub fn unconditional_ports(&self) -> Vec<u16> {
        let open = || self.allow.iter().filter(|rule| !self.is_fully_denied(rule));
        let mut ports: Vec<_> = PortSet::iter_ports(open().map(|rule| rule.ports.allowed_ranges())).collect();
        if open().any(|rule| !matches!(rule.host, HostPattern::Net(_)))
            && let Err(at) = ports.binary_search(&DNS_PORT)
        {
            ports.insert(at, DNS_PORT);
        }
        ports
    }

    /// Whether the rules allow nothing, even with consent.
    pub(crate) fn allows_nothing(&self) -> bool {
        self.allow.iter().chain(&self.ask).all(|rule| self.is_fully_denied(rule))
    }

    /// Whether the denials cover every port of the rule.
    fn is_fully_denied(&self, rule: &HostRule) -> bool {
        let denials: Vec<_> = self.deny.iter().filter(|denial| denial.host.covers(&rule.host)).collect();
        rule.is_denied_by(&denials)
    }

    fn first_match(&self, port: u16, matches_host: impl Fn(&HostPattern) -> bool) -> HostVerdict<'_> {
        if let Some(rule) = self.deny.iter().find(|rule| matches_host(&rule.host) && rule.ports.denies(port))
        {
            return HostVerdict::Denied(rule);
        }
        let is_open = |rule: &&HostRule| matches_host(&rule.host) && rule.ports.allows(port);
        let allowed = self.allow.iter().find(is_open).map(HostVerdict::Allowed);
        allowed
            .or_else(|| self.ask.iter().find(is_open).map(HostVerdict::NeedsConsent))
            .unwrap_or(HostVerdict::NoRule)
    }
}
