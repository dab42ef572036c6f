//! `linux.namespaces`, the id maps and the clock offsets (config-linux.md, Namespaces and below).

use super::document::{OciIdMapping, OciLinux};
use super::field_path::FieldPath;
use super::text::require_absolute;
use super::{ConfigWarning, push_warning};
use crate::spec::container::{IdExtent, IdMaps, Namespace, Namespaces, TimeOffsets};
use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, LinuxTimeOffset};
use saggar_sys::error::Result;
use std::collections::BTreeMap;

/// The types of namespaces: one table for the parser and for `features`.
pub(super) const NAMESPACE_TYPES: [(LinuxNamespaceType, Namespace); 8] = [
    (LinuxNamespaceType::Cgroup, Namespace::Cgroup),
    (LinuxNamespaceType::Ipc, Namespace::Ipc),
    (LinuxNamespaceType::Mount, Namespace::Mount),
    (LinuxNamespaceType::Network, Namespace::Network),
    (LinuxNamespaceType::Pid, Namespace::Pid),
    (LinuxNamespaceType::Time, Namespace::Time),
    (LinuxNamespaceType::User, Namespace::User),
    (LinuxNamespaceType::Uts, Namespace::Uts),
];

/// The most lines of an id map that the kernel accepts (user_namespaces(7)).
const MAX_EXTENTS: usize = 340;

/// Lowers the namespaces to create and to join.
pub(super) fn lower_namespaces(entries: Option<Vec<LinuxNamespace>>) -> Result<Namespaces> {
    let (linux, mut all) = (FieldPath::root("linux"), Namespaces::default());
    let list = linux.key("namespaces");
    for (index, entry) in entries.unwrap_or_default().into_iter().enumerate() {
        let field = list.index(index);
        let Some((_, namespace)) = NAMESPACE_TYPES.iter().find(|(name, _)| *name == entry.typ()) else {
            return Err(field.key("type").invalid("is not known"));
        };
        if all.has(*namespace) {
            let error =
                field.key("type").invalid(format_args!("is a second {} namespace", namespace.proc_name()));
            return Err(error.hint("keep one of them"));
        }
        match entry.path().as_ref().and_then(|path| path.to_str()).filter(|path| !path.is_empty()) {
            None => all.new.push(*namespace),
            Some(path) => {
                all.joined.insert(*namespace, require_absolute(path.to_owned(), field.key("path"))?);
            }
        }
    }
    Ok(all)
}

/// The maps of a new user namespace; empty if the runtime's own ids apply. A joined namespace has its own
/// maps.
pub(super) fn lower_id_maps(
    linux: &mut OciLinux,
    namespaces: &Namespaces,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<Option<IdMaps>> {
    let field = FieldPath::root("linux");
    let uid = lower_id_map(linux.uid_mappings.take(), field.key("uidMappings"))?;
    let gid = lower_id_map(linux.gid_mappings.take(), field.key("gidMappings"))?;
    let (mapped, uid_field) = (!uid.is_empty() || !gid.is_empty(), field.key("uidMappings"));
    if let Some(path) = namespaces.joined.get(&Namespace::User) {
        // Containerd and CRI-O give both.
        push_warning(warnings, mapped, || {
            let path = path.display();
            uid_field.warning(format_args!("is ignored: the user namespace at {path} has a map of its own"))
        });
        return Ok(None);
    }
    match (namespaces.has(Namespace::User), uid.is_empty()) {
        (true, true) if gid.is_empty() => {
            push_warning(warnings, true, || {
                uid_field.warning("is missing: the runtime's own ids are mapped one to one")
            });
            Ok(Some(IdMaps::default()))
        }
        (true, true) => {
            let error = uid_field.missing();
            Err(error.hint("a new user namespace needs an id map"))
        }
        (true, false) => Ok(Some(IdMaps { uid, gid })),
        (false, _) if mapped => {
            let name = if uid.is_empty() { "gidMappings" } else { "uidMappings" };
            let error = field.key(name).invalid("is given without a user namespace");
            Err(error.hint("add {\"type\": \"user\"} to linux.namespaces, or remove the mappings"))
        }
        (false, _) => Ok(None),
    }
}

/// Lowers one map. It is validated like in the kernel, which reports only EINVAL.
pub(super) fn lower_id_map(
    entries: Option<Vec<OciIdMapping>>,
    field: FieldPath<'_>,
) -> Result<Vec<IdExtent>> {
    let entries = entries.unwrap_or_default();
    if entries.len() > MAX_EXTENTS {
        return Err(
            field.invalid(format_args!("has {} entries; the kernel takes {MAX_EXTENTS}", entries.len()))
        );
    }
    let mut map: Vec<IdExtent> = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let field = field.index(index);
        let inside = entry.container_id.ok_or_else(|| field.key("containerID").missing())?;
        let outside = entry.host_id.ok_or_else(|| field.key("hostID").missing())?;
        let count = entry.size.ok_or_else(|| field.key("size").missing())?;
        if count == 0 {
            return Err(field.key("size").invalid("must be at least 1"));
        }
        // The id 2^32 - 1 is -1, which means "no id".
        if inside.checked_add(count).is_none() || outside.checked_add(count).is_none() {
            return Err(field.key("size").invalid("reaches beyond the last id"));
        }
        let overlaps = |one: u32, other: u32, length: u32| {
            u64::from(one) < u64::from(other) + u64::from(length)
                && u64::from(other) < u64::from(one) + u64::from(count)
        };
        if let Some(other) = map.iter().position(|other| {
            overlaps(inside, other.inside, other.count) || overlaps(outside, other.outside, other.count)
        }) {
            return Err(field.invalid(format_args!("overlaps entry {other}")));
        }
        map.push(IdExtent { inside, outside, count });
    }
    Ok(map)
}

/// Lowers `linux.timeOffsets`.
pub(super) fn lower_time_offsets(
    offsets: Option<BTreeMap<String, LinuxTimeOffset>>,
    namespaces: &Namespaces,
) -> Result<TimeOffsets> {
    let linux = FieldPath::root("linux");
    let field = linux.key("timeOffsets");
    let (offsets, mut all) = (offsets.unwrap_or_default(), TimeOffsets::default());
    if !offsets.is_empty() && !namespaces.new.contains(&Namespace::Time) {
        let error = field.invalid("is given without a new time namespace");
        return Err(
            error.hint("add {\"type\": \"time\"} without a path to linux.namespaces, or remove the offsets")
        );
    }
    for (clock, offset) in offsets {
        let field = field.key(&clock);
        let (seconds, nanoseconds) = (offset.secs().unwrap_or(0), offset.nanosecs().unwrap_or(0));
        if nanoseconds >= 1_000_000_000 {
            return Err(field
                .key("nanosecs")
                .invalid(format_args!("must be below 1000000000, is {nanoseconds}")));
        }
        match clock.as_str() {
            "monotonic" => all.monotonic = Some((seconds, nanoseconds)),
            "boottime" => all.boottime = Some((seconds, nanoseconds)),
            _ => return Err(field.invalid("is not a clock with an offset; those are monotonic and boottime")),
        }
    }
    Ok(all)
}
