//! Applies the device rules through `devices.allow` and `devices.deny`
//! (Documentation/admin-guide/cgroup-v1/devices.rst).
//!
//! The kernel keeps a default and a list of exceptions, which it matches by exactly the same numbers. So the rules are
//! first reduced to such a list; rules that cannot be reduced are rejected. If a list is already active, only the
//! differences are written, new permissions first: a running program sees no gap.

use super::{ALL, DeviceKind, DeviceRules, DeviceSet, MKNOD, READ, WRITE};
use crate::cgroup::control_files::ControlFiles;
use nix::errno::Errno;
use saggar_sys::error::{Code, Error, Result};
use std::collections::BTreeMap;

/// The default, and its exceptions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct DeviceListState {
    default_allow: bool,
    exceptions: BTreeMap<DeviceSet, u8>,
}

const CONTROLLER: &str = "devices";

/// Applies the rules.
///
/// # Errors
/// [`Code::Unsupported`] for rules that v1 cannot express, and if a write fails or reads back a different value.
pub(in crate::cgroup) fn apply(tree: &dyn ControlFiles, rules: &DeviceRules) -> Result<()> {
    let target = DeviceListState::from_rules(rules)?;
    let now = tree.read(CONTROLLER, "devices.list").map(|text| DeviceListState::parse(&text));
    let now = now.map_err(|errno| write_error(tree, "devices.list", "", errno))?;
    for (file, text) in target.writes(&now) {
        tree.write(CONTROLLER, file, &text).map_err(|errno| write_error(tree, file, &text, errno))?;
    }
    let back = tree.read(CONTROLLER, "devices.list").unwrap_or_default();
    // The kernel does not list exceptions from "all".
    let holds = match target.default_allow {
        true => DeviceListState::parse(&back).default_allow,
        false => DeviceListState::parse(&back) == target,
    };
    if holds {
        return Ok(());
    }
    let path = tree.path(CONTROLLER, "devices.list");
    let message = format!(
        "linux.resources.devices cannot hold: {} reads other rules than were written",
        path.display()
    );
    Err(Error::new(Code::Unsupported, message).hint(
        "the cgroup above may allow less: allow no more than it does, or use another linux.cgroupsPath",
    ))
}

fn write_error(tree: &dyn ControlFiles, file: &str, text: &str, errno: Errno) -> Error {
    let path = tree.path(CONTROLLER, file);
    let message = format!(
        "linux.resources.devices cannot hold: write {text:?} to {}: {}",
        path.display(),
        errno.desc()
    );
    let hint = match errno {
        Errno::EPERM => {
            "the cgroup above does not allow this device, or saggar is not root: leave the rule out"
        }
        Errno::EINVAL => "the cgroup has others below it: use a linux.cgroupsPath of the container's own",
        _ => "see that the devices controller is mounted read-write",
    };
    Error::new(Code::Unsupported, message).hint(hint)
}

impl DeviceSet {
    fn covers(&self, other: &DeviceSet) -> bool {
        let covers = |mine: Option<u32>, its: Option<u32>| mine.is_none() || mine == its;
        self.kind == other.kind && covers(self.major, other.major) && covers(self.minor, other.minor)
    }

    fn overlaps(&self, other: &DeviceSet) -> bool {
        let meets = |mine: Option<u32>, its: Option<u32>| mine.is_none() || its.is_none() || mine == its;
        self.kind == other.kind && meets(self.major, other.major) && meets(self.minor, other.minor)
    }

    fn text(&self, access: u8) -> String {
        let number = |number: Option<u32>| number.map_or("*".to_owned(), |number| number.to_string());
        let letters = [(READ, 'r'), (WRITE, 'w'), (MKNOD, 'm')];
        let letters: String =
            letters.iter().filter(|(bit, _)| access & bit != 0).map(|(_, letter)| letter).collect();
        let kind = if self.kind == DeviceKind::Block { 'b' } else { 'c' };
        format!("{kind} {}:{} {letters}", number(self.major), number(self.minor))
    }
}

impl DeviceListState {
    /// Reduces the rules to a default and exceptions.
    fn from_rules(rules: &DeviceRules) -> Result<Self> {
        let mut state = DeviceListState { default_allow: rules.default_allow, exceptions: BTreeMap::new() };
        for rule in &rules.list {
            if rule.allow != state.default_allow {
                *state.exceptions.entry(rule.devices).or_default() |= rule.access;
                continue;
            }
            // Back to the default: exceptions that the rule covers are removed; a wider exception cannot have a hole.
            for (devices, access) in &mut state.exceptions {
                if rule.devices.covers(devices) {
                    *access &= !rule.access;
                } else if rule.devices.overlaps(devices) && *access & rule.access != 0 {
                    let message = format!(
                        "linux.resources.devices: {} after {} cannot be in cgroup v1, which knows no holes",
                        rule.devices.text(rule.access),
                        devices.text(*access)
                    );
                    return Err(Error::new(Code::Unsupported, message)
                        .hint("list the devices one by one instead, or use cgroup v2"));
                }
            }
            state.exceptions.retain(|_, access| *access != 0);
        }
        if !state.default_allow {
            state.complete();
        }
        Ok(state)
    }

    /// One exception must contain the whole access of a request. So a narrow exception also gets the access of wider
    /// ones, and the intersection of two becomes another exception.
    fn complete(&mut self) {
        let given = self.exceptions.clone();
        let mut all: Vec<DeviceSet> = given.keys().copied().collect();
        let mut next = 0;
        while let Some(one) = all.get(next).copied() {
            next += 1;
            for other in given.keys().filter(|other| other.overlaps(&one)) {
                let (major, minor) = (one.major.or(other.major), one.minor.or(other.minor));
                let both = DeviceSet { kind: one.kind, major, minor };
                if !all.contains(&both) {
                    all.push(both);
                }
            }
        }
        for devices in all {
            let covering = given.iter().filter(|(other, _)| other.covers(&devices));
            let bits = covering.fold(0, |all, (_, bits)| all | bits);
            self.exceptions.insert(devices, bits);
        }
    }

    /// Parses a `devices.list` file.
    fn parse(text: &str) -> Self {
        let mut state = DeviceListState::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (kind, numbers, letters) = (words.next(), words.next(), words.next().unwrap_or_default());
            let kind = match kind {
                Some("a") => return DeviceListState { default_allow: true, exceptions: BTreeMap::new() },
                Some("b") => DeviceKind::Block,
                Some("c") => DeviceKind::Char,
                _ => continue,
            };
            let (major, minor) = numbers.and_then(|text| text.split_once(':')).unwrap_or(("*", "*"));
            let devices = DeviceSet { kind, major: major.parse().ok(), minor: minor.parse().ok() };
            let bit = |letter| match letter {
                'r' => READ,
                'w' => WRITE,
                'm' => MKNOD,
                _ => 0,
            };
            *state.exceptions.entry(devices).or_default() |=
                letters.chars().fold(0, |all, one| all | bit(one));
        }
        state
    }

    /// The writes that lead from `now` to this state.
    fn writes(&self, now: &DeviceListState) -> Vec<(&'static str, String)> {
        let (allow, deny) = ("devices.allow", "devices.deny");
        if self.default_allow || now.default_allow {
            // Exceptions from "all" cannot be read, so the list is rebuilt from the start.
            let (all, one) = if self.default_allow { (allow, deny) } else { (deny, allow) };
            let exceptions = self.exceptions.iter().map(|(devices, access)| (one, devices.text(*access)));
            return [(all, "a".to_owned())].into_iter().chain(exceptions).collect();
        }
        let without = |mine: &DeviceListState, other: &DeviceListState, file: &'static str| {
            let differs = mine.exceptions.iter().filter_map(|(devices, access)| {
                let more = access & !other.exceptions.get(devices).copied().unwrap_or(0);
                (more != 0).then(|| (file, devices.text(more & ALL)))
            });
            differs.collect::<Vec<_>>()
        };
        let mut writes = without(self, now, allow);
        writes.extend(without(now, self, deny));
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_rules;
    use super::*;
    use crate::host::cgroups::CgroupVersion;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::path::PathBuf;

    /// A model of the kernel's reaction to writes to these files (security/device_cgroup.c).
    #[derive(Default)]
    struct Kernel(RefCell<DeviceListState>);

    impl Kernel {
        fn allows(&self, device: DeviceSet, access: u8) -> bool {
            let state = self.0.borrow();
            let mut fits = state.exceptions.iter().filter(|(devices, _)| devices.covers(&device));
            match state.default_allow {
                // To allow, one exception must contain the whole access; to deny, any overlapping exception suffices.
                false => fits.any(|(_, bits)| access & !bits == 0),
                true => !fits.any(|(_, bits)| access & bits != 0),
            }
        }
    }

    impl ControlFiles for Kernel {
        fn version(&self, _: &str) -> Option<CgroupVersion> {
            Some(CgroupVersion::V1)
        }

        fn read(&self, _: &str, file: &str) -> Result<String, Errno> {
            assert_eq!(file, "devices.list");
            let state = self.0.borrow();
            if state.default_allow {
                return Ok("a *:* rwm".to_owned());
            }
            let lines = state.exceptions.iter().map(|(devices, access)| devices.text(*access));
            Ok(lines.collect::<Vec<_>>().join("\n"))
        }

        fn write(&self, _: &str, file: &str, value: &str) -> Result<(), Errno> {
            let allow = file == "devices.allow";
            let mut state = self.0.borrow_mut();
            if value == "a" {
                *state = DeviceListState { default_allow: allow, exceptions: BTreeMap::new() };
                return Ok(());
            }
            for (devices, access) in DeviceListState::parse(value).exceptions {
                let otherwise = state.default_allow;
                let bits = state.exceptions.entry(devices).or_default();
                *bits = if allow == otherwise { *bits & !access } else { *bits | access };
                state.exceptions.retain(|_, bits| *bits != 0);
            }
            Ok(())
        }

        fn path(&self, _: &str, file: &str) -> PathBuf {
            PathBuf::from(file)
        }
    }

    proptest! {
        #[test]
        fn what_is_written_means_what_the_rules_say(
            before in any_rules(), rules in any_rules(), major in 0u32..4, minor in 0u32..4,
        ) {
            let kernel = Kernel::default();
            // The state before may be any that v1 can express.
            let _ = apply(&kernel, &before);
            let Ok(()) = apply(&kernel, &rules) else { return Ok(()) };
            for kind in [DeviceKind::Block, DeviceKind::Char] {
                for access in 1..=ALL {
                    let device = DeviceSet { kind, major: Some(major), minor: Some(minor) };
                    let says = kernel.allows(device, access);
                    prop_assert_eq!(says, rules.allows(kind, major, minor, access), "{:?} {}", kind, access);
                }
            }
        }
    }

    #[test]
    fn a_hole_is_refused() {
        let rules = serde_json::json!([
            { "allow": true, "type": "c", "major": 10, "access": "rw" },
            { "allow": false, "type": "c", "major": 10, "minor": 229, "access": "w" },
        ]);
        let rules = DeviceRules::new(&serde_json::from_value::<Vec<_>>(rules).unwrap()).unwrap();
        let error = apply(&Kernel::default(), &rules).unwrap_err();
        assert!(error.to_string().contains("c 10:229 w after c 10:* rw"), "{error}");
    }

    #[test]
    fn of_a_list_in_force_only_the_difference_is_written() {
        let state = |text: &str| DeviceListState::parse(text);
        let now = state("c 1:3 rwm\nc 5:0 rw");
        let wanted = state("c 1:3 rwm\nc 5:0 r\nb 8:0 r");
        let writes = wanted.writes(&now);
        assert_eq!(writes, [("devices.allow", "b 8:0 r".to_owned()), ("devices.deny", "c 5:0 w".to_owned())]);
    }
}
