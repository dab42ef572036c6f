//! One rule: `HOST` or `HOST:PORT[,PORT…]`.

use super::name::DnsName;
use super::net::Net;
use super::ports::Ports;
use super::stand_in;
use crate::spec::policy::value::{BadValue, text_value};
use crate::text::line;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The longest rule, in bytes.
const LONGEST: usize = 1024;

/// Which hosts a rule speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// `*`: any name.
    Any,
    /// This name.
    Name(DnsName),
    /// `*.NAME`: every name below this one, however deep, and not itself.
    Below(DnsName),
    /// These addresses.
    Net(Net),
}

/// Which ports of which hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// Which hosts.
    pub host: Host,
    /// Which ports of them.
    pub ports: Ports,
}

impl Host {
    /// Whether the name is one of these hosts.
    pub fn is(&self, name: &DnsName) -> bool {
        match self {
            Host::Any => true,
            Host::Name(own) => own == name,
            Host::Below(parent) => name.is_below(parent),
            Host::Net(_) => false,
        }
    }

    /// Whether the address is one of these hosts.
    pub fn holds(&self, address: IpAddr) -> bool {
        matches!(self, Host::Net(net) if net.contains(address))
    }

    /// Whether it is every name, or every address of a kind.
    pub(in crate::spec::policy) fn is_everything(&self) -> bool {
        match self {
            Host::Any => true,
            Host::Name(_) | Host::Below(_) => false,
            Host::Net(net) => net.prefix() == 0,
        }
    }

    /// Whether it is addresses that stand for names inside, and no others: it speaks of what names resolve to, and of
    /// nobody who calls such an address.
    pub(in crate::spec::policy) fn is_stand_ins(&self) -> bool {
        matches!(self, Host::Net(net) if stand_in::has_all(net.address(), net.prefix()))
    }

    /// Whether each of those hosts is one of these.
    pub(super) fn covers(&self, other: &Host) -> bool {
        match (self, other) {
            (Host::Net(net), Host::Net(other)) => net.covers(other),
            (Host::Net(_), _) | (_, Host::Net(_)) => false,
            (_, Host::Name(name)) => self.is(name),
            (Host::Any, _) => true,
            (Host::Below(parent), Host::Below(name)) => name == parent || name.is_below(parent),
            (Host::Below(_) | Host::Name(_), _) => false,
        }
    }
}

impl HostRule {
    /// Whether these denials leave no port of what this rule allows.
    pub(super) fn is_denied_by(&self, denials: &[&HostRule]) -> bool {
        let mut ports = self.ports.allowed().iter().cloned().flatten();
        ports.all(|port| denials.iter().any(|denial| denial.ports.deny(port)))
    }
}

impl FromStr for HostRule {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: String| {
            let text: String = text.chars().take(64).collect();
            BadValue(format!("host {text:?} {why}"))
        };
        if text.len() > LONGEST {
            return Err(bad(format!("is longer than {LONGEST} bytes")));
        }
        if line(text) != text {
            return Err(bad("has a character that cannot be shown".into()));
        }
        read(text).map_err(bad)
    }
}

fn read(text: &str) -> Result<HostRule, String> {
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
        Some(rest) => bracketed(rest)?,
        None => {
            let (host, ports) = parted(text);
            (unbracketed(host)?, ports)
        }
    };
    Ok(HostRule { host, ports: ports.map_or(Ok(Ports::default()), str::parse)? })
}

/// What stands before and after the colon, if there is one.
fn parted(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((host, ports)) => (host, Some(ports)),
        None => (text, None),
    }
}

/// An IPv6 address, after its opening bracket; and the text of the ports, if there is any.
fn bracketed(text: &str) -> Result<(Host, Option<&str>), String> {
    let (inside, rest) = text.split_once(']').ok_or("has a bracket that does not close")?;
    let address: Ipv6Addr =
        inside.parse().map_err(|_| "has no IPv6 address in its brackets; write [2001:db8::]/32:443")?;
    let (prefix, ports) = parted(rest);
    let net = match prefix.strip_prefix('/') {
        Some(bits) => net(address.into(), bits)?,
        None if prefix.is_empty() => Net::new(address.into(), 128)?,
        None => return Err("goes on after its brackets; write [2001:db8::]/32:443".into()),
    };
    Ok((Host::Net(net), ports))
}

fn unbracketed(text: &str) -> Result<Host, String> {
    if let Some((address, bits)) = text.split_once('/') {
        return match address.parse::<Ipv4Addr>() {
            Ok(v4) => Ok(Host::Net(net(v4.into(), bits)?)),
            Err(_) if address.is_empty() => Err("is a path; write the name of a host".into()),
            Err(_) if !address.contains(|c: char| c != '.' && !c.is_ascii_digit()) => {
                Err("is no range of addresses; write 10.0.0.0/8".into())
            }
            Err(_) => Err(format!("has a path; write the host alone: {address}")),
        };
    }
    if let Ok(v4) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Net(Net::of(v4.into())));
    }
    match text.strip_prefix("*.") {
        _ if text == "*" => Ok(Host::Any),
        Some(parent) if !parent.contains('*') => Ok(Host::Below(DnsName::parse(parent)?)),
        _ if text.contains('*') => {
            Err("has a \"*\" inside; write *.example.com for all below it, or * for any name".into())
        }
        _ => Ok(Host::Name(DnsName::parse(text)?)),
    }
}

fn net(address: IpAddr, bits: &str) -> Result<Net, String> {
    let plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = plain.then(|| bits.parse::<u8>().ok()).flatten();
    Net::new(address, prefix.ok_or_else(|| format!("has the prefix {bits:?}, which is no number of bits"))?)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Any => f.write_str("*"),
            Host::Name(name) => write!(f, "{name}"),
            Host::Below(name) => write!(f, "*.{name}"),
            Host::Net(net) => write!(f, "{net}"),
        }
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostRule { host, ports } = self;
        match *ports == Ports::default() {
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
