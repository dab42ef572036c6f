//! Tests: which rules are valid, and which hosts they match.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{Ipv4Addr, Ipv6Addr};

fn rule(text: &str) -> HostRule {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn rules(allow: &[&str], deny: &[&str]) -> HostRules {
    let all = |texts: &[&str]| texts.iter().map(|text| rule(text)).collect();
    HostRules { allow: all(allow), deny: all(deny), ask: Vec::new() }
}

fn name(text: &str) -> DnsName {
    DnsName::parse(text).unwrap_or_else(|why| panic!("{text:?} {why}"))
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn rules_have_one_canonical_text() {
    for (text, canonical) in [
        ("api.example.com", "api.example.com"),
        ("API.Example.COM.", "api.example.com"),
        ("_dmarc.x_y.example", "_dmarc.x_y.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("*", "*"),
        ("*:22", "*:22"),
        ("*.example.com:443", "*.example.com:443"),
        ("*.Example.com.:443", "*.example.com:443"),
        ("example.com:443,80,8000-8010,8005-8011,8012", "example.com:80,443,8000-8012"),
        ("example.com:80,443", "example.com:80,443"),
        ("10.0.0.0/8:5432", "10.0.0.0/8:5432"),
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("[2001:DB8:0::]/32:443", "[2001:db8::]/32:443"),
        ("[::1]", "[::1]"),
        ("[::1]/128:1-65535", "[::1]:1-65535"),
        ("[::]/0", "[::]/0"),
    ] {
        let parsed = rule(text);
        assert_eq!(parsed.to_string(), canonical);
        assert_eq!(rule(canonical), parsed);
    }
}

#[test]
fn what_is_no_rule_is_told_its_cure() {
    let complaint = |text: &&str| text.parse::<HostRule>().expect_err(text).to_string();
    let texts = [
        "",
        "https://x/",
        "https://user@api.example.com:8443/v1?q#f",
        "example.com/v1",
        "/etc/hosts",
        "bücher.example",
        "a b.example",
        "api.*.example",
        "**.example",
        "*example.com",
        "*.",
        "*.*",
        "a..example",
        ".example",
        "-a.example",
        "a-.example",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:https",
        "example.com:443-80",
        "example.com:80,",
        "example.com:+80",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "1.2.3.4.5",
        "example.0x7F",
        "*.7",
        "10.1.2.3/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0/8",
        "2001:db8::1",
        "2001:db8::/32",
        "[2001:db8::1",
        "[2001:db8::/32]",
        "[2001:db8::1]/32",
        "[::1]x",
        "[192.0.2.7]",
        "[::ffff:192.0.2.7]",
        "[fe80::1%eth0]",
        "a.example\n",
    ];
    insta::assert_snapshot!(texts.iter().map(complaint).collect::<Vec<_>>().join("\n"), @r#"
    host "" is empty
    host "https://x/" is a URL; write the host alone: x
    host "https://user@api.example.com:8443/v1?q#f" is a URL; write the host alone: api.example.com:8443
    host "example.com/v1" has a path; write the host alone: example.com
    host "/etc/hosts" is a path; write the name of a host
    host "bücher.example" is not ASCII; write it as DNS has it: xn--…
    host "a b.example" has the character ' ', which no name of a host has
    host "api.*.example" has a "*" inside; write *.example.com for all below it, or * for any name
    host "**.example" has a "*" inside; write *.example.com for all below it, or * for any name
    host "*example.com" has a "*" inside; write *.example.com for all below it, or * for any name
    host "*." is empty
    host "*.*" has a "*" inside; write *.example.com for all below it, or * for any name
    host "a..example" has an empty label
    host ".example" has an empty label
    host "-a.example" has a label that begins or ends with "-"
    host "a-.example" has a label that begins or ends with "-"
    host "example.com:" names the port "", which is no number from 1 to 65535
    host "example.com:0" names the port "0", which is no number from 1 to 65535
    host "example.com:65536" names the port "65536", which is no number from 1 to 65535
    host "example.com:https" names the port "https", which is no number from 1 to 65535
    host "example.com:443-80" has the range 443-80, which ends before it begins
    host "example.com:80," names the port "", which is no number from 1 to 65535
    host "example.com:+80" names the port "+80", which is no number from 1 to 65535
    host "127.1" ends in a number, as an address does; write an address as 192.0.2.7
    host "0x7f.1" ends in a number, as an address does; write an address as 192.0.2.7
    host "2130706433" ends in a number, as an address does; write an address as 192.0.2.7
    host "0177.0.0.1" ends in a number, as an address does; write an address as 192.0.2.7
    host "1.2.3.4.5" ends in a number, as an address does; write an address as 192.0.2.7
    host "example.0x7F" ends in a number, as an address does; write an address as 192.0.2.7
    host "*.7" ends in a number, as an address does; write an address as 192.0.2.7
    host "10.1.2.3/8" has bits beyond its prefix; write 10.0.0.0/8
    host "10.0.0.0/33" has a prefix of 33 bits, and the address has 32
    host "10.0.0.0/" has the prefix "", which is no number of bits
    host "10.0/8" is no range of addresses; write 10.0.0.0/8
    host "2001:db8::1" is an IPv6 address; write it in brackets: [2001:db8::1]
    host "2001:db8::/32" is an IPv6 address; write it in brackets: [2001:db8::]/32
    host "[2001:db8::1" has a bracket that does not close
    host "[2001:db8::/32]" has no IPv6 address in its brackets; write [2001:db8::]/32:443
    host "[2001:db8::1]/32" has bits beyond its prefix; write [2001:db8::]/32
    host "[::1]x" has text after its brackets; write [2001:db8::]/32:443
    host "[192.0.2.7]" has no IPv6 address in its brackets; write [2001:db8::]/32:443
    host "[::ffff:192.0.2.7]" is an IPv4 address in IPv6; write 192.0.2.7
    host "[fe80::1%eth0]" has no IPv6 address in its brackets; write [2001:db8::]/32:443
    host "a.example\n" has a character that cannot be shown
    "#);
}

#[test]
fn names_have_the_bounds_of_dns() {
    let label = |length: usize| "a".repeat(length);
    assert!(DnsName::parse(&label(63)).is_ok());
    assert!(DnsName::parse(&label(64)).is_err());
    let long = [label(63), label(63), label(63), label(61)].join(".");
    assert_eq!(long.len(), 253);
    assert!(DnsName::parse(&long).is_ok() && DnsName::parse(&format!("{long}.")).is_ok());
    assert!(DnsName::parse(&format!("{long}a")).is_err());
    for text in [".", "..", "a..", "a\0.example", "a:1", "[::1]", "::1", "*", "a@b"] {
        assert!(DnsName::parse(text).is_err(), "{text:?}");
    }
    assert!("a".repeat(1025).parse::<HostRule>().is_err());
}

/// A text that any program may parse as an address is not a name.
#[test]
fn no_spelling_of_an_address_is_a_name() {
    for text in [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0X7F000001",
        "2130706433",
        "0177.0.0.1",
        "017700000001",
        "0",
        "0x",
        "1.2.3.4.",
        "127.0.0.1.",
        "256.256.256.256",
        "a.1",
    ] {
        assert!(DnsName::parse(text).is_err(), "{text:?}");
    }
    for text in ["1.example", "0x7f.example", "127.0.0.1.nip.io", "1a", "0xg", "3com"] {
        assert!(DnsName::parse(text).is_ok(), "{text:?}");
    }
}

#[test]
fn a_wildcard_is_any_depth_below_and_not_itself() {
    let rules = rules(&["*.example.org:443"], &[]);
    for (asked, is_allowed) in [
        ("a.example.org", true),
        ("a.b.c.example.org", true),
        ("example.org", false),
        ("badexample.org", false),
        ("example.org.evil.example", false),
    ] {
        assert_eq!(
            matches!(rules.check_name_port(&name(asked), 443), HostVerdict::Allowed(_)),
            is_allowed,
            "{asked}"
        );
        assert_eq!(matches!(rules.check_name(&name(asked)), HostVerdict::Allowed(_)), is_allowed, "{asked}");
        assert_eq!(rules.check_name_port(&name(asked), 80), HostVerdict::NoRule);
    }
}

#[test]
fn without_ports_a_rule_allows_the_webs_and_denies_all() {
    let rules = rules(&["example.org", "*.example.org:22,443"], &["evil.example.org", "odd.example.org:22"]);
    assert!(matches!(rules.check_name_port(&name("example.org"), 80), HostVerdict::Allowed(_)));
    assert!(matches!(rules.check_name_port(&name("example.org"), 443), HostVerdict::Allowed(_)));
    assert_eq!(rules.check_name_port(&name("example.org"), 22), HostVerdict::NoRule);
    assert!(matches!(rules.check_name_port(&name("evil.example.org"), 22), HostVerdict::Denied(_)));
    assert!(matches!(rules.check_name_port(&name("odd.example.org"), 22), HostVerdict::Denied(_)));
    assert!(matches!(rules.check_name_port(&name("odd.example.org"), 443), HostVerdict::Allowed(_)));
    // DNS answers for a name that has an allowed port left.
    assert!(matches!(rules.check_name(&name("odd.example.org")), HostVerdict::Allowed(_)));
    assert!(matches!(rules.check_name(&name("evil.example.org")), HostVerdict::Denied(_)));
    assert_eq!(rules.check_name(&name("example.net")), HostVerdict::NoRule);
    assert_eq!(rules.reachable_ports(), [22, 80, 443]);
}

#[test]
fn names_and_addresses_are_judged_by_rules_of_their_own_kind() {
    let rules = rules(&["*", "10.0.0.0/8:5432", "[2001:db8::]/32"], &["10.9.0.0/16", "*.evil.example"]);
    let allowed =
        |text: &str, port| matches!(rules.check_address_port(address(text), port), HostVerdict::Allowed(_));
    assert!(allowed("10.1.2.3", 5432) && !allowed("10.1.2.3", 443));
    assert!(allowed("::ffff:10.1.2.3", 5432), "an address of IPv4 in another writing");
    assert!(matches!(rules.check_address_port(address("10.9.1.1"), 5432), HostVerdict::Denied(_)));
    assert!(matches!(rules.check_address_port(address("::ffff:10.9.1.1"), 5432), HostVerdict::Denied(_)));
    assert!(allowed("2001:db8:1::2", 443));
    assert_eq!(rules.check_address_port(address("192.0.2.1"), 443), HostVerdict::NoRule);
    assert!(matches!(rules.check_name_port(&name("anything.example"), 443), HostVerdict::Allowed(_)));
    assert!(matches!(rules.check_name_port(&name("a.evil.example"), 443), HostVerdict::Denied(_)));
    let everywhere = self::rules(&["[::]/0"], &[]);
    assert_eq!(everywhere.check_address_port(address("::ffff:192.0.2.1"), 443), HostVerdict::NoRule);
}

#[test]
fn rules_that_leave_nothing_are_known() {
    for (allow, deny) in [
        (&[][..], &[][..]),
        (&["a.example"], &["a.example"]),
        (&["a.example"], &["a.example:80", "*:443"]),
        (&["*.a.example"], &["*.example"]),
        (&["*.a.example"], &["*.a.example"]),
        (&["*"], &["*"]),
        (&["10.0.0.0/8"], &["0.0.0.0/0"]),
        (&["10.0.0.0/8:22", "a.example"], &["10.0.0.0/8", "*"]),
    ] {
        assert!(rules(allow, deny).allows_nothing(), "{allow:?} {deny:?}");
    }
    for (allow, deny) in [
        (&["a.example"][..], &["a.example:80"][..]),
        (&["a.example"], &["*.a.example"]),
        (&["*"], &["*.example"]),
        (&["*"], &["0.0.0.0/0"]),
        (&["10.0.0.0/8"], &["10.0.0.0/9", "*"]),
        (&["[2001:db8::]/32"], &["0.0.0.0/0"]),
    ] {
        assert!(!rules(allow, deny).allows_nothing(), "{allow:?} {deny:?}");
    }
}

#[test]
fn a_destination_is_one_port_of_one_host() {
    for text in ["api.example.com:443", "192.0.2.7:22", "[2001:db8::1]:80"] {
        assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
    }
    let complaint = |text: &&str| text.parse::<Destination>().expect_err(text).to_string();
    let texts = ["a.example", "a.example:80,443", "*.example:80", "10.0.0.0/8:80", "https://a.example"];
    insta::assert_snapshot!(texts.iter().map(complaint).collect::<Vec<_>>().join("\n"), @r#"
    host "a.example" is not at one port; write api.example.com:443
    host "a.example:80,443" is not at one port; write api.example.com:443
    host "*.example:80" is a pattern; write one name
    host "10.0.0.0/8:80" is many addresses; write one
    host "https://a.example" is a URL; write the host alone: a.example
    "#);
}

fn label() -> impl Strategy<Value = String> {
    "[a-z_]([a-z0-9_-]{0,8}[a-z0-9_])?"
}

/// Few names and ports, so that rules often overlap.
fn some_rule() -> impl Strategy<Value = HostRule> {
    let host = select(
        &["*", "a.x", "b.a.x", "*.x", "*.a.x", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "[fd00::]/8"][..],
    );
    let ports = select(&["", ":80", ":443", ":80,443", ":70-90"][..]);
    (host, ports).prop_map(|(host, ports)| rule(&format!("{host}{ports}")))
}

fn some_rules() -> impl Strategy<Value = HostRules> {
    let some = || vec(some_rule(), 0..4);
    (some(), some(), some()).prop_map(|(allow, deny, ask)| HostRules { allow, deny, ask })
}

const NAMES: [&str; 5] = ["x", "a.x", "b.a.x", "c.x", "y"];
const ADDRESSES: [&str; 5] = ["10.1.2.3", "10.1.9.9", "10.9.9.9", "192.0.2.1", "fd00::1"];
const PORTS: [u16; 4] = [22, 80, 85, 443];

proptest! {
    #[test]
    fn a_rule_survives_its_text(
        labels in vec(label(), 1..5),
        star in any::<bool>(),
        ranges in vec((1..=u16::MAX, 0..100u16), 0..4),
    ) {
        let star = if star { "*." } else { "" };
        let ports: Vec<String> =
            ranges.iter().map(|(first, more)| format!("{first}-{}", first.saturating_add(*more))).collect();
        let colon = if ports.is_empty() { "" } else { ":" };
        let parsed = rule(&format!("{star}{}{colon}{}", labels.join("."), ports.join(",")));
        prop_assert_eq!(&rule(&parsed.to_string()), &parsed);
        for (first, more) in ranges {
            prop_assert!(parsed.ports.allows(first) && parsed.ports.denies(first.saturating_add(more)));
        }
    }

    #[test]
    fn a_range_of_addresses_survives_its_text(bits in any::<u128>(), prefix in 0u8..=128, is_v4 in any::<bool>()) {
        let address: IpAddr = match is_v4 {
            true => Ipv4Addr::from_bits(u32::try_from(bits >> 96).unwrap()).into(),
            false => Ipv6Addr::from_bits(bits).into(),
        };
        if let Ok(net) = IpNet::new(address, prefix) {
            let parsed = rule(&net.to_string());
            prop_assert_eq!(&parsed.host, &HostPattern::Net(net));
            prop_assert!(parsed.host.matches_address(address));
        }
        prop_assert!(IpNet::single_address(address).contains(address));
    }

    #[test]
    fn any_text_is_a_rule_or_an_error(text in ".{0,40}", more in "[-*a-z0-9.:,/\\[\\]]{0,30}") {
        for text in [text, more] {
            if let Ok(parsed) = text.parse::<HostRule>() {
                prop_assert_eq!(rule(&parsed.to_string()), parsed);
            }
            if let Ok(name) = DnsName::parse(&text) {
                prop_assert_eq!(&DnsName::parse(name.as_str()).unwrap(), &name);
                prop_assert!(text.parse::<IpAddr>().is_err());
            }
        }
    }

    #[test]
    fn a_denial_stands_over_every_allowance(all in some_rules(), more in some_rule()) {
        let fewer = HostRules { deny: [all.deny.clone(), vec![more.clone()]].concat(), ..all.clone() };
        for port in PORTS {
            for name in NAMES.map(name) {
                let (before, after) = (all.check_name_port(&name, port), fewer.check_name_port(&name, port));
                if more.host.matches_name(&name) && more.ports.denies(port) {
                    prop_assert!(matches!(after, HostVerdict::Denied(_)));
                }
                prop_assert!(matches!(after, HostVerdict::Denied(_)) || before == after);
            }
            for address in ADDRESSES.map(address) {
                let (before, after) = (all.check_address_port(address, port), fewer.check_address_port(address, port));
                if more.host.matches_address(address) && more.ports.denies(port) {
                    prop_assert!(matches!(after, HostVerdict::Denied(_)));
                }
                prop_assert!(matches!(after, HostVerdict::Denied(_)) || before == after);
            }
        }
    }

    #[test]
    fn nobody_is_asked_about_what_is_allowed_or_denied(all in some_rules()) {
        let silent = HostRules { ask: Vec::new(), ..all.clone() };
        for port in PORTS {
            let names = NAMES.map(name);
            let addresses = ADDRESSES.map(address);
            let by_name = names.iter().map(|name| (all.check_name_port(name, port), silent.check_name_port(name, port)));
            let by_address = addresses.iter().map(|to| (all.check_address_port(*to, port), silent.check_address_port(*to, port)));
            for (with, without) in by_name.chain(by_address) {
                prop_assert_eq!(matches!(with, HostVerdict::NeedsConsent(_)) || with == HostVerdict::NoRule, without == HostVerdict::NoRule);
                prop_assert!(without == HostVerdict::NoRule || with == without);
            }
        }
    }

    #[test]
    fn a_name_is_known_exactly_where_a_port_of_it_is_allowed(all in some_rules()) {
        for name in NAMES.map(name) {
            let is_open = |verdict| matches!(verdict, HostVerdict::Allowed(_) | HostVerdict::NeedsConsent(_));
            let is_known = is_open(all.check_name(&name));
            prop_assert_eq!(is_known, all.reachable_ports().iter().any(|port| is_open(all.check_name_port(&name, *port))), "{}", name);
        }
        if all.allows_nothing() {
            for port in all.reachable_ports() {
                for name in NAMES.map(name) {
                    prop_assert!(!matches!(all.check_name_port(&name, port), HostVerdict::Allowed(_)));
                }
                for address in ADDRESSES.map(address) {
                    prop_assert!(!matches!(all.check_address_port(address, port), HostVerdict::Allowed(_)));
                }
            }
        }
    }
}
