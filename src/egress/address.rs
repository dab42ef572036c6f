//! Which addresses may be dialled: a name that a policy allows can resolve to anything, also to this machine.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is, the least strict first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An address of the internet.
    Public,
    /// An address of a site, a lab or a test: for rules that name addresses.
    Private,
    /// Never dialled, whatever is allowed; the text says what it is.
    Forbidden(&'static str),
}

const METADATA: Kind = Kind::Forbidden("a metadata service");
const UNSPECIFIED: Kind = Kind::Forbidden("an unspecified address");
const LOOPBACK: Kind = Kind::Forbidden("a loopback address");
const LINK_LOCAL: Kind = Kind::Forbidden("a link-local address");
const MULTICAST: Kind = Kind::Forbidden("a multicast address");
const RESERVED: Kind = Kind::Forbidden("a reserved address");

/// The first that fits decides; what fits none is public.
const IPV4: &[(Ipv4Addr, u32, Kind)] = &[
    // Amazon, Google, Azure and most others; Alibaba; Oracle; the host of a machine at Azure.
    (Ipv4Addr::new(169, 254, 169, 254), 32, METADATA),
    (Ipv4Addr::new(100, 100, 100, 200), 32, METADATA),
    (Ipv4Addr::new(192, 0, 0, 192), 32, METADATA),
    (Ipv4Addr::new(168, 63, 129, 16), 32, METADATA),
    (Ipv4Addr::new(0, 0, 0, 0), 8, UNSPECIFIED),
    (Ipv4Addr::new(127, 0, 0, 0), 8, LOOPBACK),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LINK_LOCAL),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Kind::Forbidden("an address of IETF protocols")),
    (Ipv4Addr::new(224, 0, 0, 0), 4, MULTICAST),
    (Ipv4Addr::new(255, 255, 255, 255), 32, Kind::Forbidden("the broadcast address")),
    (Ipv4Addr::new(240, 0, 0, 0), 4, RESERVED),
    // RFC 1918, RFC 6598.
    (Ipv4Addr::new(10, 0, 0, 0), 8, Kind::Private),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Kind::Private),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Kind::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Kind::Private),
    // Benchmarks and documentation: labs use them.
    (Ipv4Addr::new(198, 18, 0, 0), 15, Kind::Private),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Kind::Private),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Kind::Private),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Kind::Private),
];

/// As [`IPV4`]; what fits none is reserved, since only 2000::/3 is given out.
const IPV6: &[(Ipv6Addr, u32, Kind)] = &[
    // Amazon, Google, Oracle, Scaleway.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, METADATA),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, METADATA),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128, METADATA),
    (Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128, METADATA),
    (Ipv6Addr::UNSPECIFIED, 128, UNSPECIFIED),
    (Ipv6Addr::LOCALHOST, 128, LOOPBACK),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, Kind::Forbidden("a discard address")),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, Kind::Forbidden("a Teredo address")),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, LINK_LOCAL),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Kind::Forbidden("a site-local address")),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, MULTICAST),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Kind::Private),
    // Documentation (RFC 3849, RFC 9637).
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Kind::Private),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Kind::Private),
    // Translators: the address inside decides (RFC 6052); which one, only a site knows (RFC 8215).
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, Kind::Public),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Kind::Private),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, Kind::Public),
    (Ipv6Addr::UNSPECIFIED, 0, RESERVED),
];

/// What `addr` is. One that holds an IPv4 address for a translator or a tunnel is judged by that too, and the stricter
/// answer counts.
pub fn kind(addr: IpAddr) -> Kind {
    match plain(addr) {
        IpAddr::V4(addr) => of_v4(addr),
        IpAddr::V6(addr) => embedded(addr).map_or(of_v6(addr), |inner| of_v6(addr).max(of_v4(inner))),
    }
}

/// Whether `addr` reaches a metadata service, in any spelling.
pub fn is_metadata(addr: IpAddr) -> bool {
    meanings(addr).any(|addr| kind(addr) == METADATA)
}

/// The address that the kernel means: an IPv4 address mapped into IPv6 is the IPv4 address.
pub fn plain(addr: IpAddr) -> IpAddr {
    addr.to_canonical()
}

fn of_v4(addr: Ipv4Addr) -> Kind {
    let fits = |net: &Ipv4Addr, length: u32| (addr.to_bits() ^ net.to_bits()).leading_zeros() >= length;
    let found = IPV4.iter().find(|(net, length, _)| fits(net, *length));
    found.map_or(Kind::Public, |(_, _, kind)| *kind)
}

fn of_v6(addr: Ipv6Addr) -> Kind {
    let fits = |net: &Ipv6Addr, length: u32| (addr.to_bits() ^ net.to_bits()).leading_zeros() >= length;
    let found = IPV6.iter().find(|(net, length, _)| fits(net, *length));
    found.map_or(RESERVED, |(_, _, kind)| *kind)
}

/// The addresses that a packet to `addr` may reach: itself, and the IPv4 address in it.
pub fn meanings(addr: IpAddr) -> impl Iterator<Item = IpAddr> {
    let addr = plain(addr);
    let inner = match addr {
        IpAddr::V4(_) => None,
        IpAddr::V6(addr) => embedded(addr).map(IpAddr::V4),
    };
    core::iter::once(addr).chain(inner)
}

/// The IPv4 address in an address of NAT64, of 6to4, or of the old form ::a.b.c.d.
fn embedded(addr: Ipv6Addr) -> Option<Ipv4Addr> {
    let halves = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match addr.segments() {
        // :: and ::1 are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => halves(high, low),
        [0x2002, high, low, ..] => halves(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Kind {
        kind(text.parse().unwrap())
    }

    #[test]
    fn what_is_given_out_is_public() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:db7::",
            "2002:0101:0101::",
            "64:ff9b::1.1.1.1",
            "::ffff:1.1.1.1",
        ] {
            assert_eq!(of(text), Kind::Public, "{text}");
        }
    }

    #[test]
    fn what_is_of_a_site_or_a_lab_is_private() {
        for text in [
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.0",
            "100.127.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "192.0.2.1",
            "198.51.100.7",
            "203.0.113.255",
            "fc00::",
            "fdff::1",
            "2001:db8::1",
            "3fff::1",
            "64:ff9b:1::1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:0a00:0001::1",
        ] {
            assert_eq!(of(text), Kind::Private, "{text}");
        }
    }

    #[test]
    fn what_is_never_dialled_says_why() {
        for (text, what) in [
            ("0.0.0.0", "an unspecified address"),
            ("0.1.2.3", "an unspecified address"),
            ("::", "an unspecified address"),
            ("127.0.0.1", "a loopback address"),
            ("127.255.255.255", "a loopback address"),
            ("::1", "a loopback address"),
            ("169.254.0.1", "a link-local address"),
            ("fe80::1", "a link-local address"),
            ("febf::1", "a link-local address"),
            ("fec0::1", "a site-local address"),
            ("224.0.0.1", "a multicast address"),
            ("239.255.255.255", "a multicast address"),
            ("ff02::1", "a multicast address"),
            ("240.0.0.1", "a reserved address"),
            ("255.255.255.254", "a reserved address"),
            ("255.255.255.255", "the broadcast address"),
            ("192.0.0.1", "an address of IETF protocols"),
            ("169.254.169.254", "a metadata service"),
            ("100.100.100.200", "a metadata service"),
            ("192.0.0.192", "a metadata service"),
            ("168.63.129.16", "a metadata service"),
            ("fd00:ec2::254", "a metadata service"),
            ("fd20:ce::254", "a metadata service"),
            ("2001:0:1::1", "a Teredo address"),
            ("100::1", "a discard address"),
            ("4000::1", "a reserved address"),
            ("::ffff:0:7f00:1", "a reserved address"),
        ] {
            assert_eq!(of(text), Kind::Forbidden(what), "{text}");
        }
    }

    #[test]
    fn an_address_inside_another_counts() {
        for text in [
            "::ffff:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
        ] {
            assert!(matches!(of(text), Kind::Forbidden(_)), "{text}");
        }
        assert_eq!(of("64:ff9b::a9fe:a9fe"), METADATA);
        assert_eq!(of("2002:a9fe:a9fe::"), METADATA);
        assert_eq!(plain("::ffff:192.0.2.1".parse().unwrap()), IpAddr::from([192, 0, 2, 1]));
        assert_eq!(plain("2002:c000:201::".parse().unwrap()).to_string(), "2002:c000:201::");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn no_form_of_an_address_is_laxer_than_it_is(bits: u32) {
            let inner = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = inner.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            for outer in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                prop_assert!(kind(outer.into()) >= kind(inner.into()), "{} {}", outer, inner);
            }
        }
    }
}
