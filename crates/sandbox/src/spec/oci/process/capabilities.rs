//! `process.capabilities`: names to bit masks. A capability that cannot be granted is a warning (config.md,
//! Linux Process).

use super::super::document;
use super::super::field_path::FieldPath;
use super::super::{ConfigWarning, push_warning};
use crate::spec::container::Capabilities;
use caps::Capability;
use std::str::FromStr;

/// Every known name, in order of the kernel's numbers, for `features`.
pub(in super::super) fn known_names() -> Vec<String> {
    let mut all: Vec<Capability> = caps::all().into_iter().collect();
    all.sort_unstable_by_key(Capability::index);
    all.iter().map(Capability::to_string).collect()
}

/// The bit of a name such as `CAP_CHOWN`, case-insensitive.
pub(super) fn capability_bit(name: &str) -> Option<u64> {
    Capability::from_str(&name.to_ascii_uppercase()).ok().map(|capability| capability.bitmask())
}

/// The sets that the ambient one is a part of (capabilities(7)).
const PERMITTED_AND_INHERITABLE: &str = "permitted and inheritable";

/// Lowers the five sets. Without `process.capabilities` all are empty.
pub(super) fn lower_capabilities(
    entry: Option<document::OciCapabilities>,
    field: FieldPath<'_>,
    warnings: &mut Vec<ConfigWarning>,
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
    // The kernel refuses the whole call if it contains combinations that capabilities(7) calls impossible.
    restrict(&mut all.effective, all.permitted, field.key("effective"), "permitted", warnings);
    let can_be = all.permitted & all.inheritable;
    restrict(&mut all.ambient, can_be, field.key("ambient"), PERMITTED_AND_INHERITABLE, warnings);
    all
}

fn mask(names: Vec<String>, field: FieldPath<'_>, warnings: &mut Vec<ConfigWarning>) -> u64 {
    let unknown: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| capability_bit(name).is_none()).collect();
    // The wording of runc, which callers search for.
    push_warning(warnings, !unknown.is_empty(), || {
        let unknown = unknown.join(" ");
        field.warning(format_args!("is cut: ignoring unknown or unavailable capabilities: [{unknown}]"))
    });
    names.iter().filter_map(|name| capability_bit(name)).fold(0, |mask, bit| mask | bit)
}

fn restrict(set: &mut u64, to: u64, field: FieldPath<'_>, named: &str, warnings: &mut Vec<ConfigWarning>) {
    let lost = *set & !to;
    *set &= to;
    push_warning(warnings, lost != 0, || {
        let lost: Vec<String> = known_names()
            .into_iter()
            .filter(|name| capability_bit(name).is_some_and(|bit| lost & bit != 0))
            .collect();
        let message = format_args!("loses {}, which cannot be granted without {named}", lost.join(" "));
        // Engines leave the inheritable set out, and name the ambient one all the same.
        ConfigWarning { is_usual: named == PERMITTED_AND_INHERITABLE, ..field.warning(message) }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_their_numbers_and_are_recognised() {
        let names = known_names();
        assert_eq!(names.len(), 41);
        assert_eq!(names.iter().position(|name| name == "CAP_SYS_ADMIN"), Some(21));
        for (number, name) in names.iter().enumerate() {
            assert_eq!(capability_bit(name), Some(1 << number), "{name}");
        }
        assert_eq!(capability_bit("cap_chown"), Some(1));
        assert_eq!(capability_bit("CHOWN"), None);
    }
}
