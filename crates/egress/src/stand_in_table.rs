//! The stand-in addresses of names in the sandbox. A connection to one is a connection to the name; no host has the
//! address.
//!
//! A name has one number, and an IPv4 and an IPv6 address derived from it. New names replace unused ones, the longest
//! unused first. Freed numbers are reused as late as possible, because programs keep addresses for longer than the
//! time to live.

use super::address::canonical;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use saggar_policy::hosts::synthetic_address::{self, IPV4, IPV6};
use std::collections::{BTreeMap, HashMap};

/// Hosts in a /24, without .0 and .255, which some programs treat as network and broadcast addresses.
const HOSTS_PER_BLOCK: u32 = 254;
/// Number of stand-in numbers: 512 times /24.
const NUMBER_COUNT: u32 = 512 * HOSTS_PER_BLOCK;

/// Default number of remembered names.
const DEFAULT_CAPACITY: usize = 4096;

/// Names and their stand-in addresses.
#[derive(Debug)]
pub struct StandInTable {
    capacity: usize,
    by_name: HashMap<String, u32>,
    by_number: HashMap<u32, StandInEntry>,
    /// Replaceable names, by the time of their last use.
    idle_by_use: BTreeMap<u64, u32>,
    /// Counts uses; serves as the clock of `idle_by_use`.
    use_count: u64,
    /// The number that is tried next.
    next_number: u32,
}

#[derive(Debug)]
struct StandInEntry {
    name: String,
    last_use: u64,
    /// Number of live connections.
    connections: usize,
}

impl Default for StandInTable {
    fn default() -> Self {
        StandInTable::new(DEFAULT_CAPACITY)
    }
}

impl StandInTable {
    /// Creates an empty table of at most `capacity` names; at least two, and at most half of all numbers.
    pub fn new(capacity: usize) -> Self {
        StandInTable {
            capacity: capacity.clamp(2, (NUMBER_COUNT / 2) as usize),
            by_name: HashMap::new(),
            by_number: HashMap::new(),
            idle_by_use: BTreeMap::new(),
            use_count: 0,
            next_number: 0,
        }
    }

    /// The stand-in addresses of `name`. They are stable while the name is remembered.
    pub(crate) fn addresses_of(&mut self, name: &str) -> (Ipv4Addr, Ipv6Addr) {
        let number = match self.by_name.get(name) {
            Some(number) => *number,
            None => self.assign_number(name),
        };
        self.mark_used(number);
        stand_in_addresses(number)
    }

    /// The name of the stand-in address `addr`.
    pub fn name_of(&self, addr: IpAddr) -> Option<&str> {
        Some(&self.by_number.get(&stand_in_number(addr)?)?.name)
    }

    /// Whether `addr` is in the range of stand-in addresses, assigned or not.
    pub fn is_stand_in(addr: IpAddr) -> bool {
        synthetic_address::is_synthetic(addr)
    }

    /// Registers a connection to `addr`. Its name is kept until as many calls of [`StandInTable::release`]. `false` if
    /// the address has no name, or if no name would remain replaceable.
    #[must_use]
    pub fn acquire(&mut self, addr: IpAddr) -> bool {
        let held = self.by_number.len() - self.idle_by_use.len();
        let Some(entry) = stand_in_number(addr).and_then(|number| self.by_number.get_mut(&number)) else {
            return false;
        };
        if entry.connections == 0 {
            if held + 1 >= self.capacity {
                return false;
            }
            self.idle_by_use.remove(&entry.last_use);
        }
        entry.connections += 1;
        true
    }

    /// Releases a registered connection to `addr`.
    pub fn release(&mut self, addr: IpAddr) {
        let Some(number) = stand_in_number(addr) else { return };
        let Some(entry) = self.by_number.get_mut(&number).filter(|entry| entry.connections > 0) else {
            return;
        };
        entry.connections -= 1;
        self.mark_used(number);
    }

    /// Assigns a new number to `name`.
    fn assign_number(&mut self, name: &str) -> u32 {
        if self.by_number.len() >= self.capacity
            && let Some((_, oldest)) = self.idle_by_use.pop_first()
            && let Some(entry) = self.by_number.remove(&oldest)
        {
            self.by_name.remove(&entry.name);
        }
        // At most half of the numbers are taken, so this ends.
        while self.by_number.contains_key(&self.next_number) {
            self.next_number = (self.next_number + 1) % NUMBER_COUNT;
        }
        let number = self.next_number;
        self.next_number = (number + 1) % NUMBER_COUNT;
        self.by_name.insert(name.to_owned(), number);
        self.by_number.insert(number, StandInEntry { name: name.to_owned(), last_use: 0, connections: 0 });
        number
    }

    /// Marks a number as used now.
    fn mark_used(&mut self, number: u32) {
        let Some(entry) = self.by_number.get_mut(&number) else { return };
        self.use_count += 1;
        self.idle_by_use.remove(&entry.last_use);
        entry.last_use = self.use_count;
        if entry.connections == 0 {
            self.idle_by_use.insert(self.use_count, number);
        }
    }
}

fn stand_in_addresses(number: u32) -> (Ipv4Addr, Ipv6Addr) {
    let low = IPV4.to_bits() + (number / HOSTS_PER_BLOCK) * 256 + number % HOSTS_PER_BLOCK + 1;
    (Ipv4Addr::from_bits(low), Ipv6Addr::from_bits(IPV6.to_bits() | u128::from(low)))
}

/// The number from which `addr` is derived.
fn stand_in_number(addr: IpAddr) -> Option<u32> {
    let low = match canonical(addr) {
        IpAddr::V4(addr) => addr.to_bits(),
        IpAddr::V6(addr) => u32::try_from(addr.to_bits().checked_sub(IPV6.to_bits())?).ok()?,
    };
    let offset = low.checked_sub(IPV4.to_bits())?;
    let number = (offset / 256) * HOSTS_PER_BLOCK + (offset % 256).checked_sub(1)?;
    (offset % 256 != 255 && number < NUMBER_COUNT).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_keeps_its_addresses_and_they_lead_back() {
        let mut names = StandInTable::default();
        let (v4, v6) = names.addresses_of("api.example.com");
        assert_eq!(
            (v4.to_string(), v6.to_string()),
            ("198.18.0.1".into(), "fd73:6167:6761:7200::c612:1".into())
        );
        let other = names.addresses_of("example.org");
        assert_eq!(other.0.to_string(), "198.18.0.2");
        assert_eq!(names.addresses_of("api.example.com"), (v4, v6));
        for addr in [v4.into(), v6.into(), v4.to_ipv6_mapped().into()] {
            assert_eq!(names.name_of(addr), Some("api.example.com"));
            assert!(StandInTable::is_stand_in(addr));
        }
        for text in [
            "198.18.0.0",
            "198.18.0.255",
            "198.18.0.3",
            "198.17.255.255",
            "198.20.0.1",
            "fd73:6167:6761:7200::",
            "fd73:6167:6761:7200::1:c612:1",
            "fd73:6167:6761:7201::c612:1",
            "::c612:1",
        ] {
            assert_eq!(names.name_of(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn the_longest_unused_gives_way_and_one_that_is_held_never() {
        let mut names = StandInTable::new(3);
        let a = names.addresses_of("a").0.into();
        let b = names.addresses_of("b").0.into();
        names.addresses_of("c");
        assert!(names.acquire(a));
        names.addresses_of("b");
        // a is in use, and b was requested later than c.
        let d = names.addresses_of("d").0.into();
        assert_eq!((names.name_of(a), names.name_of(b), names.name_of(d)), (Some("a"), Some("b"), Some("d")));
        assert_ne!(names.addresses_of("c").0, d);
        assert!(names.name_of(b).is_none());
        assert!(names.acquire(a));
        names.release(a);
        for name in ["e", "f", "g"] {
            names.addresses_of(name);
        }
        assert_eq!(names.name_of(a), Some("a"));
        names.release(a);
        // More releases than acquires have no effect.
        names.release(a);
        for name in ["h", "i", "j"] {
            names.addresses_of(name);
        }
        assert_eq!(names.name_of(a), None);
        assert!(!names.acquire(a));
    }

    #[test]
    fn room_for_a_new_name_is_always_left() {
        let mut names = StandInTable::new(2);
        let (a, b) = (names.addresses_of("a").0.into(), names.addresses_of("b").0.into());
        assert!(names.acquire(a) && names.acquire(a));
        assert!(!names.acquire(b));
        names.addresses_of("c");
        assert_eq!((names.name_of(a), names.name_of(b)), (Some("a"), None));
    }

    #[test]
    fn every_number_has_addresses_of_its_own_within_the_nets() {
        for n in 0..NUMBER_COUNT {
            let (v4, v6) = stand_in_addresses(n);
            assert!(!matches!(v4.octets()[3], 0 | 255));
            assert!(StandInTable::is_stand_in(v4.into()) && StandInTable::is_stand_in(v6.into()));
            assert_eq!((stand_in_number(v4.into()), stand_in_number(v6.into())), (Some(n), Some(n)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn an_address_never_stands_for_two_names(steps in proptest::collection::vec((0u8..3, 0u8..12), 0..200)) {
            let mut names = StandInTable::new(4);
            let mut held: Vec<(IpAddr, String)> = Vec::new();
            for (step, which) in steps {
                let name = format!("n{which}");
                match step {
                    0 => {
                        let (v4, v6) = names.addresses_of(&name);
                        prop_assert_eq!(names.name_of(v4.into()), Some(name.as_str()));
                        prop_assert_eq!(names.name_of(v6.into()), Some(name.as_str()));
                    }
                    1 => {
                        let addr = IpAddr::from(names.addresses_of(&name).1);
                        if names.acquire(addr) {
                            held.push((addr, name));
                        }
                    }
                    _ => if let Some((addr, _)) = held.pop() { names.release(addr) },
                }
                prop_assert!(names.by_number.len() <= 4 && names.by_name.len() == names.by_number.len());
                for (addr, name) in &held {
                    prop_assert_eq!(names.name_of(*addr), Some(name.as_str()));
                }
            }
        }

        #[test]
        fn any_address_can_be_asked_about(v4: u32, v6: u128) {
            let names = StandInTable::default();
            for addr in [IpAddr::from(Ipv4Addr::from_bits(v4)), Ipv6Addr::from_bits(v6).into()] {
                prop_assert_eq!(names.name_of(addr), None);
                prop_assert!(stand_in_number(addr).is_none() || StandInTable::is_stand_in(addr));
            }
        }
    }
}
