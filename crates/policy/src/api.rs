//! The upstream of the model API, whose key stays outside the sandbox: its URL, how the key is sent, and what programs in
//! the sandbox use instead.

use super::hosts::{DestinationHost, DnsName};
use super::value::{BadValue, keywords, text_value};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The port of the model API on the loopback interface of a sandbox with its own network. It is unassigned (RFC 6335: 272
/// to 279), below 1024, so that no program in the sandbox can bind it, and spells API on a telephone keypad.
pub const PORT_INSIDE: u16 = 274;

/// The placeholder for the key in the sandbox: agents do not start without one.
pub const PLACEHOLDER_KEY: &str = "saggar-adds-the-key-outside";

/// Maximum length of a key, in bytes.
pub const MAX_KEY_LENGTH: usize = 16 << 10;

keywords! {
    /// The protocol of an upstream.
    "scheme" UpstreamScheme {
        /// Unencrypted: for a proxy on this machine or in a private network.
        Http = "http",
        /// Over TLS.
        Https = "https",
    }
}

keywords! {
    /// The header field in which the upstream expects its key.
    "header of the key" KeyHeader {
        /// The key alone.
        ApiKey = "x-api-key",
        /// The word `Bearer`, then the key.
        Authorization = "authorization",
    }
}

/// `http://HOST[:PORT][/PATH]` or `https://…`; no other part of a URL is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiUpstream {
    /// The protocol.
    pub scheme: UpstreamScheme,
    /// The host, by name or address.
    pub host: DestinationHost,
    /// The port; the default of the scheme if the URL has none.
    pub port: u16,
    /// The prefix of the path of each request: empty, or `/a/b`.
    pub path_prefix: String,
}

impl UpstreamScheme {
    fn default_port(self) -> u16 {
        match self {
            UpstreamScheme::Http => 80,
            UpstreamScheme::Https => 443,
        }
    }
}

impl ApiUpstream {
    /// Host and port for the Host field; the port is omitted if it is the default of the scheme.
    pub fn authority(&self) -> String {
        match self.port == self.scheme.default_port() {
            true => self.host.to_string(),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Whether a path stays below the prefix that it is appended to. Programs and servers disagree about `..`,
/// a backslash and their encodings, so a path that has one of them is not plain.
pub fn is_plain_path(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let has_dots = |segment: &str| {
        let segment = segment.replace("%2e", ".");
        segment == "." || segment == ".."
    };
    path.starts_with('/')
        && !["\\", "%2f", "%5c", "%00"].iter().any(|bad| lower.contains(bad))
        && !lower.split('/').any(has_dots)
}

impl FromStr for ApiUpstream {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue(format!("upstream {text:?} {why}"));
        let (scheme, rest) = text
            .split_once("://")
            .and_then(|(scheme, rest)| Some((scheme.parse::<UpstreamScheme>().ok()?, rest)))
            .ok_or_else(|| bad("does not begin with http:// or https://"))?;
        if rest.contains(['?', '#']) {
            return Err(bad("has a query or a fragment; write no more than its path"));
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(bad("has a user in it; the key comes from api.key_file"));
        }
        let (host, port) = split_port(authority).ok_or_else(|| bad("has an invalid port"))?;
        let port = port.unwrap_or(scheme.default_port());
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match (address, host.parse::<IpAddr>()) {
            (Some(address), _) => DestinationHost::Address(IpAddr::V6(
                address.parse().map_err(|_| bad("has brackets around text that is not an IPv6 address"))?,
            )),
            (None, Ok(IpAddr::V4(address))) => DestinationHost::Address(address.into()),
            (None, Ok(IpAddr::V6(_))) => return Err(bad("has an IPv6 address without brackets")),
            (None, Err(_)) => DestinationHost::Name(
                DnsName::parse(host).map_err(|why| bad(&format!("has a host that {why}")))?,
            ),
        };
        let path = path.trim_end_matches('/');
        let is_written_so = |c: char| c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@%".contains(c);
        let is_path = path.is_empty() || is_plain_path(path) && path.chars().all(is_written_so);
        if !is_path {
            return Err(bad("has a path that no request could have"));
        }
        Ok(ApiUpstream { scheme, host, port, path_prefix: path.to_owned() })
    }
}

/// Splits off the port, if there is one; `None` if its text is not a port number.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let colon = match authority.rfind(']') {
        Some(bracket) => authority.get(bracket..)?.find(':').map(|at| bracket + at),
        None => authority.find(':'),
    };
    let Some(colon) = colon else { return Some((authority, None)) };
    let (host, port) = (authority.get(..colon)?, authority.get(colon + 1..)?);
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| digits && *port != 0)?;
    Some((host, Some(port)))
}

impl fmt::Display for ApiUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority(), self.path_prefix)
    }
}

text_value!(ApiUpstream, { "type": "string", "description": "http:// or https://, a host, its port, a path", "pattern": "^https?://[^/?#@]+(/[^?#]*)?$" });

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_upstream_is_its_host_its_port_and_its_path() {
        for (text, shown, port) in [
            ("https://api.anthropic.com", "https://api.anthropic.com", 443),
            ("https://API.Anthropic.com.:443/", "https://api.anthropic.com", 443),
            ("https://api.anthropic.com//", "https://api.anthropic.com", 443),
            ("http://127.0.0.1:8080/anthropic/", "http://127.0.0.1:8080/anthropic", 8080),
            ("http://[::1]:80/a.b/c", "http://[::1]/a.b/c", 80),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443", 8443),
        ] {
            let upstream: ApiUpstream = text.parse().unwrap();
            assert_eq!((upstream.to_string().as_str(), upstream.port), (shown, port), "{text}");
        }
    }

    #[test]
    fn what_is_no_upstream_is_refused_with_its_reason() {
        for (text, why) in [
            ("api.anthropic.com", "does not begin"),
            ("ftp://example.org", "does not begin"),
            ("HTTPS://example.org", "does not begin"),
            ("https://", "is empty"),
            ("https://key@example.org", "has a user"),
            ("https://example.org?x", "a query"),
            ("https://example.org/#x", "a query"),
            ("https://example.org:0", "invalid port"),
            ("https://example.org:", "invalid port"),
            ("https://example.org:+1", "invalid port"),
            ("https://example.org:65536", "invalid port"),
            ("https://::1", "invalid port"),
            ("https://[127.0.0.1]", "brackets"),
            ("https://0x7f.1", "ends in a number"),
            ("https://2130706433", "ends in a number"),
            ("https://example.org/a/../b", "a path"),
            ("https://example.org/%2E%2e/b", "a path"),
            ("https://example.org/a%2fb", "a path"),
            ("https://example.org/a b", "a path"),
            ("https://example.org/a\\b", "a path"),
            ("https://exa mple.org", "has the character"),
        ] {
            let refusal = text.parse::<ApiUpstream>().unwrap_err().to_string();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }

    proptest! {
        #[test]
        fn an_upstream_reads_as_it_is_shown(text in "https?://[a-z0-9.:\\[\\]-]{1,12}(/[a-z.%/]{0,8})?") {
            if let Ok(upstream) = text.parse::<ApiUpstream>() {
                prop_assert_eq!(upstream.to_string().parse::<ApiUpstream>(), Ok(upstream));
            }
        }
    }
}
