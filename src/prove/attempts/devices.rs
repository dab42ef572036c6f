//! Device nodes: opens them for reading, or creates and removes them.

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary};
use super::{AT_FDCWD, address_of, discard_value, open, path};
use crate::sys::disposable_child::DisposableChild;
use std::ffi::CStr;
use std::os::unix::fs::FileTypeExt;

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("physical-memory", "Open /dev/mem", |child, _| open_device(child, c"/dev/mem")),
    new("io-ports", "Open /dev/port", |child, _| open_device(child, c"/dev/port")),
    new("kernel-log", "Open /dev/kmsg", |child, _| open_device(child, c"/dev/kmsg")),
    new("hypervisor", "Open /dev/kvm", |child, _| open_device(child, c"/dev/kvm")),
    new("fuse", "Open /dev/fuse", |child, _| open_device(child, c"/dev/fuse")),
    new("tunnel", "Open /dev/net/tun", |child, _| open_device(child, c"/dev/net/tun")),
    new("loop-control", "Open /dev/loop-control", |child, _| open_device(child, c"/dev/loop-control")),
    new("input", "Open the first input device", |child, _| open_device(child, c"/dev/input/event0")),
    new("console", "Open the console", |child, _| open_device(child, c"/dev/console")),
    new("block-devices", "Open a disk", |child, _| {
        let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let mut disks = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_block_device()));
        let opened = disks.any(|disk| path(&disk.path()).is_ok_and(|disk| open_device(child, &disk).is_ok()));
        if opened { Ok(()) } else { Err(AttemptFailure::NoEffect) }
    }),
    creation("make-character-device", "Make a device node", |child, scene| {
        make_node(child, scene, libc::S_IFCHR, 1 << 8 | 1)
    }),
    creation("make-block-device", "Make the node of a disk", |child, scene| {
        make_node(child, scene, libc::S_IFBLK, 254 << 8)
    }),
];

const fn new(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::MountNamespace, does, run)
}

const fn creation(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::UserNamespace, does, run)
}

fn open_device(child: &DisposableChild, name: &CStr) -> AttemptResult {
    discard_value(open(child, name, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY))
}

fn make_node(child: &DisposableChild, scene: &ProbeContext, kind: u32, number: u64) -> AttemptResult {
    let file = path(&scene.probe_path("node"))?;
    child.call(libc::SYS_mknodat, &[AT_FDCWD, address_of(&*file), u64::from(kind | 0o600), number])?;
    let _ = child.call(libc::SYS_unlinkat, &[AT_FDCWD, address_of(&*file), 0]);
    Ok(())
}
