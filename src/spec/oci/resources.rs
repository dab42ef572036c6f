//! What is not of the container alone: resource classes, memory nodes, network devices, personality.

use super::field::Field;
use super::list::bits;
use super::text::some_text;
use super::{Warning, warn};
use crate::error::Result;
use crate::spec::container::{MemoryPolicy, Namespace, Namespaces};
use oci_spec::runtime::{
    LinuxIntelRdt, LinuxMemoryPolicy, LinuxNetDevice, LinuxPersonality, LinuxPersonalityDomain,
    MemoryPolicyFlagType as NodeFlag, MemoryPolicyModeType as Mode,
};
use std::collections::{BTreeMap, BTreeSet};

/// Modes of set_mempolicy(2), for the parser and for `features`.
pub(super) const MODES: [(Mode, i32); 7] = [
    (Mode::MpolDefault, libc::MPOL_DEFAULT),
    (Mode::MpolPreferred, libc::MPOL_PREFERRED),
    (Mode::MpolBind, libc::MPOL_BIND),
    (Mode::MpolInterleave, libc::MPOL_INTERLEAVE),
    (Mode::MpolLocal, libc::MPOL_LOCAL),
    (Mode::MpolPreferredMany, 5),
    (Mode::MpolWeightedInterleave, 6),
];

/// Flags of set_mempolicy(2), for the parser and for `features`.
pub(super) const NODE_FLAGS: [(NodeFlag, i32); 3] = [
    (NodeFlag::MpolFNumaBalancing, libc::MPOL_F_NUMA_BALANCING),
    (NodeFlag::MpolFRelativeNodes, libc::MPOL_F_RELATIVE_NODES),
    (NodeFlag::MpolFStaticNodes, libc::MPOL_F_STATIC_NODES),
];

/// More memory nodes than any kernel can be built for.
const MAX_NODES: u32 = 1024;
/// IFNAMSIZ without the NUL at its end.
const MAX_INTERFACE_NAME: usize = 15;

/// `linux.memoryPolicy`, by the rules of set_mempolicy(2), which only says EINVAL.
pub(super) fn memory_policy(entry: Option<LinuxMemoryPolicy>) -> Result<Option<MemoryPolicy>> {
    let Some(entry) = entry else { return Ok(None) };
    let linux = Field::root("linux");
    let field = linux.key("memoryPolicy");
    let nodes = match some_text(entry.nodes().clone()) {
        Some(list) => bits(&list, MAX_NODES, field.key("nodes"))?,
        None => Vec::new(),
    };
    let Some((mode, number)) = MODES.iter().find(|(mode, _)| *mode == entry.mode()) else {
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
        flags |= NODE_FLAGS.iter().filter(|(known, _)| known == flag).fold(0, |all, (_, bit)| all | bit);
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

/// `linux.intelRdt`: its strings become names of directories and lines of files.
pub(super) fn intel_rdt(
    entry: Option<LinuxIntelRdt>,
    warnings: &mut Vec<Warning>,
) -> Result<Option<LinuxIntelRdt>> {
    let Some(mut entry) = entry else { return Ok(None) };
    let linux = Field::root("linux");
    let field = linux.key("intelRdt");
    entry.set_clos_id(some_text(entry.clos_id().clone()));
    entry.set_l3_cache_schema(some_text(entry.l3_cache_schema().clone()));
    entry.set_mem_bw_schema(some_text(entry.mem_bw_schema().clone()));
    if let Some(name) = entry.clos_id().as_deref().filter(|name| *name != "/")
        && (name == "." || name == ".." || name.contains(['/', '\n']))
    {
        return Err(field
            .key("closID")
            .invalid(format_args!("must be the name of a directory or /, is {name:?}")));
    }
    let line = |text: &str, field: Field<'_>| {
        if text.contains('\n') { Err(field.invalid("must be one line")) } else { Ok(()) }
    };
    if let Some(schema) = entry.l3_cache_schema() {
        line(schema, field.key("l3CacheSchema"))?;
        warn(warnings, !schema.starts_with("L3:"), || {
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
        .try_for_each(|(index, schema)| line(schema, list.at(index)))?;
    Ok(Some(entry))
}

/// `linux.netDevices`: name outside, name inside.
pub(super) fn net_devices(
    entries: Option<BTreeMap<String, Option<LinuxNetDevice>>>,
    namespaces: &Namespaces,
) -> Result<BTreeMap<String, String>> {
    let linux = Field::root("linux");
    let list = linux.key("netDevices");
    let (entries, mut all, mut taken) = (entries.unwrap_or_default(), BTreeMap::new(), BTreeSet::new());
    if !entries.is_empty() && !namespaces.has(Namespace::Network) {
        let error = list.invalid("need a network namespace to move to");
        return Err(error.hint("add {\"type\": \"network\"} to linux.namespaces"));
    }
    for (outside, entry) in entries {
        let field = list.key(&outside);
        interface(&outside, false, field)?;
        let inside =
            some_text(entry.and_then(|entry| entry.name().clone())).unwrap_or_else(|| outside.clone());
        interface(&inside, true, field.key("name"))?;
        if !inside.contains('%') && !taken.insert(inside.clone()) {
            return Err(field.key("name").invalid(format_args!("is that of another device, too: {inside}")));
        }
        all.insert(outside, inside);
    }
    Ok(all)
}

/// What the kernel takes as the name of an interface; a new one may end in `%d`, for which the kernel finds a number.
fn interface(name: &str, may_be_template: bool, field: Field<'_>) -> Result<()> {
    let fixed = name.strip_suffix("%d").filter(|_| may_be_template).unwrap_or(name);
    let forbidden = |c: char| c == '/' || c == ':' || c == '%' || c.is_ascii_whitespace() || c == '\u{b}';
    let fits = (1..=MAX_INTERFACE_NAME).contains(&name.len());
    if fits && !matches!(name, "." | "..") && !fixed.contains(forbidden) {
        return Ok(());
    }
    let error = field.invalid(format_args!("is not the name of a network device: {name:?}"));
    Err(error.hint("1 to 15 bytes without spaces, slashes and colons; a new name may end in %d"))
}

/// personality(2) of `linux.personality`.
pub(super) fn personality(entry: Option<LinuxPersonality>) -> Result<Option<u64>> {
    let Some(entry) = entry else { return Ok(None) };
    let linux = Field::root("linux");
    if entry.flags().as_ref().is_some_and(|flags| !flags.is_empty()) {
        let error = linux.key("personality").key("flags").invalid("must be empty");
        return Err(error.hint("the specification knows no flags"));
    }
    Ok(Some(match entry.domain() {
        LinuxPersonalityDomain::PerLinux => 0,
        LinuxPersonalityDomain::PerLinux32 => 8,
    }))
}
