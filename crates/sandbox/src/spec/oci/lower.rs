//! Lowers the whole document to a [`ContainerSpec`]; the files of this directory lower its parts.

use super::document::{OciDocument, OciLinux, OciRoot};
use super::field_path::FieldPath;
use super::mount::{MountContext, lower_mounts};
use super::process::ProcessLocation;
use super::text::{non_empty, require_absolute_paths};
use super::{ConfigWarning, devices, hooks, mount, namespace, process, resources, seccomp, sysctl, version};
use crate::spec::container::{self, ContainerSpec, Namespace, Namespaces};
use saggar_sys::error::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// The annotation of crun with which Podman keeps the caller's groups.
pub(super) const KEEP_GROUPS: &str = "run.oci.keep_original_groups";

/// The annotations of crun, which change how a container runs.
const CRUN_PREFIX: &str = "run.oci.";

/// The longest host name and domain name in bytes (`__NEW_UTS_LEN`).
const MAX_UTS_NAME: usize = 64;

/// Lowers `document`, of the bundle directory `bundle`.
pub(super) fn lower_container(
    document: OciDocument,
    bundle: &Path,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<ContainerSpec> {
    let version = version::check_version(document.oci_version, warnings)?;
    let mut linux = document.linux.unwrap_or_default();
    let namespaces = namespace::lower_namespaces(linux.namespaces.take())?;
    let ids = namespace::lower_id_maps(&mut linux, &namespaces, warnings)?;
    let root = lower_root(document.root, bundle, &linux)?;
    let context = MountContext { bundle, namespaces: &namespaces };
    let mounts = lower_mounts(document.mounts.unwrap_or_default(), &context, warnings)?;
    let (devices, links) = devices::lower_devices(linux.devices, &mounts)?;
    let mut process = document
        .process
        .map(|entry| process::lower_process(entry, ProcessLocation::CONFIG_JSON, warnings))
        .transpose()?;
    let personality = resources::lower_personality(linux.personality)?;
    if let Some(process) = &mut process {
        process.personality = personality;
        process.keep_groups = keeps_caller_groups(document.annotations.as_ref());
    }
    warn_of_annotations(document.annotations.as_ref(), warnings);
    let field = FieldPath::root("linux");
    let domainname = check_uts_name(document.domainname, FieldPath::root("domainname"), &namespaces)?;
    let sysctl = sysctl::lower_sysctl(linux.sysctl, domainname.as_deref(), &namespaces)?;
    Ok(ContainerSpec {
        oci_version: version,
        root,
        id_maps: ids,
        time_offsets: namespace::lower_time_offsets(linux.time_offsets, &namespaces)?,
        hostname: check_uts_name(document.hostname, FieldPath::root("hostname"), &namespaces)?,
        domainname,
        mounts,
        devices,
        links,
        masked_paths: check_container_paths(linux.masked_paths, field.key("maskedPaths"), &namespaces)?,
        read_only_paths: check_container_paths(
            linux.readonly_paths,
            field.key("readonlyPaths"),
            &namespaces,
        )?,
        sysctl,
        net_devices: resources::lower_net_devices(linux.net_devices, &namespaces)?,
        process,
        hooks: hooks::lower_hooks(document.hooks)?,
        seccomp: seccomp::check_seccomp(linux.seccomp)?,
        cgroups_path: non_empty(linux.cgroups_path).map(Into::into),
        resources: linux.resources,
        intel_rdt: resources::check_intel_rdt(linux.intel_rdt, warnings)?,
        memory_policy: resources::lower_memory_policy(linux.memory_policy)?,
        mount_label: non_empty(linux.mount_label),
        annotations: document.annotations.unwrap_or_default(),
        namespaces,
    })
}

/// Whether the supplementary groups are the caller's: Podman's `--group-add keep-groups`.
fn keeps_caller_groups(annotations: Option<&BTreeMap<String, String>>) -> bool {
    annotations.and_then(|all| all.get(KEEP_GROUPS)).is_some_and(|value| value == "1")
}

/// Annotations by which a caller asks another runtime for something that this one does not do.
fn warn_of_annotations(annotations: Option<&BTreeMap<String, String>>, warnings: &mut Vec<ConfigWarning>) {
    let names = annotations.into_iter().flat_map(BTreeMap::keys);
    for name in names.filter(|name| name.starts_with(CRUN_PREFIX) && *name != KEEP_GROUPS) {
        let field = FieldPath::root("annotations");
        warnings.push(field.key(name).warning("is an annotation of crun and has no effect"));
    }
}

fn lower_root(root: Option<OciRoot>, bundle: &Path, linux: &OciLinux) -> Result<container::RootFilesystem> {
    let field = FieldPath::root("root");
    let hint = "name the root file system: \"root\": {\"path\": \"rootfs\"}";
    let root = root.ok_or_else(|| field.missing().hint(hint))?;
    let path = non_empty(root.path).ok_or_else(|| field.key("path").missing().hint(hint))?;
    let propagation = match linux.rootfs_propagation.as_deref().filter(|word| !word.is_empty()) {
        None => None,
        Some(word) => Some(mount::options::propagation_of(word).ok_or_else(|| {
            let field = FieldPath::root("linux");
            let error = field.key("rootfsPropagation").invalid(format_args!("is not known: {word:?}"));
            error.hint(
                "the words are shared, slave, private and unbindable, each with an r before it for the tree",
            )
        })?),
    };
    Ok(container::RootFilesystem {
        path: bundle.join(path),
        read_only: root.readonly.unwrap_or(false),
        propagation,
    })
}

/// Validates a host or domain name, which requires a new UTS namespace.
fn check_uts_name(
    name: Option<String>,
    field: FieldPath<'_>,
    namespaces: &Namespaces,
) -> Result<Option<String>> {
    let Some(name) = non_empty(name) else { return Ok(None) };
    if !namespaces.has(Namespace::Uts) {
        let error = field.invalid("would rename the host: the container has no uts namespace");
        return Err(error.hint("add {\"type\": \"uts\"} to linux.namespaces, or remove the name"));
    }
    if name.len() > MAX_UTS_NAME {
        return Err(field.invalid(format_args!("must have at most {MAX_UTS_NAME} bytes, has {}", name.len())));
    }
    Ok(Some(name))
}

/// Validates paths to mask or make read-only. Without a mount namespace, that would change the host.
fn check_container_paths(
    paths: Option<Vec<String>>,
    field: FieldPath<'_>,
    namespaces: &Namespaces,
) -> Result<Vec<std::path::PathBuf>> {
    let paths = require_absolute_paths(paths, field)?;
    if !paths.is_empty() && !namespaces.has(Namespace::Mount) {
        let error = field.invalid("would change the host: the container has no mount namespace");
        return Err(error.hint("add {\"type\": \"mount\"} to linux.namespaces, or remove the paths"));
    }
    Ok(paths)
}
