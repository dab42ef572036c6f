//! The whole document to a [`Container`]: the parts are lowered in the files beside this one.

use super::document::{Document, Linux, Root};
use super::field::Field;
use super::mount::{Surroundings, mounts};
use super::process::Place;
use super::text::{absolute_paths, some_text};
use super::{Warning, devices, hooks, mount, namespace, process, resources, seccomp, sysctl, version};
use crate::error::Result;
use crate::spec::container::{self, Container, Namespace, Namespaces};
use std::collections::BTreeMap;
use std::path::Path;

/// Podman's word for crun.
const KEEP_GROUPS: &str = "run.oci.keep_original_groups";

/// The longest host name and domain name (`__NEW_UTS_LEN`).
const MAX_NAME: usize = 64;

/// The container that `document` describes, in `bundle`.
pub(super) fn lower(document: Document, bundle: &Path, warnings: &mut Vec<Warning>) -> Result<Container> {
    let version = version::check(document.oci_version, warnings)?;
    let mut linux = document.linux.unwrap_or_default();
    let namespaces = namespace::namespaces(linux.namespaces.take())?;
    let ids = namespace::id_maps(&mut linux, &namespaces, warnings)?;
    let root = root(document.root, bundle, &linux)?;
    let surroundings = Surroundings { bundle, namespaces: &namespaces };
    let mounts = mounts(document.mounts.unwrap_or_default(), &surroundings, warnings)?;
    let (devices, links) = devices::devices(linux.devices, &mounts)?;
    let mut process =
        document.process.map(|entry| process::lower(entry, Place::OF_CONTAINER, warnings)).transpose()?;
    let personality = resources::personality(linux.personality)?;
    if let Some(process) = &mut process {
        process.personality = personality;
        process.keep_groups = keeps_groups(document.annotations.as_ref());
    }
    let field = Field::root("linux");
    let domainname = name(document.domainname, Field::root("domainname"), &namespaces)?;
    let sysctl = sysctl::sysctl(linux.sysctl, domainname.as_deref(), &namespaces)?;
    Ok(Container {
        version,
        root,
        ids,
        time: namespace::time_offsets(linux.time_offsets, &namespaces)?,
        hostname: name(document.hostname, Field::root("hostname"), &namespaces)?,
        domainname,
        mounts,
        devices,
        links,
        masked: own_paths(linux.masked_paths, field.key("maskedPaths"), &namespaces)?,
        read_only: own_paths(linux.readonly_paths, field.key("readonlyPaths"), &namespaces)?,
        sysctl,
        net_devices: resources::net_devices(linux.net_devices, &namespaces)?,
        process,
        hooks: hooks::hooks(document.hooks)?,
        seccomp: seccomp::check(linux.seccomp)?,
        cgroups_path: some_text(linux.cgroups_path).map(Into::into),
        resources: linux.resources,
        intel_rdt: resources::intel_rdt(linux.intel_rdt, warnings)?,
        memory_policy: resources::memory_policy(linux.memory_policy)?,
        mount_label: some_text(linux.mount_label),
        annotations: document.annotations.unwrap_or_default(),
        namespaces,
    })
}

/// What Podman says for `--group-add keep-groups`: the supplementary groups are the caller's.
fn keeps_groups(annotations: Option<&BTreeMap<String, String>>) -> bool {
    annotations.and_then(|all| all.get(KEEP_GROUPS)).is_some_and(|value| value == "1")
}

fn root(root: Option<Root>, bundle: &Path, linux: &Linux) -> Result<container::Root> {
    let field = Field::root("root");
    let hint = "name the root file system: \"root\": {\"path\": \"rootfs\"}";
    let root = root.ok_or_else(|| field.missing().hint(hint))?;
    let path = some_text(root.path).ok_or_else(|| field.key("path").missing().hint(hint))?;
    let propagation = match linux.rootfs_propagation.as_deref().filter(|word| !word.is_empty()) {
        None => None,
        Some(word) => Some(mount::options::propagation_of(word).ok_or_else(|| {
            let field = Field::root("linux");
            let error = field.key("rootfsPropagation").invalid(format_args!("is not known: {word:?}"));
            error.hint(
                "the words are shared, slave, private and unbindable, each with an r before it for the tree",
            )
        })?),
    };
    Ok(container::Root { path: bundle.join(path), read_only: root.readonly.unwrap_or(false), propagation })
}

/// A host or domain name, which a container has in a UTS namespace of its own alone.
fn name(name: Option<String>, field: Field<'_>, namespaces: &Namespaces) -> Result<Option<String>> {
    let Some(name) = some_text(name) else { return Ok(None) };
    if !namespaces.has(Namespace::Uts) {
        let error = field.invalid("would rename the host: the container has no uts namespace");
        return Err(error.hint("add {\"type\": \"uts\"} to linux.namespaces, or remove the name"));
    }
    if name.len() > MAX_NAME {
        return Err(field.invalid(format_args!("must have at most {MAX_NAME} bytes, has {}", name.len())));
    }
    Ok(Some(name))
}

/// Paths that are covered or made read-only: without a mount namespace that would be done to the host.
fn own_paths(
    paths: Option<Vec<String>>,
    field: Field<'_>,
    namespaces: &Namespaces,
) -> Result<Vec<std::path::PathBuf>> {
    let paths = absolute_paths(paths, field)?;
    if !paths.is_empty() && !namespaces.has(Namespace::Mount) {
        let error = field.invalid("would change the host: the container has no mount namespace");
        return Err(error.hint("add {\"type\": \"mount\"} to linux.namespaces, or remove the paths"));
    }
    Ok(paths)
}
