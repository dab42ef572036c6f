//! Device nodes: opened for reading, or made and removed.

use super::super::scene::Scene;
use super::super::{Attempt, Boundary, No, Tried};
use super::{HERE, at, done, open, path};
use crate::sys::throwaway::Throwaway;
use std::ffi::CStr;
use std::os::unix::fs::FileTypeExt;

/// The attempts.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("physical-memory", "Open /dev/mem", |child, _| device(child, c"/dev/mem")),
    new("io-ports", "Open /dev/port", |child, _| device(child, c"/dev/port")),
    new("kernel-log", "Open /dev/kmsg", |child, _| device(child, c"/dev/kmsg")),
    new("hypervisor", "Open /dev/kvm", |child, _| device(child, c"/dev/kvm")),
    new("fuse", "Open /dev/fuse", |child, _| device(child, c"/dev/fuse")),
    new("tunnel", "Open /dev/net/tun", |child, _| device(child, c"/dev/net/tun")),
    new("loop-control", "Open /dev/loop-control", |child, _| device(child, c"/dev/loop-control")),
    new("input", "Open the first input device", |child, _| device(child, c"/dev/input/event0")),
    new("console", "Open the console", |child, _| device(child, c"/dev/console")),
    new("block-devices", "Open a disk", |child, _| {
        let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let mut disks = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_block_device()));
        let opened = disks.any(|disk| path(&disk.path()).is_ok_and(|disk| device(child, &disk).is_ok()));
        if opened { Ok(()) } else { Err(No::Nothing) }
    }),
    made("make-character-device", "Make a device node", |child, scene| {
        node(child, scene, libc::S_IFCHR, 1 << 8 | 1)
    }),
    made("make-block-device", "Make the node of a disk", |child, scene| {
        node(child, scene, libc::S_IFBLK, 254 << 8)
    }),
];

const fn new(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::MountNamespace, does, run)
}

const fn made(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::UserNamespace, does, run)
}

fn device(child: &Throwaway, name: &CStr) -> Tried {
    done(open(child, name, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY))
}

fn node(child: &Throwaway, scene: &Scene, kind: u32, number: u64) -> Tried {
    let file = path(&scene.own("node"))?;
    child.call(libc::SYS_mknodat, &[HERE, at(&*file), u64::from(kind | 0o600), number])?;
    let _ = child.call(libc::SYS_unlinkat, &[HERE, at(&*file), 0]);
    Ok(())
}
