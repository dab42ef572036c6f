//! Gathers the facts about the host and the runtime that the plan of a container depends on.

use super::maps;
use crate::plan::container::{ContainerFacts, ContainerHierarchy};
use crate::spec::container::{ContainerSpec, DeviceSpec, Namespace, ProcessSpec};
use saggar_sys::caps;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Gathers all facts, a microsecond each; `process` is the process to run, the container's or that of exec.
pub(super) fn gather(
    container: &ContainerSpec,
    process: Option<&ProcessSpec>,
    hierarchies: Vec<ContainerHierarchy>,
) -> ContainerFacts {
    let (known_capabilities, bounding) = caps::known_and_bounding();
    let wants_apparmor = process.is_some_and(|process| process.apparmor_profile.is_some());
    ContainerFacts {
        privileged: caps::has(caps::SYS_ADMIN),
        setgroups: setgroups(container),
        known_capabilities,
        bounding,
        shared: shared(container),
        hierarchies,
        kcore: Path::new("/proc/kcore").exists(),
        selinux: Path::new("/sys/fs/selinux/enforce").exists(),
        apparmor: wants_apparmor && apparmor(),
        host_devices: host_devices(container),
    }
}

/// Where the host has the devices of a container with a user namespace: at the same path, or at the one that the kernel
/// names in sysfs.
fn host_devices(container: &ContainerSpec) -> BTreeMap<PathBuf, PathBuf> {
    if !container.namespaces.has(Namespace::User) {
        return BTreeMap::new();
    }
    let devices = container.devices.iter().filter(|device| !device.is_default());
    devices.filter_map(|device| Some((device.path.clone(), host_device(device)?))).collect()
}

fn host_device(device: &DeviceSpec) -> Option<PathBuf> {
    let DeviceSpec { major, minor, .. } = device;
    let is_same = |path: &Path| {
        fs::metadata(path).is_ok_and(|meta| {
            meta.mode() & libc::S_IFMT == device.kind && meta.rdev() == libc::makedev(*major, *minor)
        })
    };
    if is_same(&device.path) {
        return Some(device.path.clone());
    }
    let kind = if device.kind == libc::S_IFBLK { "block" } else { "char" };
    let event = fs::read_to_string(format!("/sys/dev/{kind}/{major}:{minor}/uevent")).ok()?;
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name)).filter(|path| is_same(path))
}

/// Whether groups may be changed in the container's user namespace; assumed for a joined one, whose setting is unknown.
fn setgroups(container: &ContainerSpec) -> bool {
    match &container.id_maps {
        Some(ids) => maps::allows_setgroups(ids),
        None if container.namespaces.has(Namespace::User) => true,
        None => !fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.starts_with("deny")),
    }
}

fn apparmor() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y'))
}

/// Returns joined namespaces that are the runtime's own: there is nothing to join, and settings in them would change
/// the runtime's.
fn shared(container: &ContainerSpec) -> std::collections::BTreeSet<Namespace> {
    let joined = container.namespaces.joined.iter();
    joined.filter(|(kind, path)| is_ours(**kind, path)).map(|(kind, _)| *kind).collect()
}

fn is_ours(kind: Namespace, path: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let own = id(&Path::new("/proc/self/ns").join(kind.proc_name()));
    own.is_some() && own == id(path)
}

/// Whether the open namespace of the type `flag` is the one of this process.
pub(super) fn is_our_namespace(file: &OwnedFd, flag: u64) -> bool {
    let kind = Namespace::ALL.into_iter().find(|kind| kind.clone_flag() == flag);
    let own = kind.and_then(|kind| fs::metadata(Path::new("/proc/self/ns").join(kind.proc_name())).ok());
    let id = saggar_sys::file::identity(file.as_fd()).ok();
    own.zip(id).is_some_and(|(own, id)| (own.dev(), own.ino()) == (id.device, id.inode))
}

/// Returns the CLONE_NEW* flags of the namespaces in which `pid` differs from this process.
pub(super) fn foreign_namespaces(pid: i32) -> u64 {
    let of = |kind: Namespace| Path::new("/proc").join(pid.to_string()).join("ns").join(kind.proc_name());
    Namespace::ALL.into_iter().filter(|kind| !is_ours(*kind, &of(*kind))).map(Namespace::clone_flag).sum()
}
