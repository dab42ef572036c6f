//! The addresses that stand for names inside a sandbox: whoever dials one means the name that it was given for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// 198.18.0.0/15, for benchmarks and never routed (RFC 2544).
pub const IPV4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const IPV4_LENGTH: u32 = 15;
/// A unique local prefix whose global part is `saggar` (RFC 4193).
pub const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd73, 0x6167, 0x6761, 0x7200, 0, 0, 0, 0);
const IPV6_LENGTH: u32 = 64;

/// Whether an address is one of those, given to a name or not.
pub fn is_one(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => (v4.to_bits() ^ IPV4.to_bits()).leading_zeros() >= IPV4_LENGTH,
        IpAddr::V6(v6) => (v6.to_bits() ^ IPV6.to_bits()).leading_zeros() >= IPV6_LENGTH,
    }
}

/// Whether all addresses of a range are among those.
pub(super) fn has_all(address: IpAddr, prefix: u8) -> bool {
    let length = if address.is_ipv4() { IPV4_LENGTH } else { IPV6_LENGTH };
    u32::from(prefix) >= length && is_one(address)
}
