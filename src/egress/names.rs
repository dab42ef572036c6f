//! The addresses that stand for names inside: whoever dials one means the name, and nothing else is behind it.
//!
//! A name has one number, and an IPv4 and an IPv6 address made of it. Names that nobody uses any more give way to new
//! ones, the longest unused first; their numbers come round again last, since programs keep addresses for longer than
//! an answer allows.

use super::address::plain;
use crate::spec::policy::hosts::stand_in::{self, IPV4, IPV6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, HashMap};

/// Hosts in a /24, without .0 and .255, which some programs take for the network and for all of it.
const HOSTS: u32 = 254;
/// How many numbers there are: 512 times /24.
const NUMBERS: u32 = 512 * HOSTS;

/// How many names are remembered by default.
const CAPACITY: usize = 4096;

/// Names and their addresses.
#[derive(Debug)]
pub struct Names {
    capacity: usize,
    by_name: HashMap<String, u32>,
    by_number: HashMap<u32, Entry>,
    /// Who may give way, by the time of the last use.
    idle: BTreeMap<u64, u32>,
    /// Counts uses.
    now: u64,
    /// The number that is tried next.
    next: u32,
}

#[derive(Debug)]
struct Entry {
    name: String,
    used: u64,
    /// Live connections.
    holds: usize,
}

impl Default for Names {
    fn default() -> Self {
        Names::new(CAPACITY)
    }
}

impl Names {
    /// None so far, and never more than `capacity`; two at least, and at most half of all numbers.
    pub fn new(capacity: usize) -> Self {
        Names {
            capacity: capacity.clamp(2, (NUMBERS / 2) as usize),
            by_name: HashMap::new(),
            by_number: HashMap::new(),
            idle: BTreeMap::new(),
            now: 0,
            next: 0,
        }
    }

    /// The addresses that stand for `name`, the same as long as it is remembered.
    pub fn addresses_of(&mut self, name: &str) -> (Ipv4Addr, Ipv6Addr) {
        let number = match self.by_name.get(name) {
            Some(number) => *number,
            None => self.take(name),
        };
        self.touch(number);
        addresses(number)
    }

    /// The name that `addr` stands for.
    pub fn name_of(&self, addr: IpAddr) -> Option<&str> {
        Some(&self.by_number.get(&number(addr)?)?.name)
    }

    /// Whether `addr` is one of those that stand for names, now or ever.
    pub fn is_synthetic(addr: IpAddr) -> bool {
        stand_in::is_one(addr)
    }

    /// A connection to `addr` begins: its name stays until as many [`Names::release`]. `false` when it stands for no
    /// name, or when nothing could give way any more if this one were held too.
    #[must_use]
    pub fn hold(&mut self, addr: IpAddr) -> bool {
        let held = self.by_number.len() - self.idle.len();
        let Some(entry) = number(addr).and_then(|number| self.by_number.get_mut(&number)) else {
            return false;
        };
        if entry.holds == 0 {
            if held + 1 >= self.capacity {
                return false;
            }
            self.idle.remove(&entry.used);
        }
        entry.holds += 1;
        true
    }

    /// A connection to `addr` that was held has ended.
    pub fn release(&mut self, addr: IpAddr) {
        let Some(number) = number(addr) else { return };
        let Some(entry) = self.by_number.get_mut(&number).filter(|entry| entry.holds > 0) else { return };
        entry.holds -= 1;
        self.touch(number);
    }

    /// Gives `name` a number of its own.
    fn take(&mut self, name: &str) -> u32 {
        if self.by_number.len() >= self.capacity
            && let Some((_, oldest)) = self.idle.pop_first()
            && let Some(entry) = self.by_number.remove(&oldest)
        {
            self.by_name.remove(&entry.name);
        }
        // At most half of the numbers are taken: this ends.
        while self.by_number.contains_key(&self.next) {
            self.next = (self.next + 1) % NUMBERS;
        }
        let number = self.next;
        self.next = (number + 1) % NUMBERS;
        self.by_name.insert(name.to_owned(), number);
        self.by_number.insert(number, Entry { name: name.to_owned(), used: 0, holds: 0 });
        number
    }

    /// Notes that a number is used now.
    fn touch(&mut self, number: u32) {
        let Some(entry) = self.by_number.get_mut(&number) else { return };
        self.now += 1;
        self.idle.remove(&entry.used);
        entry.used = self.now;
        if entry.holds == 0 {
            self.idle.insert(self.now, number);
        }
    }
}

fn addresses(number: u32) -> (Ipv4Addr, Ipv6Addr) {
    let low = IPV4.to_bits() + (number / HOSTS) * 256 + number % HOSTS + 1;
    (Ipv4Addr::from_bits(low), Ipv6Addr::from_bits(IPV6.to_bits() | u128::from(low)))
}

/// The number that `addr` is made of.
fn number(addr: IpAddr) -> Option<u32> {
    let low = match plain(addr) {
        IpAddr::V4(addr) => addr.to_bits(),
        IpAddr::V6(addr) => u32::try_from(addr.to_bits().checked_sub(IPV6.to_bits())?).ok()?,
    };
    let offset = low.checked_sub(IPV4.to_bits())?;
    let number = (offset / 256) * HOSTS + (offset % 256).checked_sub(1)?;
    (offset % 256 != 255 && number < NUMBERS).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_keeps_its_addresses_and_they_lead_back() {
        let mut names = Names::default();
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
            assert!(Names::is_synthetic(addr));
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
        let mut names = Names::new(3);
        let a = names.addresses_of("a").0.into();
        let b = names.addresses_of("b").0.into();
        names.addresses_of("c");
        assert!(names.hold(a));
        names.addresses_of("b");
        // a is held, b was asked for later than c.
        let d = names.addresses_of("d").0.into();
        assert_eq!((names.name_of(a), names.name_of(b), names.name_of(d)), (Some("a"), Some("b"), Some("d")));
        assert_ne!(names.addresses_of("c").0, d);
        assert!(names.name_of(b).is_none());
        assert!(names.hold(a));
        names.release(a);
        for name in ["e", "f", "g"] {
            names.addresses_of(name);
        }
        assert_eq!(names.name_of(a), Some("a"));
        names.release(a);
        // More releases than holds change nothing.
        names.release(a);
        for name in ["h", "i", "j"] {
            names.addresses_of(name);
        }
        assert_eq!(names.name_of(a), None);
        assert!(!names.hold(a));
    }

    #[test]
    fn room_for_a_new_name_is_always_left() {
        let mut names = Names::new(2);
        let (a, b) = (names.addresses_of("a").0.into(), names.addresses_of("b").0.into());
        assert!(names.hold(a) && names.hold(a));
        assert!(!names.hold(b));
        names.addresses_of("c");
        assert_eq!((names.name_of(a), names.name_of(b)), (Some("a"), None));
    }

    #[test]
    fn every_number_has_addresses_of_its_own_within_the_nets() {
        for n in 0..NUMBERS {
            let (v4, v6) = addresses(n);
            assert!(!matches!(v4.octets()[3], 0 | 255));
            assert!(Names::is_synthetic(v4.into()) && Names::is_synthetic(v6.into()));
            assert_eq!((number(v4.into()), number(v6.into())), (Some(n), Some(n)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn an_address_never_stands_for_two_names(steps in proptest::collection::vec((0u8..3, 0u8..12), 0..200)) {
            let mut names = Names::new(4);
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
                        if names.hold(addr) {
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
            let names = Names::default();
            for addr in [IpAddr::from(Ipv4Addr::from_bits(v4)), Ipv6Addr::from_bits(v6).into()] {
                prop_assert_eq!(names.name_of(addr), None);
                prop_assert!(number(addr).is_none() || Names::is_synthetic(addr));
            }
        }
    }
}
