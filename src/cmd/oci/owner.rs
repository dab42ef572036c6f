//! Whose a container's cgroup is (config-linux.md, "Cgroup ownership").

use crate::cgroup::Group;
use crate::error::Result;
use crate::launch::container as launch;
use crate::spec::container::{Container, ContainerMountKind, IdExtent, Namespace};
use std::path::Path;

/// Gives the cgroup to the user of the container's process, where the container sees a cgroup namespace of its own
/// that it can write: it may then run something that makes cgroups, such as systemd.
///
/// # Errors
/// As [`Group::give_to`].
pub(super) fn settle(container: &Container, group: &Group, init: i32) -> Result<()> {
    match owner(container, init) {
        // It is ours already.
        Some(uid) if uid != nix::unistd::geteuid().as_raw() => group.give_to(uid),
        _ => Ok(()),
    }
}

/// The user of the process, as an id of our own user namespace.
fn owner(container: &Container, init: i32) -> Option<u32> {
    if !container.namespaces.new.contains(&Namespace::Cgroup) || !can_write(container) {
        return None;
    }
    let uid = container.process.as_ref()?.uid;
    let of = |extents: &[IdExtent]| {
        let extent =
            extents.iter().find(|one| uid.checked_sub(one.inside).is_some_and(|at| at < one.count))?;
        extent.outside.checked_add(uid - extent.inside)
    };
    match &container.ids {
        Some(ids) => of(&ids.uid),
        // One that was joined has its own.
        None if container.namespaces.has(Namespace::User) => {
            of(&launch::read_map(&format!("/proc/{init}/uid_map")))
        }
        None => Some(uid),
    }
}

/// Whether the cgroup file system is mounted where all expect it, and not read-only.
fn can_write(container: &Container) -> bool {
    let is_it = |mount: &&crate::spec::container::ContainerMount| {
        mount.kind == ContainerMountKind::Cgroup && mount.at == Path::new("/sys/fs/cgroup")
    };
    let read_only = libc::MOUNT_ATTR_RDONLY;
    let mount = container.mounts.iter().rfind(is_it);
    mount.is_some_and(|mount| (mount.set | mount.set_recursive) & read_only == 0)
}
