//! The destination of one connection: `HOST:PORT`.

use super::name::DnsName;
use super::rule::{HostPattern, HostRule};
use crate::value::BadValue;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One port of one host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// The host, by name or address.
    pub host: DestinationHost,
    /// The port.
    pub port: u16,
}

/// A host, as the client identifies it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DestinationHost {
    /// A DNS name.
    Name(DnsName),
    /// A plain IP address.
    Address(IpAddr),
}

impl FromStr for Destination {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let HostRule { host, ports } = text.parse()?;
        let bad = |why: &str| BadValue(format!("host {text:?} {why}"));
        let host = match host {
            HostPattern::Name(name) => DestinationHost::Name(name),
            HostPattern::Net(net) => DestinationHost::Address(
                net.as_single_address().ok_or_else(|| bad("is many addresses; write one"))?,
            ),
            HostPattern::Any | HostPattern::Subdomains(_) => return Err(bad("is a pattern; write one name")),
        };
        let port =
            ports.as_single_port().ok_or_else(|| bad("is not at one port; write api.example.com:443"))?;
        Ok(Destination { host, port })
    }
}

impl fmt::Display for DestinationHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestinationHost::Name(name) => write!(f, "{name}"),
            DestinationHost::Address(IpAddr::V4(v4)) => write!(f, "{v4}"),
            DestinationHost::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
