//! Changing the tree of mounts: on a directory of the probe's own, which is no mount, so that what is allowed fails with
//! EINVAL, and what succeeds is undone.

use super::super::scene::Scene;
use super::super::{Attempt, Boundary, Rule, Tried};
use super::{HERE, at, done, open, path};
use crate::sys::Errno;
use crate::sys::throwaway::Throwaway;

/// The attempts.
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
    .rule(Rule::Denied),
    new("propagation", "Share mounts with others", |child, scene| mount(child, scene, None, libc::MS_SHARED))
        .rule(Rule::Denied),
    new("umount-proc", "Unmount /proc", |child, _| expire(child, c"/proc")).rule(EXPIRE),
    new("umount-usr", "Unmount /usr", |child, _| expire(child, c"/usr")).rule(EXPIRE),
    new("umount-masked", "Unmount what covers /proc/kcore", |child, _| expire(child, c"/proc/kcore"))
        .rule(EXPIRE),
    new("umount-git-config", "Unmount what protects .git/config", |child, scene| {
        expire(child, &path(&scene.work.join(".git/config"))?)
    })
    .rule(EXPIRE),
    new("open-tree", "Clone a tree of mounts", |child, _| {
        done(child.call(libc::SYS_open_tree, &[HERE, at(c"/usr"), 1]))
    }),
    new("move-mount", "Move a mount", |child, scene| {
        let here = path(&scene.own("mount"))?;
        done(child.call(libc::SYS_move_mount, &[HERE, at(&*here), HERE, at(&*here), 0]))
    })
    .rule(Rule::Denied),
    new("fsopen", "Configure a new file system", |child, _| {
        done(child.call(libc::SYS_fsopen, &[at(c"tmpfs"), 0]))
    }),
    new("fspick", "Configure a mounted file system", |child, _| {
        done(child.call(libc::SYS_fspick, &[HERE, at(c"/"), 0]))
    }),
    new("mount-setattr", "Change the attributes of a mount", |child, scene| {
        let here = path(&scene.own("mount"))?;
        let attributes = [0_u64, 1, 0, 0];
        done(child.call(libc::SYS_mount_setattr, &[HERE, at(&*here), 0, at(&attributes), 32]))
    })
    .rule(Rule::Denied),
    new("pivot-root", "Exchange the root", |child, scene| {
        let here = path(&scene.own("mount"))?;
        done(child.call(libc::SYS_pivot_root, &[at(&*here), at(&*here)]))
    })
    .rule(Rule::Denied),
    new("chroot", "Change its root directory", |child, scene| {
        let here = path(&scene.own("mount"))?;
        done(child.call(libc::SYS_chroot, &[at(&*here)]))
    }),
    new("nested-mount", "Mount in a user namespace of its own", |child, scene| {
        let flags = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS).unsigned_abs().into();
        child.call(libc::SYS_unshare, &[flags])?;
        mount(child, scene, Some(c"tmpfs"), 0)
    })
    .gift(super::super::Gift::Nesting),
    new("nested-usr-writable", "Make /usr writable in a user namespace of its own", |child, scene| {
        let flags = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS).unsigned_abs().into();
        child.call(libc::SYS_unshare, &[flags])?;
        let flags = [0, at(c"/usr"), 0, libc::MS_REMOUNT | libc::MS_BIND, 0];
        child.call(libc::SYS_mount, &flags)?;
        let file = path(&std::path::Path::new("/usr").join(&scene.nonce))?;
        open(child, &file, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY)?;
        let _ = child.call(libc::SYS_unlinkat, &[HERE, at(&*file), 0]);
        Ok(())
    }),
];

/// A first unmount with MNT_EXPIRE only marks: EAGAIN, or EBUSY, when it is allowed.
const EXPIRE: Rule = Rule::But(&[Errno::EAGAIN, Errno::EBUSY]);

const fn new(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::Seccomp, does, run)
}

fn mount(child: &Throwaway, scene: &Scene, kind: Option<&std::ffi::CStr>, flags: u64) -> Tried {
    let here = path(&scene.own("mount"))?;
    let source = if kind.is_none() && flags == libc::MS_BIND { c"/usr" } else { c"none" };
    let kind = kind.map_or(0, at);
    child.call(libc::SYS_mount, &[at(source), at(&*here), kind, flags, 0])?;
    // Where it was allowed it is taken away again.
    let _ = child.call(libc::SYS_umount2, &[at(&*here), libc::MNT_DETACH.unsigned_abs().into()]);
    Ok(())
}

fn expire(child: &Throwaway, at_path: &std::ffi::CStr) -> Tried {
    done(child.call(libc::SYS_umount2, &[at(at_path), libc::MNT_EXPIRE.unsigned_abs().into()]))
}
