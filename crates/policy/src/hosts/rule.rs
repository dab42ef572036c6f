//! One host rule: `HOST` or `HOST:PORT[,PORT…]`.

use super::name::DnsName;
use super::net::IpNet;
use super::ports::PortSet;
use super::synthetic_address;
use crate::value::{BadValue, text_value};
use saggar_sys::text::one_line;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The longest rule, in bytes.
const MAX_RULE_BYTES: usize = 1024;

/// The hosts that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// `*`: any name, and no address.
    Any,
    /// One name.
    Name(DnsName),
    /// `*.NAME`: every subdomain of the name at any depth, but not the name itself.
    Subdomains(DnsName),
    /// A range of addresses.
    Net(IpNet),
}

/// A rule: ports of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// The hosts that the rule matches.
    pub host: HostPattern,
    /// The ports of these hosts.
    pub ports: PortSet,
}

impl HostPattern {
    /// Whether the pattern matches this name.
    pub(crate) fn matches_name(&self, name: &DnsName) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Name(own) => own == name,
            HostPattern::Subdomains(parent) => name.is_below(parent),
            HostPattern::Net(_) => false,
        }
    }

    /// Whether the pattern matches this address.
    pub(crate) fn matches_address(&self, address: IpAddr) -> bool {
        matches!(self, HostPattern::Net(net) if net.contains(address))
    }

    /// Whether the pattern matches every name, or every address of a family.
    pub(crate) fn matches_everything(&self) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Name(_) | HostPattern::Subdomains(_) => false,
            HostPattern::Net(net) => net.prefix() == 0,
        }
    }

    /// Whether the pattern matches synthetic addresses only. Such a rule applies to the addresses that
    /// names resolve to, and to no connection to such an address.
    pub(crate) fn is_synthetic(&self) -> bool {
        matches!(self, HostPattern::Net(net) if synthetic_address::covers_range(net.address(), net.prefix()))
    }

    /// Whether this pattern matches every host that `other` matches.
    pub(super) fn covers(&self, other: &HostPattern) -> bool {
        match (self, other) {
            (HostPattern::Net(net), HostPattern::Net(other)) => net.covers(other),
            (HostPattern::Net(_), _) | (_, HostPattern::Net(_)) => false,
            (_, HostPattern::Name(name)) => self.matches_name(name),
            (HostPattern::Any, _) => true,
            (HostPattern::Subdomains(parent), HostPattern::Subdomains(name)) => {
                name == parent || name.is_below(parent)
            }
            (HostPattern::Subdomains(_) | HostPattern::Name(_), _) => false,
        }
    }
}

impl HostRule {
    /// Whether these denials cover every port that this rule allows.
    pub(super) fn is_denied_by(&self, denials: &[&HostRule]) -> bool {
        let mut ports = self.ports.allowed_ranges().iter().cloned().flatten();
        ports.all(|port| denials.iter().any(|denial| denial.ports.denies(port)))
    }
}

impl FromStr for HostRule {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: String| {
            let text: String = text.chars().take(64).collect();
            BadValue(format!("host {text:?} {why}"))
        };
        if text.len() > MAX_RULE_BYTES {
            return Err(bad(format!("is longer than {MAX_RULE_BYTES} bytes")));
        }
        if one_line(text) != text {
            return Err(bad("has a character that cannot be shown".into()));
        }
        parse_rule(text).map_err(bad)
    }
}

fn parse_rule(text: &str) -> Result<HostRule, String> {
    if let Some((_, rest)) = text.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        return Err(format!("is a URL; write the host alone: {host}"));
    }
    let (address, prefix) = text.split_at(text.find('/').unwrap_or(text.len()));
    if address.parse::<Ipv6Addr>().is_ok() {
        return Err(format!("is an IPv6 address; write it in brackets: [{address}]{prefix}"));
    }
    let (host, ports) = match text.strip_prefix('[') {
        Some(rest) => parse_bracketed(rest)?,
        None => {
            let (host, ports) = split_ports(text);
            (parse_unbracketed(host)?, ports)
        }
    };
    Ok(HostRule { host, ports: ports.map_or(Ok(PortSet::default()), str::parse)? })
}

/// Splits the text at its colon, if it has one.
fn split_ports(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((host, ports)) => (host, Some(ports)),
        None => (text, None),
    }
}

/// Parses an IPv6 address after its opening bracket, and the text of the ports, if there is any.
fn parse_bracketed(text: &str) -> Result<(HostPattern, Option<&str>), String> {
    let (inside, rest) = text.split_once(']').ok_or("has a bracket that does not close")?;
    let address: Ipv6Addr =
        inside.parse().map_err(|_| "has no IPv6 address in its brackets; write [2001:db8::]/32:443")?;
    let (prefix, ports) = split_ports(rest);
    let net = match prefix.strip_prefix('/') {
        Some(bits) => parse_net(address.into(), bits)?,
        None if prefix.is_empty() => IpNet::new(address.into(), 128)?,
        None => return Err("has text after its brackets; write [2001:db8::]/32:443".into()),
    };
    Ok((HostPattern::Net(net), ports))
}

fn parse_unbracketed(text: &str) -> Result<HostPattern, String> {
    if let Some((address, bits)) = text.split_once('/') {
        return match address.parse::<Ipv4Addr>() {
            Ok(v4) => Ok(HostPattern::Net(parse_net(v4.into(), bits)?)),
            Err(_) if address.is_empty() => Err("is a path; write the name of a host".into()),
            Err(_) if !address.contains(|c: char| c != '.' && !c.is_ascii_digit()) => {
                Err("is no range of addresses; write 10.0.0.0/8".into())
            }
            Err(_) => Err(format!("has a path; write the host alone: {address}")),
        };
    }
    if let Ok(v4) = text.parse::<Ipv4Addr>() {
        return Ok(HostPattern::Net(IpNet::single_address(v4.into())));
    }
    match text.strip_prefix("*.") {
        _ if text == "*" => Ok(HostPattern::Any),
        Some(parent) if !parent.contains('*') => Ok(HostPattern::Subdomains(DnsName::parse(parent)?)),
        _ if text.contains('*') => {
            Err("has a \"*\" inside; write *.example.com for all below it, or * for any name".into())
        }
        _ => Ok(HostPattern::Name(DnsName::parse(text)?)),
    }
}

fn parse_net(address: IpAddr, bits: &str) -> Result<IpNet, String> {
    let plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = plain.then(|| bits.parse::<u8>().ok()).flatten();
    IpNet::new(address, prefix.ok_or_else(|| format!("has the prefix {bits:?}, which is no number of bits"))?)
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Any => f.write_str("*"),
            HostPattern::Name(name) => write!(f, "{name}"),
            HostPattern::Subdomains(name) => write!(f, "*.{name}"),
            HostPattern::Net(net) => write!(f, "{net}"),
        }
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostRule { host, ports } = self;
        match *ports == PortSet::default() {
            true => write!(f, "{host}"),
            false => write!(f, "{host}:{ports}"),
        }
    }
}

text_value!(HostRule, {
    "type": "string",
    "description": "a host and its ports: api.example.com, *.example.com:443, 10.0.0.0/8:5432, [2001:db8::]/32:443",
    "maxLength": 1024
});
