//! Parses names, addresses and ports as clients write them: in a server name, a Host header or a request target.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use saggar_policy::hosts::DnsName;

/// A host and, if present, its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Authority {
    /// In the form that [`parse_host`] returns.
    pub(super) host: String,
    /// Never 0.
    pub(super) port: Option<u16>,
}

impl Authority {
    /// Parses `host` or `host:port`. User information before the host is rejected, because parsers differ about where
    /// it ends.
    pub(super) fn parse(text: &[u8]) -> Option<Authority> {
        let end = match text.strip_prefix(b"[") {
            Some(inner) => inner.iter().position(|byte| *byte == b']')? + 2,
            None => text.iter().position(|byte| *byte == b':').unwrap_or(text.len()),
        };
        let (host_text, rest) = text.split_at_checked(end)?;
        let port = match rest {
            [] => None,
            [b':', digits @ ..] => Some(parse_port(digits)?),
            _ => return None,
        };
        Some(Authority { host: parse_host(host_text)?, port })
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Parses a name, or an address in its usual text form: `[::1]` becomes `::1`.
pub(super) fn parse_host(text: &[u8]) -> Option<String> {
    if let Some(inner) = text.strip_prefix(b"[") {
        let address: Ipv6Addr = core::str::from_utf8(inner.strip_suffix(b"]")?).ok()?.parse().ok()?;
        return Some(address.to_string());
    }
    let address = core::str::from_utf8(text).ok().and_then(|text| text.parse::<Ipv4Addr>().ok());
    address.map_or_else(|| parse_name(text), |address| Some(address.to_string()))
}

/// Parses a name in the form of policies ([`DnsName`]). `None` for text that is not a host name or could be parsed as
/// an address: inet_aton(3) reads `127.1` and `0x7f000001` as 127.0.0.1.
pub(super) fn parse_name(text: &[u8]) -> Option<String> {
    let name = DnsName::parse(core::str::from_utf8(text).ok()?).ok()?;
    Some(name.to_string())
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    let is_number = (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let port = core::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    (port != 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Option<(String, Option<u16>)> {
        Authority::parse(text.as_bytes()).map(|found| (found.host, found.port))
    }

    #[test]
    fn hosts_and_ports_are_read() {
        let cases = [
            ("Example.COM", "example.com", None),
            ("example.com.:443", "example.com", Some(443)),
            ("a_b-c.example:65535", "a_b-c.example", Some(65535)),
            ("192.0.2.1:80", "192.0.2.1", Some(80)),
            ("[2001:DB8::1]", "2001:db8::1", None),
            ("[2001:db8:0:0::1]:8080", "2001:db8::1", Some(8080)),
            ("xn--bcher-kva.example", "xn--bcher-kva.example", None),
            ("localhost", "localhost", None),
        ];
        for (text, host, port) in cases {
            assert_eq!(parsed(text), Some((host.to_owned(), port)), "{text}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_nothing() {
        let label = "x".repeat(64);
        let long = format!("{}com", "abcdefg.".repeat(32));
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a..",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:+80",
            "a:080000",
            "a:8 0",
            "a b",
            "a\0",
            "a\0.example.com",
            "u@a",
            "u:p@a",
            "a/b",
            "a,b",
            "bücher.example",
            "*.example.com",
            "127.1",
            "0x7f000001",
            "a.0X7F",
            "2130706433",
            "1.2.3.4.",
            "01.2.3.4",
            "1.2.3.4.5",
            "::1",
            "[::1",
            "::1]",
            "[]",
            "[1.2.3.4]",
            "[fe80::1%eth0]",
            "[::1]x",
            "[::1]80",
            "a:80:80",
            &label,
            &long,
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
        assert_eq!(parse_name(b"192.0.2.1"), None);
        assert_eq!(parse_host(b"\xff.example"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_read_reads_as_itself(text in "[a-zA-Z0-9._:\\[\\]@%\0 -]{0,40}") {
            if let Some(found) = Authority::parse(text.as_bytes()) {
                prop_assert_eq!(Authority::parse(found.to_string().as_bytes()), Some(found.clone()));
                let is_address = found.host.parse::<IpAddr>().is_ok();
                prop_assert!(is_address || parse_name(found.host.as_bytes()) == Some(found.host));
                prop_assert_ne!(found.port, Some(0));
            }
        }
    }
}
