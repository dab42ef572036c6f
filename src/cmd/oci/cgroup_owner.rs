//! The owner of a container's cgroup (config-linux.md, "Cgroup ownership").

use crate::cgroup::CgroupHandle;
use crate::error::Result;
use crate::launch::container as launch;
use crate::spec::container::{ContainerMountKind, ContainerSpec, IdExtent, Namespace};
use std::path::Path;

/// Delegates the cgroup to the user of the container's process, if the container has a cgroup namespace of its own
/// and a writable cgroup mount: it may then run a program that creates cgroups, such as systemd.
///
/// # Errors
/// As `CgroupHandle::delegate_to`.
pub(super) fn delegate_cgroup(container: &ContainerSpec, group: &CgroupHandle, init: i32) -> Result<()> {
    match owner(container, init) {
        // The caller owns it already.
        Some(uid) if uid != nix::unistd::geteuid().as_raw() => group.delegate_to(uid),
        _ => Ok(()),
    }
}

/// Returns the user of the process as an id of the caller's user namespace.
fn owner(container: &ContainerSpec, init: i32) -> Option<u32> {
    if !container.namespaces.new.contains(&Namespace::Cgroup) || !can_write(container) {
        return None;
    }
    let uid = container.process.as_ref()?.uid;
    let of = |extents: &[IdExtent]| {
        let extent =
            extents.iter().find(|one| uid.checked_sub(one.inside).is_some_and(|at| at < one.count))?;
        extent.outside.checked_add(uid - extent.inside)
    };
    match &container.id_maps {
        Some(ids) => of(&ids.uid),
        // A user namespace that the container joined has its own map.
        None if container.namespaces.has(Namespace::User) => {
            of(&launch::read_map(&format!("/proc/{init}/uid_map")))
        }
        None => Some(uid),
    }
}

/// Returns whether the cgroup file system is mounted read-write at its standard path.
fn can_write(container: &ContainerSpec) -> bool {
    let is_it = |mount: &&crate::spec::container::ContainerMount| {
        mount.kind == ContainerMountKind::Cgroup && mount.destination == Path::new("/sys/fs/cgroup")
    };
    let read_only = libc::MOUNT_ATTR_RDONLY;
    let mount = container.mounts.iter().rfind(is_it);
    mount.is_some_and(|mount| (mount.set | mount.set_recursive) & read_only == 0)
}
