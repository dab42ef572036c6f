//! `linux.resources.devices`: which devices a container may open or make.
//!
//! The rules are an ordered list; for each kind of access to a device the last rule that fits decides. Before
//! them comes "deny all"; after them come the devices that every container has, as runc does it. In v1 that is
//! written to `devices.allow` and `devices.deny` ([`v1`]); in v2 it is a program in the kernel ([`filter`]).

pub(super) mod filter;
pub(super) mod v1;

use crate::error::{Code, Error, Result};
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

/// Kinds of access, as the kernel counts them (linux/bpf.h, BPF_DEVCG_ACC_*).
pub(super) const MKNOD: u8 = 1;
pub(super) const READ: u8 = 2;
pub(super) const WRITE: u8 = 4;
pub(super) const ALL: u8 = MKNOD | READ | WRITE;

/// Kinds of devices, as the kernel counts them (BPF_DEVCG_DEV_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Kind {
    Block = 1,
    Char = 2,
}

/// A set of devices; `None` is every number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Devices {
    pub kind: Kind,
    pub major: Option<u32>,
    pub minor: Option<u32>,
}

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    pub allow: bool,
    pub devices: Devices,
    pub access: u8,
}

/// What is so before the rules, and the rules, the last that fits first in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    /// Whether what no rule fits is allowed.
    pub otherwise: bool,
    /// In their order.
    pub list: Vec<Rule>,
}

/// What every container has: nodes of any device may be made (mknod alone opens nothing), and these devices.
const ALWAYS: [(Kind, Option<u32>, Option<u32>, u8); 10] = [
    (Kind::Char, None, None, MKNOD),
    (Kind::Block, None, None, MKNOD),
    (Kind::Char, Some(1), Some(3), ALL), // null
    (Kind::Char, Some(1), Some(5), ALL), // zero
    (Kind::Char, Some(1), Some(7), ALL), // full
    (Kind::Char, Some(1), Some(8), ALL), // random
    (Kind::Char, Some(1), Some(9), ALL), // urandom
    (Kind::Char, Some(5), Some(0), ALL), // tty
    (Kind::Char, Some(5), Some(2), ALL), // ptmx
    (Kind::Char, Some(136), None, ALL),  // terminals
];

impl Rules {
    /// Checks the rules, and puts what always holds around them.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a rule that says nothing the kernel knows.
    pub(super) fn new(rules: &[LinuxDeviceCgroup]) -> Result<Self> {
        let mut all = Rules { otherwise: false, list: Vec::new() };
        for (at, rule) in rules.iter().enumerate() {
            all.add(at, rule)?;
        }
        // After "allow all", nothing is left to be allowed.
        if !all.is_everything() {
            let always = ALWAYS.iter().map(|(kind, major, minor, access)| {
                let devices = Devices { kind: *kind, major: *major, minor: *minor };
                Rule { allow: true, devices, access: *access }
            });
            all.list.extend(always);
        }
        Ok(all)
    }

    /// Whether there is nothing to be refused.
    pub(super) fn is_everything(&self) -> bool {
        self.otherwise && self.list.iter().all(|rule| rule.allow)
    }

    /// Whether devices are refused by their numbers, and not only what nobody has allowed.
    pub(super) fn refuse_some(&self) -> bool {
        self.list.iter().any(|rule| !rule.allow)
    }

    fn add(&mut self, at: usize, rule: &LinuxDeviceCgroup) -> Result<()> {
        let refuse = |why: String| {
            Error::new(Code::Invalid, format!("linux.resources.devices[{at}]: {why}"))
                .hint("a rule has type a, b or c, numbers from 0 (-1 for all), and access of r, w and m")
        };
        let number = |name: &str, number: Option<i64>| match number {
            None | Some(-1) => Ok(None),
            Some(n) => u32::try_from(n).map(Some).map_err(|_| refuse(format!("{name} is {n}"))),
        };
        let (major, minor) = (number("major", rule.major())?, number("minor", rule.minor())?);
        let mut access = 0;
        for letter in rule.access().as_deref().filter(|text| !text.is_empty()).unwrap_or("rwm").chars() {
            access |= match letter {
                'r' => READ,
                'w' => WRITE,
                'm' => MKNOD,
                other => return Err(refuse(format!("access has {other:?}"))),
            };
        }
        let kinds: &[Kind] = match rule.typ() {
            None | Some(LinuxDeviceType::A) => &[Kind::Block, Kind::Char],
            Some(LinuxDeviceType::B) => &[Kind::Block],
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => &[Kind::Char],
            Some(LinuxDeviceType::P) => return Err(refuse("a FIFO is no device".to_owned())),
        };
        if kinds.len() == 2 && major.is_none() && minor.is_none() && access == ALL {
            // Nothing before it counts.
            *self = Rules { otherwise: rule.allow(), list: Vec::new() };
            return Ok(());
        }
        self.list.extend(kinds.iter().map(|kind| Rule {
            allow: rule.allow(),
            devices: Devices { kind: *kind, major, minor },
            access,
        }));
        Ok(())
    }

    /// What the rules say of one request: the meaning that [`filter`] and [`v1`] must have.
    #[cfg(test)]
    pub(super) fn allows(&self, kind: Kind, major: u32, minor: u32, access: u8) -> bool {
        let fits = |rule: &&Rule| {
            rule.devices.kind == kind
                && rule.devices.major.is_none_or(|number| number == major)
                && rule.devices.minor.is_none_or(|number| number == minor)
        };
        [MKNOD, READ, WRITE].iter().filter(|bit| access & **bit != 0).all(|bit| {
            let last = self.list.iter().rev().filter(fits).find(|rule| rule.access & bit != 0);
            last.map_or(self.otherwise, |rule| rule.allow)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn any_rule()(
            allow: bool,
            typ in prop_oneof![Just("a"), Just("b"), Just("c")],
            major in prop_oneof![Just(None), Just(Some(-1i64)), (0i64..3).prop_map(Some)],
            minor in prop_oneof![Just(None), Just(Some(-1i64)), (0i64..3).prop_map(Some)],
            access in prop::sample::select(vec!["", "r", "w", "m", "rw", "wm", "rwm"]),
        ) -> LinuxDeviceCgroup {
            let rule = serde_json::json!({
                "allow": allow, "type": typ, "major": major, "minor": minor, "access": access,
            });
            serde_json::from_value(rule).unwrap()
        }
    }

    /// Rules without what every container has, so that more can be refused.
    pub(in crate::cgroup) fn any_rules() -> impl Strategy<Value = Rules> {
        prop::collection::vec(any_rule(), 0..8).prop_map(|list| {
            let mut rules = Rules { otherwise: false, list: Vec::new() };
            list.iter().enumerate().for_each(|(at, rule)| rules.add(at, rule).unwrap());
            rules
        })
    }

    fn rules(json: serde_json::Value) -> Result<Rules> {
        Rules::new(&serde_json::from_value::<Vec<LinuxDeviceCgroup>>(json).unwrap())
    }

    #[test]
    fn without_rules_a_container_has_the_default_devices_alone() {
        let rules = rules(serde_json::json!([])).unwrap();
        assert!(rules.allows(Kind::Char, 1, 3, ALL));
        assert!(rules.allows(Kind::Char, 136, 7, READ | WRITE));
        assert!(rules.allows(Kind::Block, 8, 0, MKNOD), "a node alone opens nothing");
        assert!(!rules.allows(Kind::Block, 8, 0, READ));
        assert!(!rules.allows(Kind::Char, 10, 229, WRITE));
    }

    #[test]
    fn what_is_denied_after_it_was_allowed_is_denied() {
        let rules = rules(serde_json::json!([
            { "allow": true, "access": "rwm" },
            { "allow": false, "type": "b", "major": 8, "minor": 0, "access": "w" },
        ]))
        .unwrap();
        assert!(rules.allows(Kind::Block, 8, 0, READ));
        assert!(!rules.allows(Kind::Block, 8, 0, READ | WRITE));
        assert!(rules.allows(Kind::Block, 8, 1, ALL));
        assert!(!rules.is_everything());
    }

    #[test]
    fn allow_all_is_everything() {
        assert!(rules(serde_json::json!([{ "allow": true, "type": "a" }])).unwrap().is_everything());
    }

    #[test]
    fn a_rule_that_says_nothing_is_refused() {
        for bad in [
            serde_json::json!([{ "allow": true, "type": "c", "access": "rx" }]),
            serde_json::json!([{ "allow": true, "type": "p" }]),
            serde_json::json!([{ "allow": true, "type": "c", "major": -2 }]),
            serde_json::json!([{ "allow": true, "type": "c", "minor": 1_i64 << 40 }]),
        ] {
            let error = rules(bad).unwrap_err();
            assert!(error.to_string().starts_with("linux.resources.devices[0]"), "{error}");
        }
    }
}
