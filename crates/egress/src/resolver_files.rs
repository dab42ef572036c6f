//! Parses the host's configuration of name lookups: resolv.conf(5) and hosts(5).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use saggar_policy::hosts::DNS_PORT;

/// Maximum number of resolvers, as in resolv.conf(5): MAXNS.
const MAX_SERVERS: usize = 3;
/// Maximum number of addresses for one name.
const MAX_ADDRESSES: usize = 64;

/// Timeouts and transport of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResolverOptions {
    /// Timeout of a query; 1 to 30 seconds.
    pub timeout: Duration,
    /// Number of queries to each resolver; 1 to 5.
    pub attempts: u32,
    /// Whether queries use TCP from the start (`use-vc`).
    pub over_tcp: bool,
}

/// The resolvers of a resolv.conf, in order; the local resolver if it names none.
///
/// A resolver with a scope (`fe80::1%eth0`) is left out, because it needs an interface index.
pub(crate) fn nameservers(text: &str) -> Vec<SocketAddr> {
    let address = |line| words_after(line, "nameserver")?.next()?.parse::<IpAddr>().ok();
    let mut found: Vec<_> = text
        .lines()
        .filter_map(address)
        .take(MAX_SERVERS)
        .map(|addr| SocketAddr::new(addr, DNS_PORT))
        .collect();
    if found.is_empty() {
        found.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
    }
    found
}

/// The options of a resolv.conf; the last of repeated options applies.
pub(crate) fn resolver_options(text: &str) -> ResolverOptions {
    let (mut timeout, mut attempts, mut over_tcp) = (5, 2, false);
    for word in text.lines().filter_map(|line| words_after(line, "options")).flatten() {
        over_tcp |= word == "use-vc";
        match word.split_once(':').map(|(name, value)| (name, value.parse::<u32>())) {
            Some(("timeout", Ok(value))) => timeout = value.clamp(1, 30),
            Some(("attempts", Ok(value))) => attempts = value.clamp(1, 5),
            _ => {}
        }
    }
    ResolverOptions { timeout: Duration::from_secs(timeout.into()), attempts, over_tcp }
}

/// The words after `keyword`, which must begin the line. A comment therefore never matches.
fn words_after<'a>(line: &'a str, keyword: &str) -> Option<impl Iterator<Item = &'a str>> {
    let rest = line.strip_prefix(keyword)?;
    rest.starts_with([' ', '\t']).then(|| rest.split_ascii_whitespace())
}

/// The addresses of `name` in a hosts(5) file, without duplicates.
pub(crate) fn hosts_addresses(text: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split_once('#').map_or(line, |(before, _)| before);
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
        let is_named = words.any(|word| word.strip_suffix('.').unwrap_or(word).eq_ignore_ascii_case(name));
        if is_named && !found.contains(&address) && found.len() < MAX_ADDRESSES {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(text: &str) -> Vec<String> {
        nameservers(text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn resolvers_are_read_in_their_order() {
        let text = "# made\nsearch example.com\nnameserver 192.0.2.1\n; nameserver 192.0.2.9\nnameserver\t2001:db8::1 # x\n\
                    nameserver fe80::1%eth0\nnameserver 127.1\nnameserver\nnameservers 192.0.2.8\n nameserver 192.0.2.7\n\
                    nameserver 192.0.2.2\r\nnameserver 192.0.2.3\n";
        assert_eq!(texts(text), ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"]);
        assert_eq!(texts("nameserver fe80::1%2"), ["127.0.0.1:53"]);
        assert_eq!(texts(""), ["127.0.0.1:53"]);
    }

    #[test]
    fn options_are_within_their_bounds() {
        let of = |text| {
            let options = resolver_options(text);
            (options.timeout.as_secs(), options.attempts)
        };
        assert_eq!(of("nameserver 192.0.2.1\n"), (5, 2));
        assert_eq!(of("options timeout:1 rotate attempts:3 ndots:2\n"), (1, 3));
        assert_eq!(of("options timeout:99 attempts:99\n"), (30, 5));
        assert_eq!(of("options timeout:0\noptions\tattempts:0 timeout:x\n"), (1, 1));
        assert_eq!(of("options timeout:7\noptions timeout:3\n#options timeout:9"), (3, 2));
        assert_eq!(of("options timeout:4294967296 attempts:-1"), (5, 2));
        assert!(resolver_options("options ndots:1 use-vc\noptions rotate").over_tcp);
        assert!(!resolver_options("search use-vc\noptions use-vc-not\n#options use-vc").over_tcp);
    }

    #[test]
    fn names_of_a_hosts_file_have_addresses() {
        let text = "127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # localhost6\n\n192.0.2.1 Web.Example web # x\n\
                    192.0.2.2 web\n192.0.2.1 web\nfe80::1%lo0 web\nnonsense web\n#192.0.2.9 web\n192.0.2.3\n";
        let of = |name| hosts_addresses(text, name).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(of("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(of("web"), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(of("WEB.EXAMPLE."), ["192.0.2.1"]);
        assert!(of("localhost6").is_empty() && of("192.0.2.3").is_empty() && of("").is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_text_is_read(text in "(nameserver|options|timeout:|attempts:|[ \t\n#;0-9a-f.:%-]){0,40}", name in ".{0,9}") {
            prop_assert!((1..=MAX_SERVERS).contains(&nameservers(&text).len()));
            let ResolverOptions { timeout, attempts, .. } = resolver_options(&text);
            prop_assert!((1..=30).contains(&timeout.as_secs()) && (1..=5).contains(&attempts));
            prop_assert!(hosts_addresses(&text, &name).len() <= MAX_ADDRESSES);
        }
    }
}
