//! `process.capabilities`: names to bit masks. What cannot be granted is a warning (config.md, Linux Process).

use super::super::document;
use super::super::field::Field;
use super::super::{Warning, warn};
use crate::spec::container::Capabilities;
use caps::Capability;
use std::str::FromStr;

/// Every name that is known, in the order of the kernel's numbers, for `features`.
pub(in super::super) fn names() -> Vec<String> {
    let mut all: Vec<Capability> = caps::all().into_iter().collect();
    all.sort_unstable_by_key(Capability::index);
    all.iter().map(Capability::to_string).collect()
}

/// The bit of a name such as `CAP_CHOWN`, in any case.
pub(super) fn bit(name: &str) -> Option<u64> {
    Capability::from_str(&name.to_ascii_uppercase()).ok().map(|capability| capability.bitmask())
}

/// The five sets. Without any there are none.
pub(super) fn lower(
    entry: Option<document::Capabilities>,
    field: Field<'_>,
    warnings: &mut Vec<Warning>,
) -> Capabilities {
    let entry = entry.unwrap_or_default();
    let mut set =
        |names: Option<Vec<String>>, key: &str| mask(names.unwrap_or_default(), field.key(key), warnings);
    let mut all = Capabilities {
        bounding: set(entry.bounding, "bounding"),
        effective: set(entry.effective, "effective"),
        inheritable: set(entry.inheritable, "inheritable"),
        permitted: set(entry.permitted, "permitted"),
        ambient: set(entry.ambient, "ambient"),
    };
    // The kernel refuses what capabilities(7) calls impossible, and the rest with it.
    restrict(&mut all.effective, all.permitted, field.key("effective"), "permitted", warnings);
    let can_be = all.permitted & all.inheritable;
    restrict(&mut all.ambient, can_be, field.key("ambient"), "permitted and inheritable", warnings);
    all
}

fn mask(names: Vec<String>, field: Field<'_>, warnings: &mut Vec<Warning>) -> u64 {
    let unknown: Vec<&str> = names.iter().map(String::as_str).filter(|name| bit(name).is_none()).collect();
    // In runc's words, which callers look for.
    warn(warnings, !unknown.is_empty(), || {
        let unknown = unknown.join(" ");
        field.warning(format_args!("is cut: ignoring unknown or unavailable capabilities: [{unknown}]"))
    });
    names.iter().filter_map(|name| bit(name)).fold(0, |mask, bit| mask | bit)
}

fn restrict(set: &mut u64, to: u64, field: Field<'_>, named: &str, warnings: &mut Vec<Warning>) {
    let lost = *set & !to;
    *set &= to;
    warn(warnings, lost != 0, || {
        let lost: Vec<String> =
            names().into_iter().filter(|name| bit(name).is_some_and(|bit| lost & bit != 0)).collect();
        field.warning(format_args!("loses {}, which cannot be granted without {named}", lost.join(" ")))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_their_numbers_and_are_recognised() {
        let names = names();
        assert_eq!(names.len(), 41);
        assert_eq!(names.iter().position(|name| name == "CAP_SYS_ADMIN"), Some(21));
        for (number, name) in names.iter().enumerate() {
            assert_eq!(bit(name), Some(1 << number), "{name}");
        }
        assert_eq!(bit("cap_chown"), Some(1));
        assert_eq!(bit("CHOWN"), None);
    }
}
