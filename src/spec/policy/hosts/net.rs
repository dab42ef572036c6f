//! A range of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses with one prefix (RFC 4632). One address is a range with the longest prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Net {
    address: IpAddr,
    prefix: u8,
}

impl Net {
    /// The range of this address and this prefix.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence that begins with it.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, String> {
        if let IpAddr::V6(v6) = address
            && let Some(v4) = v6.to_ipv4_mapped()
        {
            return Err(format!("is an IPv4 address in IPv6; write {v4}"));
        }
        let longest = longest(address);
        if prefix > longest {
            return Err(format!("has a prefix of {prefix} bits, and the address has {longest}"));
        }
        let net = Net { address: first(address, prefix), prefix };
        match net.address == address {
            true => Ok(net),
            false => Err(format!("has bits beyond its prefix; write {net}")),
        }
    }

    /// The range of one address; one that stands in IPv6 for an IPv4 address is that IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Net { address, prefix: longest(address) }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits all its addresses share.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The one address, where it is one.
    pub(super) fn single(&self) -> Option<IpAddr> {
        (self.prefix == longest(self.address)).then_some(self.address)
    }

    /// Whether the address is in the range. One that stands in IPv6 for an IPv4 address is judged as that.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && first(address, self.prefix) == self.address
    }

    /// Whether every address of the other range is in this one.
    pub(super) fn covers(&self, other: &Net) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

/// How many bits the address has.
fn longest(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The first address with the same prefix.
fn first(address: IpAddr, prefix: u8) -> IpAddr {
    let beyond = u32::from(longest(address).saturating_sub(prefix));
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

/// As in a rule: IPv6 in brackets, no prefix after a single address.
impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(v4) => write!(f, "{v4}")?,
            IpAddr::V6(v6) => write!(f, "[{v6}]")?,
        }
        match self.prefix == longest(self.address) {
            true => Ok(()),
            false => write!(f, "/{}", self.prefix),
        }
    }
}
