//! The rules as `devices.allow` and `devices.deny` (Documentation/admin-guide/cgroup-v1/devices.rst).
//!
//! The kernel keeps one answer for all and a list of exceptions, which it finds only by the very same numbers. So
//! the rules are first worked out to such a list; what cannot be one is refused. Of a list that is in force only
//! what differs is written, first what is newly allowed: a running program sees no gap.

use super::{ALL, Devices, Kind, MKNOD, READ, Rules, WRITE};
use crate::cgroup::tree::Tree;
use crate::error::{Code, Error, Result};
use nix::errno::Errno;
use std::collections::BTreeMap;

/// One answer for all, and what is excepted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct State {
    otherwise: bool,
    except: BTreeMap<Devices, u8>,
}

const CONTROLLER: &str = "devices";

/// Puts the rules in force.
///
/// # Errors
/// [`Code::Unsupported`] for rules that v1 cannot hold, and when a write fails or reads back different.
pub(in crate::cgroup) fn put(tree: &dyn Tree, rules: &Rules) -> Result<()> {
    let wanted = State::of(rules)?;
    let now = tree.read(CONTROLLER, "devices.list").map(|text| State::parse(&text));
    let now = now.map_err(|errno| refused(tree, "devices.list", "", errno))?;
    for (file, text) in wanted.writes(&now) {
        tree.write(CONTROLLER, file, &text).map_err(|errno| refused(tree, file, &text, errno))?;
    }
    let back = tree.read(CONTROLLER, "devices.list").unwrap_or_default();
    // What is excepted from "all" is not listed.
    let holds = match wanted.otherwise {
        true => State::parse(&back).otherwise,
        false => State::parse(&back) == wanted,
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

fn refused(tree: &dyn Tree, file: &str, text: &str, errno: Errno) -> Error {
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

impl Devices {
    fn covers(&self, other: &Devices) -> bool {
        let covers = |mine: Option<u32>, its: Option<u32>| mine.is_none() || mine == its;
        self.kind == other.kind && covers(self.major, other.major) && covers(self.minor, other.minor)
    }

    fn meets(&self, other: &Devices) -> bool {
        let meets = |mine: Option<u32>, its: Option<u32>| mine.is_none() || its.is_none() || mine == its;
        self.kind == other.kind && meets(self.major, other.major) && meets(self.minor, other.minor)
    }

    fn text(&self, access: u8) -> String {
        let number = |number: Option<u32>| number.map_or("*".to_owned(), |number| number.to_string());
        let letters = [(READ, 'r'), (WRITE, 'w'), (MKNOD, 'm')];
        let letters: String =
            letters.iter().filter(|(bit, _)| access & bit != 0).map(|(_, letter)| letter).collect();
        let kind = if self.kind == Kind::Block { 'b' } else { 'c' };
        format!("{kind} {}:{} {letters}", number(self.major), number(self.minor))
    }
}

impl State {
    /// What the rules come to.
    fn of(rules: &Rules) -> Result<Self> {
        let mut state = State { otherwise: rules.otherwise, except: BTreeMap::new() };
        for rule in &rules.list {
            if rule.allow != state.otherwise {
                *state.except.entry(rule.devices).or_default() |= rule.access;
                continue;
            }
            // Back to the answer for all: exceptions that it covers go; one that is wider cannot have a hole.
            for (devices, access) in &mut state.except {
                if rule.devices.covers(devices) {
                    *access &= !rule.access;
                } else if rule.devices.meets(devices) && *access & rule.access != 0 {
                    let message = format!(
                        "linux.resources.devices: {} after {} cannot be in cgroup v1, which knows no holes",
                        rule.devices.text(rule.access),
                        devices.text(*access)
                    );
                    return Err(Error::new(Code::Unsupported, message)
                        .hint("list the devices one by one instead, or use cgroup v2"));
                }
            }
            state.except.retain(|_, access| *access != 0);
        }
        if !state.otherwise {
            state.complete();
        }
        Ok(state)
    }

    /// One exception must have all that a request asks for: a narrow one gets what wider ones give, and where two
    /// cross there is one more.
    fn complete(&mut self) {
        let given = self.except.clone();
        let mut all: Vec<Devices> = given.keys().copied().collect();
        let mut next = 0;
        while let Some(one) = all.get(next).copied() {
            next += 1;
            for other in given.keys().filter(|other| other.meets(&one)) {
                let (major, minor) = (one.major.or(other.major), one.minor.or(other.minor));
                let both = Devices { kind: one.kind, major, minor };
                if !all.contains(&both) {
                    all.push(both);
                }
            }
        }
        for devices in all {
            let covering = given.iter().filter(|(other, _)| other.covers(&devices));
            let bits = covering.fold(0, |all, (_, bits)| all | bits);
            self.except.insert(devices, bits);
        }
    }

    /// What a `devices.list` says.
    fn parse(text: &str) -> Self {
        let mut state = State::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (kind, numbers, letters) = (words.next(), words.next(), words.next().unwrap_or_default());
            let kind = match kind {
                Some("a") => return State { otherwise: true, except: BTreeMap::new() },
                Some("b") => Kind::Block,
                Some("c") => Kind::Char,
                _ => continue,
            };
            let (major, minor) = numbers.and_then(|text| text.split_once(':')).unwrap_or(("*", "*"));
            let devices = Devices { kind, major: major.parse().ok(), minor: minor.parse().ok() };
            let bit = |letter| match letter {
                'r' => READ,
                'w' => WRITE,
                'm' => MKNOD,
                _ => 0,
            };
            *state.except.entry(devices).or_default() |= letters.chars().fold(0, |all, one| all | bit(one));
        }
        state
    }

    /// The writes that lead from `now` to this.
    fn writes(&self, now: &State) -> Vec<(&'static str, String)> {
        let (allow, deny) = ("devices.allow", "devices.deny");
        if self.otherwise || now.otherwise {
            // What was excepted from "all" is not to be seen: begin anew.
            let (all, one) = if self.otherwise { (allow, deny) } else { (deny, allow) };
            let exceptions = self.except.iter().map(|(devices, access)| (one, devices.text(*access)));
            return [(all, "a".to_owned())].into_iter().chain(exceptions).collect();
        }
        let without = |mine: &State, other: &State, file: &'static str| {
            let differs = mine.except.iter().filter_map(|(devices, access)| {
                let more = access & !other.except.get(devices).copied().unwrap_or(0);
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
    use crate::host::cgroups::Version;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::path::PathBuf;

    /// What the kernel does with writes to these files (security/device_cgroup.c).
    #[derive(Default)]
    struct Kernel(RefCell<State>);

    impl Kernel {
        fn allows(&self, device: Devices, access: u8) -> bool {
            let state = self.0.borrow();
            let mut fits = state.except.iter().filter(|(devices, _)| devices.covers(&device));
            match state.otherwise {
                // One exception must have all of it; any exception that has a part is enough to refuse.
                false => fits.any(|(_, bits)| access & !bits == 0),
                true => !fits.any(|(_, bits)| access & bits != 0),
            }
        }
    }

    impl Tree for Kernel {
        fn version(&self, _: &str) -> Option<Version> {
            Some(Version::V1)
        }

        fn read(&self, _: &str, file: &str) -> Result<String, Errno> {
            assert_eq!(file, "devices.list");
            let state = self.0.borrow();
            if state.otherwise {
                return Ok("a *:* rwm".to_owned());
            }
            let lines = state.except.iter().map(|(devices, access)| devices.text(*access));
            Ok(lines.collect::<Vec<_>>().join("\n"))
        }

        fn write(&self, _: &str, file: &str, value: &str) -> Result<(), Errno> {
            let allow = file == "devices.allow";
            let mut state = self.0.borrow_mut();
            if value == "a" {
                *state = State { otherwise: allow, except: BTreeMap::new() };
                return Ok(());
            }
            for (devices, access) in State::parse(value).except {
                let otherwise = state.otherwise;
                let bits = state.except.entry(devices).or_default();
                *bits = if allow == otherwise { *bits & !access } else { *bits | access };
                state.except.retain(|_, bits| *bits != 0);
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
            // Whatever was in force, of what can be.
            let _ = put(&kernel, &before);
            let Ok(()) = put(&kernel, &rules) else { return Ok(()) };
            for kind in [Kind::Block, Kind::Char] {
                for access in 1..=ALL {
                    let device = Devices { kind, major: Some(major), minor: Some(minor) };
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
        let rules = Rules::new(&serde_json::from_value::<Vec<_>>(rules).unwrap()).unwrap();
        let error = put(&Kernel::default(), &rules).unwrap_err();
        assert!(error.to_string().contains("c 10:229 w after c 10:* rw"), "{error}");
    }

    #[test]
    fn of_a_list_in_force_only_the_difference_is_written() {
        let state = |text: &str| State::parse(text);
        let now = state("c 1:3 rwm\nc 5:0 rw");
        let wanted = state("c 1:3 rwm\nc 5:0 r\nb 8:0 r");
        let writes = wanted.writes(&now);
        assert_eq!(writes, [("devices.allow", "b 8:0 r".to_owned()), ("devices.deny", "c 5:0 w".to_owned())]);
    }
}
