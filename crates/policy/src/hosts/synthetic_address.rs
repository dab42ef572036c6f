//! Synthetic addresses: each stands for a name in a sandbox. A connection to one is a connection to that
//! name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// 198.18.0.0/15, reserved for benchmarks and never routed (RFC 2544).
pub const IPV4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const IPV4_PREFIX_LENGTH: u32 = 15;
/// A unique local prefix whose global id spells `saggar` (RFC 4193).
pub const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd73, 0x6167, 0x6761, 0x7200, 0, 0, 0, 0);
const IPV6_PREFIX_LENGTH: u32 = 64;

/// Whether an address is in these ranges, assigned to a name or not.
pub fn is_synthetic(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => (v4.to_bits() ^ IPV4.to_bits()).leading_zeros() >= IPV4_PREFIX_LENGTH,
        IpAddr::V6(v6) => (v6.to_bits() ^ IPV6.to_bits()).leading_zeros() >= IPV6_PREFIX_LENGTH,
    }
}

/// Whether all addresses of a range are in these ranges.
pub(super) fn covers_range(address: IpAddr, prefix: u8) -> bool {
    let length = if address.is_ipv4() { IPV4_PREFIX_LENGTH } else { IPV6_PREFIX_LENGTH };
    u32::from(prefix) >= length && is_synthetic(address)
}
