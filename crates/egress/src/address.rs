//! Classifies addresses: a name that a policy allows can resolve to any address, even to one of this machine.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address, the least strict first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressClass {
    /// A public address of the internet.
    Public,
    /// An address of a site, a lab or a test. Only a rule that names the address allows it.
    Private,
    /// Never connected to, whatever is allowed; the text describes the address.
    Forbidden(&'static str),
}

const METADATA: AddressClass = AddressClass::Forbidden("a metadata service");
const UNSPECIFIED: AddressClass = AddressClass::Forbidden("an unspecified address");
const LOOPBACK: AddressClass = AddressClass::Forbidden("a loopback address");
const LINK_LOCAL: AddressClass = AddressClass::Forbidden("a link-local address");
const MULTICAST: AddressClass = AddressClass::Forbidden("a multicast address");
const RESERVED: AddressClass = AddressClass::Forbidden("a reserved address");

/// The first matching network decides. Other addresses are public.
const IPV4: &[(Ipv4Addr, u32, AddressClass)] = &[
    // Amazon, Google, Azure and most others; Alibaba; Oracle; the host of a machine at Azure.
    (Ipv4Addr::new(169, 254, 169, 254), 32, METADATA),
    (Ipv4Addr::new(100, 100, 100, 200), 32, METADATA),
    (Ipv4Addr::new(192, 0, 0, 192), 32, METADATA),
    (Ipv4Addr::new(168, 63, 129, 16), 32, METADATA),
    (Ipv4Addr::new(0, 0, 0, 0), 8, UNSPECIFIED),
    (Ipv4Addr::new(127, 0, 0, 0), 8, LOOPBACK),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LINK_LOCAL),
    (Ipv4Addr::new(192, 0, 0, 0), 24, AddressClass::Forbidden("an address of IETF protocols")),
    (Ipv4Addr::new(224, 0, 0, 0), 4, MULTICAST),
    (Ipv4Addr::new(255, 255, 255, 255), 32, AddressClass::Forbidden("the broadcast address")),
    (Ipv4Addr::new(240, 0, 0, 0), 4, RESERVED),
    // RFC 1918, RFC 6598.
    (Ipv4Addr::new(10, 0, 0, 0), 8, AddressClass::Private),
    (Ipv4Addr::new(172, 16, 0, 0), 12, AddressClass::Private),
    (Ipv4Addr::new(192, 168, 0, 0), 16, AddressClass::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, AddressClass::Private),
    // Benchmarks and documentation; labs use these networks.
    (Ipv4Addr::new(198, 18, 0, 0), 15, AddressClass::Private),
    (Ipv4Addr::new(192, 0, 2, 0), 24, AddressClass::Private),
    (Ipv4Addr::new(198, 51, 100, 0), 24, AddressClass::Private),
    (Ipv4Addr::new(203, 0, 113, 0), 24, AddressClass::Private),
];

/// As [`IPV4`], but other addresses are reserved, because only 2000::/3 is allocated.
const IPV6: &[(Ipv6Addr, u32, AddressClass)] = &[
    // Amazon, Google, Oracle, Scaleway.
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, METADATA),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, METADATA),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128, METADATA),
    (Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128, METADATA),
    (Ipv6Addr::UNSPECIFIED, 128, UNSPECIFIED),
    (Ipv6Addr::LOCALHOST, 128, LOOPBACK),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, AddressClass::Forbidden("a discard address")),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, AddressClass::Forbidden("a Teredo address")),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, LINK_LOCAL),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, AddressClass::Forbidden("a site-local address")),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, MULTICAST),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, AddressClass::Private),
    // Documentation (RFC 3849, RFC 9637).
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, AddressClass::Private),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, AddressClass::Private),
    // Translators: the embedded address decides (RFC 6052). Its position in 64:ff9b:1::/48 depends on the site (RFC
    // 8215).
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, AddressClass::Public),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, AddressClass::Private),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, AddressClass::Public),
    (Ipv6Addr::UNSPECIFIED, 0, RESERVED),
];

/// The class of `addr`. An address with an embedded IPv4 address, for a translator or a tunnel, has the stricter class
/// of the two.
pub fn classify(addr: IpAddr) -> AddressClass {
    match canonical(addr) {
        IpAddr::V4(addr) => classify_v4(addr),
        IpAddr::V6(addr) => {
            embedded_ipv4(addr).map_or(classify_v6(addr), |inner| classify_v6(addr).max(classify_v4(inner)))
        }
    }
}

/// Whether `addr` reaches a metadata service, in any notation.
pub(crate) fn is_metadata(addr: IpAddr) -> bool {
    reachable_addresses(addr).any(|addr| classify(addr) == METADATA)
}

/// The address that the kernel uses: an IPv4-mapped IPv6 address becomes the IPv4 address.
pub fn canonical(addr: IpAddr) -> IpAddr {
    addr.to_canonical()
}

fn classify_v4(addr: Ipv4Addr) -> AddressClass {
    let fits = |net: &Ipv4Addr, length: u32| (addr.to_bits() ^ net.to_bits()).leading_zeros() >= length;
    let found = IPV4.iter().find(|(net, length, _)| fits(net, *length));
    found.map_or(AddressClass::Public, |(_, _, kind)| *kind)
}

fn classify_v6(addr: Ipv6Addr) -> AddressClass {
    let fits = |net: &Ipv6Addr, length: u32| (addr.to_bits() ^ net.to_bits()).leading_zeros() >= length;
    let found = IPV6.iter().find(|(net, length, _)| fits(net, *length));
    found.map_or(RESERVED, |(_, _, kind)| *kind)
}

/// The addresses that a packet to `addr` may reach: the address itself and its embedded IPv4 address.
pub(crate) fn reachable_addresses(addr: IpAddr) -> impl Iterator<Item = IpAddr> {
    let addr = canonical(addr);
    let inner = match addr {
        IpAddr::V4(_) => None,
        IpAddr::V6(addr) => embedded_ipv4(addr).map(IpAddr::V4),
    };
    core::iter::once(addr).chain(inner)
}

/// The IPv4 address in a NAT64 address, a 6to4 address, or one of the old form ::a.b.c.d.
fn embedded_ipv4(addr: Ipv6Addr) -> Option<Ipv4Addr> {
    let halves = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match addr.segments() {
        // :: and ::1 embed no address.
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

    fn of(text: &str) -> AddressClass {
        classify(text.parse().unwrap())
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
            assert_eq!(of(text), AddressClass::Public, "{text}");
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
            assert_eq!(of(text), AddressClass::Private, "{text}");
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
            assert_eq!(of(text), AddressClass::Forbidden(what), "{text}");
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
            assert!(matches!(of(text), AddressClass::Forbidden(_)), "{text}");
        }
        assert_eq!(of("64:ff9b::a9fe:a9fe"), METADATA);
        assert_eq!(of("2002:a9fe:a9fe::"), METADATA);
        assert_eq!(canonical("::ffff:192.0.2.1".parse().unwrap()), IpAddr::from([192, 0, 2, 1]));
        assert_eq!(canonical("2002:c000:201::".parse().unwrap()).to_string(), "2002:c000:201::");
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
                prop_assert!(classify(outer.into()) >= classify(inner.into()), "{} {}", outer, inner);
            }
        }
    }
}
