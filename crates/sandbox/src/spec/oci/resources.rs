//! Settings that are not specific to a container: resource classes, memory nodes, network devices,
//! personality.

use super::bitmask::parse_bitmask;
use super::field_path::FieldPath;
use super::text::non_empty;
use super::{ConfigWarning, push_warning};
use crate::spec::container::{MemoryPolicy, Namespace, Namespaces};
use oci_spec::runtime::{
    LinuxIntelRdt, LinuxMemoryPolicy, LinuxNetDevice, LinuxPersonality, LinuxPersonalityDomain,
    MemoryPolicyFlagType as NodeFlag, MemoryPolicyModeType as Mode,
};
use saggar_sys::error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Modes of set_mempolicy(2), for the parser and for `features`.
pub(super) const MEMORY_POLICY_MODES: [(Mode, i32); 7] = [
    (Mode::MpolDefault, libc::MPOL_DEFAULT),
    (Mode::MpolPreferred, libc::MPOL_PREFERRED),
    (Mode::MpolBind, libc::MPOL_BIND),
    (Mode::MpolInterleave, libc::MPOL_INTERLEAVE),
    (Mode::MpolLocal, libc::MPOL_LOCAL),
    (Mode::MpolPreferredMany, 5),
    (Mode::MpolWeightedInterleave, 6),
];

/// Flags of set_mempolicy(2), for the parser and for `features`.
pub(super) const MEMORY_POLICY_FLAGS: [(NodeFlag, i32); 3] = [
    (NodeFlag::MpolFNumaBalancing, libc::MPOL_F_NUMA_BALANCING),
    (NodeFlag::MpolFRelativeNodes, libc::MPOL_F_RELATIVE_NODES),
    (NodeFlag::MpolFStaticNodes, libc::MPOL_F_STATIC_NODES),
];

/// At least the number of memory nodes of any kernel configuration.
const MAX_NODES: u32 = 1024;
/// IFNAMSIZ without the terminating NUL.
const MAX_INTERFACE_NAME: usize = 15;

/// Lowers `linux.memoryPolicy`. It is validated by the rules of set_mempolicy(2), which reports only
/// EINVAL.
pub(super) fn lower_memory_policy(entry: Option<LinuxMemoryPolicy>) -> Result<Option<MemoryPolicy>> {
    let Some(entry) = entry else { return Ok(None) };
    let linux = FieldPath::root("linux");
    let field = linux.key("memoryPolicy");
    let nodes = match non_empty(entry.nodes().clone()) {
        Some(list) => parse_bitmask(&list, MAX_NODES, field.key("nodes"))?,
        None => Vec::new(),
    };
    let Some((mode, number)) = MEMORY_POLICY_MODES.iter().find(|(mode, _)| *mode == entry.mode()) else {
        return Err(field.key("mode").invalid("is not known"));
    };
    match mode {
        Mode::MpolDefault | Mode::MpolLocal if !nodes.is_empty() => {
            return Err(field.key("nodes").invalid(format_args!("must be empty with the mode {mode}")));
        }
        Mode::MpolBind | Mode::MpolInterleave | Mode::MpolPreferredMany | Mode::MpolWeightedInterleave
            if nodes.is_empty() =>
        {
            return Err(field.key("nodes").invalid(format_args!("must name a node with the mode {mode}")));
        }
        _ => {}
    }
    let mut flags = 0;
    for flag in entry.flags().iter().flatten() {
        flags |=
            MEMORY_POLICY_FLAGS.iter().filter(|(known, _)| known == flag).fold(0, |all, (_, bit)| all | bit);
    }
    let both = libc::MPOL_F_STATIC_NODES | libc::MPOL_F_RELATIVE_NODES;
    if flags & both == both {
        return Err(field
            .key("flags")
            .invalid("must not hold both MPOL_F_STATIC_NODES and MPOL_F_RELATIVE_NODES"));
    }
    if flags != 0 && nodes.is_empty() {
        return Err(field.key("flags").invalid("are given without nodes"));
    }
    Ok(Some(MemoryPolicy { mode: number | flags, nodes }))
}

/// Validates `linux.intelRdt`: its strings become directory names and lines of files.
pub(super) fn check_intel_rdt(
    entry: Option<LinuxIntelRdt>,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<Option<LinuxIntelRdt>> {
    let Some(mut entry) = entry else { return Ok(None) };
    let linux = FieldPath::root("linux");
    let field = linux.key("intelRdt");
    entry.set_clos_id(non_empty(entry.clos_id().clone()));
    entry.set_l3_cache_schema(non_empty(entry.l3_cache_schema().clone()));
    entry.set_mem_bw_schema(non_empty(entry.mem_bw_schema().clone()));
    if let Some(name) = entry.clos_id().as_deref().filter(|name| *name != "/")
        && (name == "." || name == ".." || name.contains(['/', '\n']))
    {
        return Err(field
            .key("closID")
            .invalid(format_args!("must be the name of a directory or /, is {name:?}")));
    }
    let line = |text: &str, field: FieldPath<'_>| {
        if text.contains('\n') { Err(field.invalid("must be one line")) } else { Ok(()) }
    };
    if let Some(schema) = entry.l3_cache_schema() {
        line(schema, field.key("l3CacheSchema"))?;
        push_warning(warnings, !schema.starts_with("L3:"), || {
            field.key("l3CacheSchema").warning("should start with L3:")
        });
    }
    if let Some(schema) = entry.mem_bw_schema() {
        line(schema, field.key("memBwSchema"))?;
        if !schema.starts_with("MB:") {
            return Err(field.key("memBwSchema").invalid(format_args!("must start with MB:, is {schema:?}")));
        }
    }
    let list = field.key("schemata");
    entry
        .schemata()
        .iter()
        .flatten()
        .enumerate()
        .try_for_each(|(index, schema)| line(schema, list.index(index)))?;
    Ok(Some(entry))
}

/// Lowers `linux.netDevices`: name on the host, name in the container.
pub(super) fn lower_net_devices(
    entries: Option<BTreeMap<String, Option<LinuxNetDevice>>>,
    namespaces: &Namespaces,
) -> Result<BTreeMap<String, String>> {
    let linux = FieldPath::root("linux");
    let list = linux.key("netDevices");
    let (entries, mut all, mut taken) = (entries.unwrap_or_default(), BTreeMap::new(), BTreeSet::new());
    if !entries.is_empty() && !namespaces.has(Namespace::Network) {
        let error = list.invalid("need a network namespace to move to");
        return Err(error.hint("add {\"type\": \"network\"} to linux.namespaces"));
    }
    for (outside, entry) in entries {
        let field = list.key(&outside);
        check_interface_name(&outside, false, field)?;
        let inside =
            non_empty(entry.and_then(|entry| entry.name().clone())).unwrap_or_else(|| outside.clone());
        check_interface_name(&inside, true, field.key("name"))?;
        if !inside.contains('%') && !taken.insert(inside.clone()) {
            return Err(field.key("name").invalid(format_args!("is that of another device, too: {inside}")));
        }
        all.insert(outside, inside);
    }
    Ok(all)
}

/// Validates an interface name by the kernel's rules. A new name may end in `%d`, which the kernel replaces
/// with a number.
fn check_interface_name(name: &str, may_be_template: bool, field: FieldPath<'_>) -> Result<()> {
    let fixed = name.strip_suffix("%d").filter(|_| may_be_template).unwrap_or(name);
    let forbidden = |c: char| c == '/' || c == ':' || c == '%' || c.is_ascii_whitespace() || c == '\u{b}';
    let fits = (1..=MAX_INTERFACE_NAME).contains(&name.len());
    if fits && !matches!(name, "." | "..") && !fixed.contains(forbidden) {
        return Ok(());
    }
    let error = field.invalid(format_args!("is not the name of a network device: {name:?}"));
    Err(error.hint("1 to 15 bytes without spaces, slashes and colons; a new name may end in %d"))
}

/// Lowers `linux.personality` for personality(2).
pub(super) fn lower_personality(entry: Option<LinuxPersonality>) -> Result<Option<u64>> {
    let Some(entry) = entry else { return Ok(None) };
    let linux = FieldPath::root("linux");
    if entry.flags().as_ref().is_some_and(|flags| !flags.is_empty()) {
        let error = linux.key("personality").key("flags").invalid("must be empty");
        return Err(error.hint("the specification knows no flags"));
    }
    Ok(Some(match entry.domain() {
        LinuxPersonalityDomain::PerLinux => 0,
        LinuxPersonalityDomain::PerLinux32 => 8,
    }))
}
