//! `mounts`: sources, destinations and options (config.md, Mounts).

pub(super) mod options;

use super::document;
use super::field_path::FieldPath;
use super::namespace::lower_id_map;
use super::text::{join_root, non_empty};
use super::{ConfigWarning, push_warning};
use crate::spec::container::{
    ContainerMount, ContainerMountKind, IdMaps, MountIdMap, Namespace, Namespaces, SourceLink,
};
use options::ParsedMountOptions;
use saggar_sys::error::Result;
use std::path::Path;

/// The parts of the document that the lowering of a mount depends on.
pub(super) struct MountContext<'a> {
    pub(super) bundle: &'a Path,
    pub(super) namespaces: &'a Namespaces,
}

/// Lowers all of `mounts`, in document order.
pub(super) fn lower_mounts(
    entries: Vec<document::OciMount>,
    context: &MountContext<'_>,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<Vec<ContainerMount>> {
    let field = FieldPath::root("mounts");
    if !entries.is_empty() && !context.namespaces.has(Namespace::Mount) {
        warnings.push(
            field.warning(
                "are made in the mount namespace of the caller, and stay when the container is gone",
            ),
        );
    }
    let entries = entries.into_iter().enumerate();
    entries.map(|(index, entry)| lower_mount(entry, field.index(index), context, warnings)).collect()
}

fn lower_mount(
    entry: document::OciMount,
    field: FieldPath<'_>,
    context: &MountContext<'_>,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<ContainerMount> {
    let destination = non_empty(entry.destination).ok_or_else(|| field.key("destination").missing())?;
    let parsed = options::parse_options(&entry.options.unwrap_or_default());
    let fstype = non_empty(entry.kind);
    let source = non_empty(entry.source);
    let kind = mount_kind(&parsed, fstype, source, field, context.bundle, warnings)?;
    let maps = lower_id_maps(entry.uid_mappings, entry.gid_mappings, field)?;
    let idmap = mount_id_map(&parsed, maps, &kind, field, context.namespaces)?;
    Ok(ContainerMount {
        destination: join_root(&destination),
        kind,
        set: parsed.mount_attributes.0,
        clear: parsed.mount_attributes.1,
        set_recursive: parsed.tree_attributes.0,
        clear_recursive: parsed.tree_attributes.1,
        propagation: parsed.propagation,
        idmap,
        source_link: parsed.source_link,
        covers_link: parsed.covers_link,
    })
}

fn mount_kind(
    parsed: &ParsedMountOptions,
    fstype: Option<String>,
    source: Option<String>,
    field: FieldPath<'_>,
    bundle: &Path,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<ContainerMountKind> {
    // The type of a bind mount is ignored. The type `bind` without the option is a habit from mount(8); the
    // kernel has no such file system type.
    let bind = parsed.bind.or((fstype.as_deref() == Some("bind")).then_some(false));
    let is_tmpfs = bind.is_none() && !parsed.remount && fstype.as_deref() == Some("tmpfs");
    if parsed.copy_up && !is_tmpfs {
        return Err(field.key("options").invalid("has tmpcopyup, which is for a tmpfs alone; remove it"));
    }
    let is_bind = bind.is_some() && !parsed.remount;
    if !is_bind && (parsed.covers_link || parsed.source_link != SourceLink::Target) {
        let message =
            "has copy-symlink, dest-nofollow or src-nofollow, which are for a bind mount alone; remove it";
        return Err(field.key("options").invalid(message));
    }
    let fstype = fstype.filter(|name| name != "none");
    match (bind, fstype) {
        (Some(_), _) if parsed.remount => {
            reject_filesystem_options(parsed, field, "a remount with bind")?;
            Ok(ContainerMountKind::Remount)
        }
        (Some(recursive), _) => {
            for (index, name, _) in &parsed.filesystem_options {
                let message = format!("is left out: {name} is for a file system, and this is a bind mount");
                warnings.push(field.key("options").index(*index).warning(message));
            }
            let flags = parsed.superblock & !(libc::MS_RDONLY | libc::MS_SILENT);
            push_warning(warnings, flags != 0, || {
                field
                    .key("options")
                    .warning("has options of a whole file system, which a bind mount cannot change")
            });
            let source = source.ok_or_else(|| {
                field.key("source").missing().hint("name the file or directory of the host to bind")
            })?;
            let mut source = bundle.join(source);
            if parsed.source_link != SourceLink::Target {
                // With a slash at its end the path would be that of the directory to which a link leads.
                source = source.components().collect();
            }
            Ok(ContainerMountKind::Bind { source, recursive })
        }
        (None, _) if parsed.remount => Ok(ContainerMountKind::Reconfigure {
            options: filesystem_options(parsed),
            superblock: parsed.superblock,
        }),
        (None, Some(fstype)) if fstype == "cgroup" || fstype == "cgroup2" => {
            for (index, name, _) in &parsed.filesystem_options {
                let message = format_args!("is ignored: {name} is an option of the host's cgroup mount");
                warnings.push(field.key("options").index(*index).warning(message));
            }
            Ok(ContainerMountKind::Cgroup)
        }
        (None, Some(fstype)) => Ok(ContainerMountKind::Filesystem {
            fstype,
            source: source.unwrap_or_else(|| "none".to_owned()),
            options: filesystem_options(parsed),
            superblock: parsed.superblock,
            copy_up: parsed.copy_up,
        }),
        (None, None) if !parsed.propagation.is_empty() && source.is_none() => {
            reject_filesystem_options(parsed, field, "a change of the propagation")?;
            Ok(ContainerMountKind::ChangeAttributes)
        }
        (None, None) => {
            let error = field.key("type").missing();
            Err(error.hint(
                "name a type of file system, or give the option bind or rbind to mount a tree of the host",
            ))
        }
    }
}

fn filesystem_options(parsed: &ParsedMountOptions) -> Vec<(String, Option<String>)> {
    parsed.filesystem_options.iter().map(|(_, name, value)| (name.clone(), value.clone())).collect()
}

/// Refuses options that the kernel would silently ignore.
fn reject_filesystem_options(parsed: &ParsedMountOptions, field: FieldPath<'_>, what: &str) -> Result<()> {
    match parsed.filesystem_options.first() {
        None => Ok(()),
        Some((index, name, _)) => {
            let options = field.key("options");
            let option = options.index(*index);
            let error =
                option.invalid(format_args!("is {name}, an option of a file system, and this is {what}"));
            Err(error.hint("remove it, or mount a file system of its own"))
        }
    }
}

/// Lowers `uidMappings` and `gidMappings` of a mount.
fn lower_id_maps(
    uid: Option<Vec<document::OciIdMapping>>,
    gid: Option<Vec<document::OciIdMapping>>,
    field: FieldPath<'_>,
) -> Result<Option<IdMaps>> {
    let (uid, gid) =
        (lower_id_map(uid, field.key("uidMappings"))?, lower_id_map(gid, field.key("gidMappings"))?);
    match (uid.is_empty(), gid.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(IdMaps { uid, gid })),
        (true, false) => Err(field.key("uidMappings").invalid("must be given along with gidMappings")),
        (false, true) => Err(field.key("gidMappings").invalid("must be given along with uidMappings")),
    }
}

fn mount_id_map(
    parsed: &ParsedMountOptions,
    maps: Option<IdMaps>,
    kind: &ContainerMountKind,
    field: FieldPath<'_>,
    namespaces: &Namespaces,
) -> Result<Option<MountIdMap>> {
    if parsed.id_map.is_none() && maps.is_none() {
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
    // Mappings without `idmap` or `ridmap` apply as with `idmap`, to the mount alone.
    Ok(Some(MountIdMap { maps, recursive: parsed.id_map.unwrap_or(false) }))
}
