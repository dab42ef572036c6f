//! Where one connection goes: `HOST:PORT`.

use super::name::DnsName;
use super::rule::{Host, HostRule};
use crate::spec::policy::value::BadValue;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One port of one host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// The host.
    pub host: Known,
    /// The port.
    pub port: u16,
}

/// How one host is known to who connects to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// By its name.
    Name(DnsName),
    /// By an address alone.
    Address(IpAddr),
}

impl FromStr for Destination {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let HostRule { host, ports } = text.parse()?;
        let bad = |why: &str| BadValue(format!("host {text:?} {why}"));
        let host = match host {
            Host::Name(name) => Known::Name(name),
            Host::Net(net) => {
                Known::Address(net.single().ok_or_else(|| bad("is many addresses; write one"))?)
            }
            Host::Any | Host::Below(_) => return Err(bad("is a pattern; write one name")),
        };
        let port = ports.single().ok_or_else(|| bad("is not at one port; write api.example.com:443"))?;
        Ok(Destination { host, port })
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Known::Name(name) => write!(f, "{name}"),
            Known::Address(IpAddr::V4(v4)) => write!(f, "{v4}"),
            Known::Address(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
