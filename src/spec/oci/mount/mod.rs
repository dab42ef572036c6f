//! `mounts`: what is mounted where, with which options (config.md, Mounts).

pub(super) mod options;

use super::document;
use super::field::Field;
use super::namespace::id_map;
use super::text::{absolute_from_root, some_text};
use super::{Warning, warn};
use crate::error::Result;
use crate::spec::container::{ContainerMount, ContainerMountKind, IdMaps, MountIdMap, Namespace, Namespaces};
use options::Taken;
use std::path::Path;

/// What a mount needs to know of the rest of the document.
pub(super) struct Surroundings<'a> {
    pub(super) bundle: &'a Path,
    pub(super) namespaces: &'a Namespaces,
}

/// All of `mounts`, in their order.
pub(super) fn mounts(
    entries: Vec<document::Mount>,
    surroundings: &Surroundings<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<ContainerMount>> {
    let field = Field::root("mounts");
    if !entries.is_empty() && !surroundings.namespaces.has(Namespace::Mount) {
        warnings.push(
            field.warning(
                "are made in the mount namespace of the caller, and stay when the container is gone",
            ),
        );
    }
    let entries = entries.into_iter().enumerate();
    entries.map(|(index, entry)| mount(entry, field.at(index), surroundings, warnings)).collect()
}

fn mount(
    entry: document::Mount,
    field: Field<'_>,
    surroundings: &Surroundings<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<ContainerMount> {
    let destination = some_text(entry.destination).ok_or_else(|| field.key("destination").missing())?;
    let taken = options::take(&entry.options.unwrap_or_default());
    let fstype = some_text(entry.kind);
    let source = some_text(entry.source);
    let kind = kind(&taken, fstype, source, field, surroundings.bundle, warnings)?;
    let maps = maps(entry.uid_mappings, entry.gid_mappings, field)?;
    let idmap = owners(&taken, maps, &kind, field, surroundings.namespaces)?;
    Ok(ContainerMount {
        at: absolute_from_root(&destination),
        kind,
        set: taken.own.0,
        clear: taken.own.1,
        set_recursive: taken.tree.0,
        clear_recursive: taken.tree.1,
        propagation: taken.propagation,
        idmap,
    })
}

fn kind(
    taken: &Taken,
    fstype: Option<String>,
    source: Option<String>,
    field: Field<'_>,
    bundle: &Path,
    warnings: &mut Vec<Warning>,
) -> Result<ContainerMountKind> {
    // The type of a bind mount is a dummy. The word `bind` there, without the option, is what people write who think
    // of mount(8); the kernel has no such file system.
    let bind = taken.bind.or((fstype.as_deref() == Some("bind")).then_some(false));
    let is_tmpfs = bind.is_none() && !taken.remount && fstype.as_deref() == Some("tmpfs");
    if taken.copy_up && !is_tmpfs {
        return Err(field.key("options").invalid("has tmpcopyup, which is for a tmpfs alone; remove it"));
    }
    let fstype = fstype.filter(|name| name != "none");
    match (bind, fstype) {
        (Some(_), _) if taken.remount => {
            no_data(taken, field, "a remount with bind")?;
            Ok(ContainerMountKind::Remount)
        }
        (Some(recursive), _) => {
            for (index, name, _) in &taken.data {
                let message = format!("is left out: {name} is for a file system, and this is a bind mount");
                warnings.push(field.key("options").at(*index).warning(message));
            }
            let flags = taken.superblock & !(libc::MS_RDONLY | libc::MS_SILENT);
            warn(warnings, flags != 0, || {
                field
                    .key("options")
                    .warning("has options of a whole file system, which a bind mount cannot change")
            });
            let source = source.ok_or_else(|| {
                field.key("source").missing().hint("name the file or directory of the host to bind")
            })?;
            Ok(ContainerMountKind::Bind { source: bundle.join(source), recursive })
        }
        (None, _) if taken.remount => {
            Ok(ContainerMountKind::Reconfigure { options: data(taken), superblock: taken.superblock })
        }
        (None, Some(fstype)) if fstype == "cgroup" || fstype == "cgroup2" => {
            for (index, name, _) in &taken.data {
                let message = format_args!("is ignored: {name} is an option of the host's cgroup mount");
                warnings.push(field.key("options").at(*index).warning(message));
            }
            Ok(ContainerMountKind::Cgroup)
        }
        (None, Some(fstype)) => Ok(ContainerMountKind::New {
            fstype,
            source: source.unwrap_or_else(|| "none".to_owned()),
            options: data(taken),
            superblock: taken.superblock,
            copy_up: taken.copy_up,
        }),
        (None, None) if !taken.propagation.is_empty() && source.is_none() => {
            no_data(taken, field, "a change of the propagation")?;
            Ok(ContainerMountKind::Change)
        }
        (None, None) => {
            let error = field.key("type").missing();
            Err(error.hint(
                "name a type of file system, or give the option bind or rbind to mount a tree of the host",
            ))
        }
    }
}

fn data(taken: &Taken) -> Vec<(String, Option<String>)> {
    taken.data.iter().map(|(_, name, value)| (name.clone(), value.clone())).collect()
}

/// The kernel would drop such options without a word.
fn no_data(taken: &Taken, field: Field<'_>, what: &str) -> Result<()> {
    match taken.data.first() {
        None => Ok(()),
        Some((index, name, _)) => {
            let options = field.key("options");
            let option = options.at(*index);
            let error =
                option.invalid(format_args!("is {name}, an option of a file system, and this is {what}"));
            Err(error.hint("remove it, or mount a file system of its own"))
        }
    }
}

/// `uidMappings` and `gidMappings` of a mount.
fn maps(
    uid: Option<Vec<document::IdMapping>>,
    gid: Option<Vec<document::IdMapping>>,
    field: Field<'_>,
) -> Result<Option<IdMaps>> {
    let (uid, gid) = (id_map(uid, field.key("uidMappings"))?, id_map(gid, field.key("gidMappings"))?);
    match (uid.is_empty(), gid.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(IdMaps { uid, gid })),
        (true, false) => Err(field.key("uidMappings").invalid("must be given along with gidMappings")),
        (false, true) => Err(field.key("gidMappings").invalid("must be given along with uidMappings")),
    }
}

fn owners(
    taken: &Taken,
    maps: Option<IdMaps>,
    kind: &ContainerMountKind,
    field: Field<'_>,
    namespaces: &Namespaces,
) -> Result<Option<MountIdMap>> {
    if taken.id_map.is_none() && maps.is_none() {
        return Ok(None);
    }
    let options = field.key("options");
    if !matches!(kind, ContainerMountKind::Bind { .. }) {
        return Err(options.invalid("ask for mapped owners, which only a bind mount has; add bind or rbind"));
    }
    if maps.is_none() && !namespaces.has(Namespace::User) {
        let error = options.invalid("ask for mapped owners without a map");
        return Err(error.hint("give uidMappings and gidMappings, or the container a user namespace"));
    }
    // Mappings without either word: as `idmap`, the mount alone.
    Ok(Some(MountIdMap { maps, recursive: taken.id_map.unwrap_or(false) }))
}
