//! Ports of the host that are forwarded to servers in the sandbox.

use super::value::{BadValue, text_value};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The loopback ports of the proxies of a sandbox with a network by policy: SOCKS5, HTTP.
pub const PROXY_PORTS: [u16; 2] = [1080, 3128];
/// `[ADDR:]HOSTPORT:PORT`: a connection to HOSTPORT on the host is forwarded to PORT in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublishedPort {
    /// The address of the host to listen on; `None` is its loopback address, IPv4 and IPv6.
    pub host_address: Option<IpAddr>,
    /// The port of the host; 0 selects any free port.
    pub host_port: u16,
    /// The port in the sandbox.
    pub sandbox_port: u16,
}

impl PublishedPort {
    /// The socket addresses of the host to listen on.
    pub fn host_socket_addresses(&self) -> Vec<SocketAddr> {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let addresses = self.host_address.map_or(loopback.to_vec(), |address| vec![address]);
        addresses.into_iter().map(|address| SocketAddr::new(address, self.host_port)).collect()
    }

    /// Whether both cannot be bound on one host.
    pub fn conflicts_with(&self, other: &PublishedPort) -> bool {
        let meets = |a: &SocketAddr, b: &SocketAddr| {
            let any = a.ip().is_unspecified() || b.ip().is_unspecified();
            a.is_ipv4() == b.is_ipv4() && (a.ip() == b.ip() || any)
        };
        self.host_port != 0
            && self.host_port == other.host_port
            && self
                .host_socket_addresses()
                .iter()
                .any(|a| other.host_socket_addresses().iter().any(|b| meets(a, b)))
    }
}

impl FromStr for PublishedPort {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue(format!("published port {text:?} {why}"));
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse::<u16>().ok()).flatten()
        };
        let (rest, inner) = text.rsplit_once(':').ok_or_else(|| bad("is not [ADDR:]HOSTPORT:PORT"))?;
        let (address, outer) = match rest.rsplit_once(':') {
            Some((address, outer)) => (Some(address), outer),
            None => (None, rest),
        };
        let port = number(inner).filter(|port| *port != 0);
        let port = port.ok_or_else(|| bad("has a PORT inside that is no number from 1 to 65535"))?;
        let host_port =
            number(outer).ok_or_else(|| bad("has a HOSTPORT that is no number from 0 to 65535"))?;
        let address = address.map(|address| {
            let six = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let parsed = match six {
                Some(six) => six.parse().map(IpAddr::V6).ok(),
                None => address.parse().map(IpAddr::V4).ok(),
            };
            let parsed = parsed.ok_or_else(|| {
                bad("has an ADDR that is no address of the host; write 127.0.0.1 or [::1], or leave it out")
            })?;
            match parsed.to_canonical() == parsed {
                true => Ok(parsed),
                false => Err(bad("has an IPv4 address in IPv6; write it as IPv4")),
            }
        });
        Ok(PublishedPort { host_address: address.transpose()?, host_port, sandbox_port: port })
    }
}

impl fmt::Display for PublishedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_address {
            Some(IpAddr::V4(address)) => write!(f, "{address}:")?,
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:")?,
            None => {}
        }
        write!(f, "{}:{}", self.host_port, self.sandbox_port)
    }
}

text_value!(PublishedPort, {
    "type": "string",
    "description": "[ADDR:]HOSTPORT:PORT; without ADDR loopback alone, HOSTPORT 0 is any free port",
    "pattern": "^(([0-9.]+|\\[[0-9a-fA-F:.]+\\]):)?[0-9]{1,5}:[0-9]{1,5}$",
});

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> PublishedPort {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_written_is_what_is_shown() {
        for text in
            ["8080:3000", "0:3000", "127.0.0.1:8080:3000", "0.0.0.0:80:80", "[::1]:1:65535", "[::]:0:1"]
        {
            assert_eq!(parsed(text).to_string(), text);
        }
        let both = parsed("8080:3000").host_socket_addresses();
        assert_eq!(both, ["127.0.0.1:8080".parse().unwrap(), "[::1]:8080".parse().unwrap()]);
        assert_eq!(parsed("[::]:8080:3000").host_socket_addresses(), ["[::]:8080".parse().unwrap()]);
    }

    #[test]
    fn what_is_none_says_what_is_wrong() {
        for (text, why) in [
            ("3000", "is not [ADDR:]HOSTPORT:PORT"),
            ("8080:0", "a PORT inside"),
            ("8080:+1", "a PORT inside"),
            ("8080:65536", "a PORT inside"),
            (":3000", "a HOSTPORT"),
            ("70000:3000", "a HOSTPORT"),
            ("localhost:8080:3000", "an ADDR"),
            ("::1:8080:3000", "an ADDR"),
            ("[127.0.0.1]:8080:3000", "an ADDR"),
            (":8080:3000", "an ADDR"),
            ("[::ffff:127.0.0.1]:8080:3000", "IPv4 address in IPv6"),
        ] {
            let error = text.parse::<PublishedPort>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn two_of_one_place_collide() {
        for (one, other, collide) in [
            ("8080:1", "8080:2", true),
            ("8080:1", "127.0.0.1:8080:2", true),
            ("8080:1", "0.0.0.0:8080:2", true),
            ("8080:1", "[::]:8080:2", true),
            ("0.0.0.0:8080:1", "[::]:8080:2", false),
            ("127.0.0.1:8080:1", "127.0.0.2:8080:2", false),
            ("8080:1", "8081:1", false),
            ("0:1", "0:1", false),
        ] {
            assert_eq!(parsed(one).conflicts_with(&parsed(other)), collide, "{one} {other}");
            assert_eq!(parsed(other).conflicts_with(&parsed(one)), collide, "{other} {one}");
        }
    }
}
