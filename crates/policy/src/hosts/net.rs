//! Ranges of IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses with one prefix (RFC 4632). A single address has the longest prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpNet {
    address: IpAddr,
    prefix: u8,
}

impl IpNet {
    /// The range with this address and this prefix length.
    ///
    /// # Errors
    /// The reason why it is not a range, as the end of a sentence that begins with it.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, String> {
        if let IpAddr::V6(v6) = address
            && let Some(v4) = v6.to_ipv4_mapped()
        {
            return Err(format!("is an IPv4 address in IPv6; write {v4}"));
        }
        let longest = max_prefix(address);
        if prefix > longest {
            return Err(format!("has a prefix of {prefix} bits, and the address has {longest}"));
        }
        let net = IpNet { address: network_address(address, prefix), prefix };
        match net.address == address {
            true => Ok(net),
            false => Err(format!("has bits beyond its prefix; write {net}")),
        }
    }

    /// The range of a single address. An IPv4-mapped IPv6 address is converted to IPv4.
    pub(crate) fn single_address(address: IpAddr) -> Self {
        let address = address.to_canonical();
        IpNet { address, prefix: max_prefix(address) }
    }

    /// The first address of the range.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The address, if the range has only one.
    pub(super) fn as_single_address(&self) -> Option<IpAddr> {
        (self.prefix == max_prefix(self.address)).then_some(self.address)
    }

    /// Whether the address is in the range. An IPv4-mapped IPv6 address is checked as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && network_address(address, self.prefix) == self.address
    }

    /// Whether this range contains every address of `other`.
    pub(super) fn covers(&self, other: &IpNet) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

/// The length of the address in bits.
fn max_prefix(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The first address with the same prefix.
fn network_address(address: IpAddr, prefix: u8) -> IpAddr {
    let beyond = u32::from(max_prefix(address).saturating_sub(prefix));
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(beyond).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(beyond).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

/// The syntax of a rule: IPv6 in brackets, no prefix after a single address.
impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(v4) => write!(f, "{v4}")?,
            IpAddr::V6(v6) => write!(f, "[{v6}]")?,
        }
        match self.prefix == max_prefix(self.address) {
            true => Ok(()),
            false => write!(f, "/{}", self.prefix),
        }
    }
}
