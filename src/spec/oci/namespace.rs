//! `linux.namespaces`, the id maps and the clock offsets (config-linux.md, Namespaces and below).

use super::document::{IdMapping, Linux};
use super::field::Field;
use super::text::absolute;
use super::{Warning, warn};
use crate::error::Result;
use crate::spec::container::{IdExtent, IdMaps, Namespace, Namespaces, TimeOffsets};
use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, LinuxTimeOffset};
use std::collections::BTreeMap;

/// The types of namespaces: one table for the parser and for `features`.
pub(super) const TYPES: [(LinuxNamespaceType, Namespace); 8] = [
    (LinuxNamespaceType::Cgroup, Namespace::Cgroup),
    (LinuxNamespaceType::Ipc, Namespace::Ipc),
    (LinuxNamespaceType::Mount, Namespace::Mount),
    (LinuxNamespaceType::Network, Namespace::Network),
    (LinuxNamespaceType::Pid, Namespace::Pid),
    (LinuxNamespaceType::Time, Namespace::Time),
    (LinuxNamespaceType::User, Namespace::User),
    (LinuxNamespaceType::Uts, Namespace::Uts),
];

/// The most lines of a map that the kernel takes (user_namespaces(7)).
const MAX_EXTENTS: usize = 340;

/// Which namespaces are made and which are joined.
pub(super) fn namespaces(entries: Option<Vec<LinuxNamespace>>) -> Result<Namespaces> {
    let (linux, mut all) = (Field::root("linux"), Namespaces::default());
    let list = linux.key("namespaces");
    for (index, entry) in entries.unwrap_or_default().into_iter().enumerate() {
        let field = list.at(index);
        let Some((_, namespace)) = TYPES.iter().find(|(name, _)| *name == entry.typ()) else {
            return Err(field.key("type").invalid("is not known"));
        };
        if all.has(*namespace) {
            let error = field.key("type").invalid(format_args!("is a second {} namespace", namespace.file()));
            return Err(error.hint("keep one of them"));
        }
        match entry.path().as_ref().and_then(|path| path.to_str()).filter(|path| !path.is_empty()) {
            None => all.new.push(*namespace),
            Some(path) => {
                all.joined.insert(*namespace, absolute(path.to_owned(), field.key("path"))?);
            }
        }
    }
    Ok(all)
}

/// The maps of a new user namespace, empty for the runtime's own ids. One that is joined has its own.
pub(super) fn id_maps(
    linux: &mut Linux,
    namespaces: &Namespaces,
    warnings: &mut Vec<Warning>,
) -> Result<Option<IdMaps>> {
    let field = Field::root("linux");
    let uid = id_map(linux.uid_mappings.take(), field.key("uidMappings"))?;
    let gid = id_map(linux.gid_mappings.take(), field.key("gidMappings"))?;
    let (mapped, uid_field) = (!uid.is_empty() || !gid.is_empty(), field.key("uidMappings"));
    if let Some(path) = namespaces.joined.get(&Namespace::User) {
        // Containerd and CRI-O give both.
        warn(warnings, mapped, || {
            let path = path.display();
            uid_field.warning(format_args!("is ignored: the user namespace at {path} has a map of its own"))
        });
        return Ok(None);
    }
    match (namespaces.has(Namespace::User), uid.is_empty()) {
        (true, true) if gid.is_empty() => {
            warn(warnings, true, || {
                uid_field.warning("is missing: the runtime's own ids are mapped one to one")
            });
            Ok(Some(IdMaps::default()))
        }
        (true, true) => {
            let error = uid_field.missing();
            Err(error.hint("a new user namespace needs a map, or nobody could run in it"))
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

/// One map, checked as the kernel would, which only says EINVAL.
pub(super) fn id_map(entries: Option<Vec<IdMapping>>, field: Field<'_>) -> Result<Vec<IdExtent>> {
    let entries = entries.unwrap_or_default();
    if entries.len() > MAX_EXTENTS {
        return Err(
            field.invalid(format_args!("has {} entries; the kernel takes {MAX_EXTENTS}", entries.len()))
        );
    }
    let mut map: Vec<IdExtent> = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let field = field.at(index);
        let inside = entry.container_id.ok_or_else(|| field.key("containerID").missing())?;
        let outside = entry.host_id.ok_or_else(|| field.key("hostID").missing())?;
        let count = entry.size.ok_or_else(|| field.key("size").missing())?;
        if count == 0 {
            return Err(field.key("size").invalid("must be at least 1"));
        }
        // The last id is -1, which means no id at all.
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

/// `linux.timeOffsets`
pub(super) fn time_offsets(
    offsets: Option<BTreeMap<String, LinuxTimeOffset>>,
    namespaces: &Namespaces,
) -> Result<TimeOffsets> {
    let linux = Field::root("linux");
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
