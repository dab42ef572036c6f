//! Changes of the mount tree, on the probe's own directory. It is not a mount point, so an allowed call fails with
//! EINVAL; successful changes are undone.

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptResult, Boundary, ContainmentRule};
use super::{AT_FDCWD, address_of, discard_value, open, path};
use crate::sys::Errno;
use crate::sys::disposable_child::DisposableChild;

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("mount-tmpfs", "Mount a file system in memory", |child, scene| {
        mount(child, scene, Some(c"tmpfs"), 0)
    }),
    new("mount-proc", "Mount /proc again", |child, scene| mount(child, scene, Some(c"proc"), 0)),
    new("mount-sysfs", "Mount /sys", |child, scene| mount(child, scene, Some(c"sysfs"), 0)),
    new("mount-cgroup", "Mount the tree of cgroups", |child, scene| mount(child, scene, Some(c"cgroup2"), 0)),
    new("mount-bind", "Bind a directory to another place", |child, scene| {
        mount(child, scene, None, libc::MS_BIND)
    }),
    new("remount", "Make a mount writable", |child, scene| {
        mount(child, scene, None, libc::MS_REMOUNT | libc::MS_BIND)
    })
    .rule(ContainmentRule::Denied),
    new("propagation", "Share mounts with others", |child, scene| mount(child, scene, None, libc::MS_SHARED))
        .rule(ContainmentRule::Denied),
    new("umount-proc", "Unmount /proc", |child, _| expire(child, c"/proc")).rule(EXPIRE),
    new("umount-usr", "Unmount /usr", |child, _| expire(child, c"/usr")).rule(EXPIRE),
    new("umount-masked", "Unmount what covers /proc/kcore", |child, _| expire(child, c"/proc/kcore"))
        .rule(EXPIRE),
    new("umount-git-config", "Unmount what protects .git/config", |child, scene| {
        expire(child, &path(&scene.work.join(".git/config"))?)
    })
    .rule(EXPIRE),
    new("open-tree", "Clone a tree of mounts", |child, _| {
        discard_value(child.call(libc::SYS_open_tree, &[AT_FDCWD, address_of(c"/usr"), 1]))
    }),
    new("move-mount", "Move a mount", |child, scene| {
        let here = path(&scene.probe_path("mount"))?;
        discard_value(
            child
                .call(libc::SYS_move_mount, &[AT_FDCWD, address_of(&*here), AT_FDCWD, address_of(&*here), 0]),
        )
    })
    .rule(ContainmentRule::Denied),
    new("fsopen", "Configure a new file system", |child, _| {
        discard_value(child.call(libc::SYS_fsopen, &[address_of(c"tmpfs"), 0]))
    }),
    new("fspick", "Configure a mounted file system", |child, _| {
        discard_value(child.call(libc::SYS_fspick, &[AT_FDCWD, address_of(c"/"), 0]))
    }),
    new("mount-setattr", "Change the attributes of a mount", |child, scene| {
        let here = path(&scene.probe_path("mount"))?;
        let attributes = [0_u64, 1, 0, 0];
        discard_value(
            child.call(
                libc::SYS_mount_setattr,
                &[AT_FDCWD, address_of(&*here), 0, address_of(&attributes), 32],
            ),
        )
    })
    .rule(ContainmentRule::Denied),
    new("pivot-root", "Exchange the root", |child, scene| {
        let here = path(&scene.probe_path("mount"))?;
        discard_value(child.call(libc::SYS_pivot_root, &[address_of(&*here), address_of(&*here)]))
    })
    .rule(ContainmentRule::Denied),
    new("chroot", "Change its root directory", |child, scene| {
        let here = path(&scene.probe_path("mount"))?;
        discard_value(child.call(libc::SYS_chroot, &[address_of(&*here)]))
    }),
    new("nested-mount", "Mount in a user namespace of its own", |child, scene| {
        let flags = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS).unsigned_abs().into();
        child.call(libc::SYS_unshare, &[flags])?;
        mount(child, scene, Some(c"tmpfs"), 0)
    })
    .grant(super::super::PolicyGrant::Nesting),
    new("nested-usr-writable", "Make /usr writable in a user namespace of its own", |child, scene| {
        let flags = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS).unsigned_abs().into();
        child.call(libc::SYS_unshare, &[flags])?;
        let flags = [0, address_of(c"/usr"), 0, libc::MS_REMOUNT | libc::MS_BIND, 0];
        child.call(libc::SYS_mount, &flags)?;
        let file = path(&std::path::Path::new("/usr").join(&scene.nonce))?;
        open(child, &file, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY)?;
        let _ = child.call(libc::SYS_unlinkat, &[AT_FDCWD, address_of(&*file), 0]);
        Ok(())
    }),
];

/// The first unmount with MNT_EXPIRE only marks the mount. If allowed, it fails with EAGAIN or EBUSY.
const EXPIRE: ContainmentRule = ContainmentRule::AllExcept(&[Errno::EAGAIN, Errno::EBUSY]);

const fn new(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::Seccomp, does, run)
}

fn mount(
    child: &DisposableChild,
    scene: &ProbeContext,
    kind: Option<&std::ffi::CStr>,
    flags: u64,
) -> AttemptResult {
    let here = path(&scene.probe_path("mount"))?;
    let source = if kind.is_none() && flags == libc::MS_BIND { c"/usr" } else { c"none" };
    let kind = kind.map_or(0, address_of);
    child.call(libc::SYS_mount, &[address_of(source), address_of(&*here), kind, flags, 0])?;
    // A successful mount is removed again.
    let _ = child.call(libc::SYS_umount2, &[address_of(&*here), libc::MNT_DETACH.unsigned_abs().into()]);
    Ok(())
}

fn expire(child: &DisposableChild, at_path: &std::ffi::CStr) -> AttemptResult {
    discard_value(
        child.call(libc::SYS_umount2, &[address_of(at_path), libc::MNT_EXPIRE.unsigned_abs().into()]),
    )
}
