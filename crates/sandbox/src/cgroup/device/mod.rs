//! `linux.resources.devices`: the devices that a container may open or create.
//!
//! The rules are an ordered list; for each kind of access to a device the last matching rule decides. "Deny all" comes
//! first, and the default devices of every container last, as in runc. In v1 the rules are written to `devices.allow`
//! and `devices.deny` ([`v1`]); in v2 they are a program in the kernel ([`filter`]).

pub(super) mod filter;
pub(super) mod v1;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};
use saggar_sys::error::{Code, Error, Result};

/// Kinds of access, with the kernel's values (linux/bpf.h, BPF_DEVCG_ACC_*).
pub(super) const MKNOD: u8 = 1;
pub(super) const READ: u8 = 2;
pub(super) const WRITE: u8 = 4;
pub(super) const ALL: u8 = MKNOD | READ | WRITE;

/// Kinds of devices, with the kernel's values (BPF_DEVCG_DEV_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum DeviceKind {
    Block = 1,
    Char = 2,
}

/// A set of devices; `None` matches every number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceSet {
    pub kind: DeviceKind,
    pub major: Option<u32>,
    pub minor: Option<u32>,
}

/// One device rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceRule {
    pub allow: bool,
    pub devices: DeviceSet,
    pub access: u8,
}

/// The default, and the rules. If several rules match, the last one decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceRules {
    /// Whether a request that no rule matches is allowed.
    pub default_allow: bool,
    /// The rules in their order.
    pub list: Vec<DeviceRule>,
}

/// The default devices of every container. Nodes of any device may be created (mknod alone opens nothing).
const DEFAULT_DEVICES: [(DeviceKind, Option<u32>, Option<u32>, u8); 10] = [
    (DeviceKind::Char, None, None, MKNOD),
    (DeviceKind::Block, None, None, MKNOD),
    (DeviceKind::Char, Some(1), Some(3), ALL), // null
    (DeviceKind::Char, Some(1), Some(5), ALL), // zero
    (DeviceKind::Char, Some(1), Some(7), ALL), // full
    (DeviceKind::Char, Some(1), Some(8), ALL), // random
    (DeviceKind::Char, Some(1), Some(9), ALL), // urandom
    (DeviceKind::Char, Some(5), Some(0), ALL), // tty
    (DeviceKind::Char, Some(5), Some(2), ALL), // ptmx
    (DeviceKind::Char, Some(136), None, ALL),  // terminals
];

impl DeviceRules {
    /// Checks the rules, and adds the fixed rules before and after them.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a rule that has no meaning for the kernel.
    pub(super) fn new(rules: &[LinuxDeviceCgroup]) -> Result<Self> {
        let mut all = DeviceRules { default_allow: false, list: Vec::new() };
        for (at, rule) in rules.iter().enumerate() {
            all.add(at, rule)?;
        }
        // After "allow all" the default devices need no rule.
        if !all.allows_everything() {
            let always = DEFAULT_DEVICES.iter().map(|(kind, major, minor, access)| {
                let devices = DeviceSet { kind: *kind, major: *major, minor: *minor };
                DeviceRule { allow: true, devices, access: *access }
            });
            all.list.extend(always);
        }
        Ok(all)
    }

    /// Whether no request is denied.
    pub(super) fn allows_everything(&self) -> bool {
        self.default_allow && self.list.iter().all(|rule| rule.allow)
    }

    /// Whether a rule denies devices by number, in addition to the default.
    pub(super) fn denies_by_number(&self) -> bool {
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
        let kinds: &[DeviceKind] = match rule.typ() {
            None | Some(LinuxDeviceType::A) => &[DeviceKind::Block, DeviceKind::Char],
            Some(LinuxDeviceType::B) => &[DeviceKind::Block],
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => &[DeviceKind::Char],
            Some(LinuxDeviceType::P) => return Err(refuse("a FIFO is no device".to_owned())),
        };
        if kinds.len() == 2 && major.is_none() && minor.is_none() && access == ALL {
            // Rules before a rule for all devices have no effect.
            *self = DeviceRules { default_allow: rule.allow(), list: Vec::new() };
            return Ok(());
        }
        self.list.extend(kinds.iter().map(|kind| DeviceRule {
            allow: rule.allow(),
            devices: DeviceSet { kind: *kind, major, minor },
            access,
        }));
        Ok(())
    }

    /// The result of the rules for one request: the reference for [`filter`] and [`v1`].
    #[cfg(test)]
    pub(super) fn allows(&self, kind: DeviceKind, major: u32, minor: u32, access: u8) -> bool {
        let fits = |rule: &&DeviceRule| {
            rule.devices.kind == kind
                && rule.devices.major.is_none_or(|number| number == major)
                && rule.devices.minor.is_none_or(|number| number == minor)
        };
        [MKNOD, READ, WRITE].iter().filter(|bit| access & **bit != 0).all(|bit| {
            let last = self.list.iter().rev().filter(fits).find(|rule| rule.access & bit != 0);
            last.map_or(self.default_allow, |rule| rule.allow)
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

    /// Rules without the default devices, so that more requests can be denied.
    pub(in crate::cgroup) fn any_rules() -> impl Strategy<Value = DeviceRules> {
        prop::collection::vec(any_rule(), 0..8).prop_map(|list| {
            let mut rules = DeviceRules { default_allow: false, list: Vec::new() };
            list.iter().enumerate().for_each(|(at, rule)| rules.add(at, rule).unwrap());
            rules
        })
    }

    fn rules(json: serde_json::Value) -> Result<DeviceRules> {
        DeviceRules::new(&serde_json::from_value::<Vec<LinuxDeviceCgroup>>(json).unwrap())
    }

    #[test]
    fn without_rules_a_container_has_the_default_devices_alone() {
        let rules = rules(serde_json::json!([])).unwrap();
        assert!(rules.allows(DeviceKind::Char, 1, 3, ALL));
        assert!(rules.allows(DeviceKind::Char, 136, 7, READ | WRITE));
        assert!(rules.allows(DeviceKind::Block, 8, 0, MKNOD), "a node alone opens nothing");
        assert!(!rules.allows(DeviceKind::Block, 8, 0, READ));
        assert!(!rules.allows(DeviceKind::Char, 10, 229, WRITE));
    }

    #[test]
    fn what_is_denied_after_it_was_allowed_is_denied() {
        let rules = rules(serde_json::json!([
            { "allow": true, "access": "rwm" },
            { "allow": false, "type": "b", "major": 8, "minor": 0, "access": "w" },
        ]))
        .unwrap();
        assert!(rules.allows(DeviceKind::Block, 8, 0, READ));
        assert!(!rules.allows(DeviceKind::Block, 8, 0, READ | WRITE));
        assert!(rules.allows(DeviceKind::Block, 8, 1, ALL));
        assert!(!rules.allows_everything());
    }

    #[test]
    fn allow_all_is_everything() {
        assert!(rules(serde_json::json!([{ "allow": true, "type": "a" }])).unwrap().allows_everything());
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
