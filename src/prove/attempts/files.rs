//! Files of the host and of the kernel. They are opened; nothing is written to them.

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary, ContainmentRule, PolicyGrant};
use super::{AT_FDCWD, address_of, discard_value, open, path};
use crate::sys::Errno;
use crate::sys::disposable_child::DisposableChild;
use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const WRITE: i32 = libc::O_WRONLY | libc::O_NONBLOCK;
const READ: i32 = libc::O_RDONLY | libc::O_NONBLOCK;

/// The attempts of this class. If the name begins with `host-`, the rest is the name of a path in
/// [`ProbeContext::probed_paths`].
pub(super) const ATTEMPTS: &[Attempt] = &[
    view("outside-file", "Read a file beside the workspace", |child, scene| {
        discard_value(open(child, &path(&scene.secret)?, READ))
    }),
    view("outside-file-dots", "Read it through ..", |child, scene| {
        let dots = scene.work.join("../outside/secret");
        discard_value(open(child, &path(&dots)?, READ))
    }),
    view("outside-file-init-root", "Read it through the root of pid 1", |child, scene| {
        let below = Path::new("/proc/1/root").join(scene.secret.strip_prefix("/").unwrap_or(&scene.secret));
        discard_value(open(child, &path(&below)?, READ))
    }),
    view("outside-file-link", "Read it through a link in the workspace", |child, scene| {
        let link = path(&scene.probe_path("link"))?;
        let _ = child.call(libc::SYS_unlinkat, &[AT_FDCWD, address_of(&*link), 0]);
        child
            .call(libc::SYS_symlinkat, &[address_of(&*path(&scene.secret)?), AT_FDCWD, address_of(&*link)])?;
        let opened = open(child, &link, READ);
        let _ = child.call(libc::SYS_unlinkat, &[AT_FDCWD, address_of(&*link), 0]);
        discard_value(opened)
    }),
    view("outside-file-hard-link", "Give it a second name in the workspace", |child, scene| {
        let link = path(&scene.probe_path("hard-link"))?;
        let secret = path(&scene.secret)?;
        child.call(libc::SYS_linkat, &[AT_FDCWD, address_of(&*secret), AT_FDCWD, address_of(&*link), 0])?;
        let _ = child.call(libc::SYS_unlinkat, &[AT_FDCWD, address_of(&*link), 0]);
        Ok(())
    }),
    Attempt::new(
        "reopen-stream",
        Boundary::Descriptors,
        "Read the file that it may only write as standard error",
        // If a pipe replaces the file, it can be opened too, but has no offset.
        |child, _| {
            let stream = open(child, c"/proc/self/fd/2", READ)?;
            discard_value(child.call(
                libc::SYS_lseek,
                &[stream.cast_unsigned(), 0, u64::from(libc::SEEK_CUR.cast_unsigned())],
            ))
        },
    ),
    view("host-shadow", "Read the host's passwords", |_, scene| reach_host_path(scene, "shadow")),
    view("host-passwd", "Read the host's list of users", |_, scene| reach_host_path(scene, "passwd")),
    view("host-machine-id", "Read the host's machine-id", |_, scene| reach_host_path(scene, "machine-id")),
    view("host-ssh", "List the host's ssh keys", |_, scene| reach_host_path(scene, "ssh")),
    view("host-root", "List the home of root", |_, scene| reach_host_path(scene, "root")),
    view("host-homes", "List the homes of users", |_, scene| reach_host_path(scene, "homes")),
    view("host-home", "List the home of who started the sandbox", |_, scene| reach_host_path(scene, "home")),
    view("host-log", "List the host's logs", |_, scene| reach_host_path(scene, "log")),
    view("host-lib", "List the host's state", |_, scene| reach_host_path(scene, "lib")),
    view("host-run", "List the host's runtime files", |_, scene| reach_host_path(scene, "run")),
    view("host-tmp", "List the host's /tmp", |_, scene| reach_host_path(scene, "tmp")),
    view("host-boot", "List the host's kernels", |_, scene| reach_host_path(scene, "boot")),
    view("host-shm", "List the host's shared memory", |_, scene| reach_host_path(scene, "shm")),
    view("host-proc", "List the host's /proc", |_, scene| reach_host_path(scene, "proc"))
        .grant(PolicyGrant::Container),
    view("host-cgroups", "List the host's cgroups", |_, scene| reach_host_path(scene, "cgroups")),
    mount("write-usr", "Make a file in /usr", |child, scene| create_and_remove(child, scene, "/usr")),
    mount("write-usr-bin", "Make a file in /usr/bin", |child, scene| {
        create_and_remove(child, scene, "/usr/bin")
    }),
    mount("write-etc-ssl", "Make a file in /etc/ssl", |child, scene| {
        create_and_remove(child, scene, "/etc/ssl")
    }),
    mount("write-program", "Open /usr/bin/env for writing", |child, _| {
        discard_value(open(child, c"/usr/bin/env", libc::O_WRONLY))
    }),
    mount("write-loader-cache", "Open /etc/ld.so.cache for writing", |child, _| {
        discard_value(open(child, c"/etc/ld.so.cache", libc::O_WRONLY))
    }),
    mount("sysctl-core-pattern", "Open kernel.core_pattern for writing", |child, _| {
        discard_value(open(child, c"/proc/sys/kernel/core_pattern", WRITE))
    }),
    mount("sysctl-modprobe", "Open kernel.modprobe for writing", |child, _| {
        discard_value(open(child, c"/proc/sys/kernel/modprobe", WRITE))
    }),
    mount("sysctl-hostname", "Open kernel.hostname for writing", |child, _| {
        discard_value(open(child, c"/proc/sys/kernel/hostname", WRITE))
    }),
    mount("sysctl-drop-caches", "Open vm.drop_caches for writing", |child, _| {
        discard_value(open(child, c"/proc/sys/vm/drop_caches", WRITE))
    }),
    mount("sysctl-overcommit", "Open vm.overcommit_memory for writing", |child, _| {
        discard_value(open(child, c"/proc/sys/vm/overcommit_memory", WRITE))
    }),
    mount("sysctl-forward", "Open net.ipv4.ip_forward for writing", |child, _| {
        discard_value(open(child, c"/proc/sys/net/ipv4/ip_forward", WRITE))
    }),
    mount("sysrq", "Open /proc/sysrq-trigger for writing", |child, _| {
        discard_value(open(child, c"/proc/sysrq-trigger", WRITE))
    }),
    mount("binfmt", "Register a format of programs", |child, _| {
        discard_value(open(child, c"/proc/sys/fs/binfmt_misc/register", WRITE))
    }),
    mount("interrupt-affinity", "Open the affinity of interrupts for writing", |child, _| {
        discard_value(open(child, c"/proc/irq/default_smp_affinity", WRITE))
    }),
    mount("kernel-memory", "Read the kernel's memory", |child, _| has_content(child, c"/proc/kcore")),
    mount("kernel-messages", "Read the kernel's messages", |child, _| has_content(child, c"/proc/kmsg"))
        .rule(ContainmentRule::AllExcept(&[Errno::EAGAIN])),
    mount("kernel-keys", "Read the list of keys", |child, _| has_content(child, c"/proc/keys"))
        .grant(PolicyGrant::Nesting),
    mount("kernel-timers", "Read the kernel's timers", |child, _| has_content(child, c"/proc/timer_list")),
    mount("kernel-interrupts", "Read counts of interrupts, which reveal typing", |child, _| {
        has_content(child, c"/proc/interrupts")
    })
    .grant(PolicyGrant::Nesting),
    mount("kernel-pages", "Read flags of physical pages", |child, _| has_content(child, c"/proc/kpageflags")),
    mount("kernel-symbols", "Read addresses of the kernel", |_, _| kernel_addresses()),
    mount("sysfs-write", "Open a switch in /sys for writing", |child, _| {
        discard_value(open(child, c"/sys/kernel/mm/transparent_hugepage/enabled", WRITE))
    }),
    mount("cgroup-write", "Open the root of cgroups for writing", |child, _| {
        let version_2 = open(child, c"/sys/fs/cgroup/cgroup.procs", WRITE);
        discard_value(version_2.or_else(|_| open(child, c"/sys/fs/cgroup/unified/cgroup.procs", WRITE)))
    }),
    mount("tracefs", "List the kernel's tracing", |child, _| {
        discard_value(open(child, c"/sys/kernel/tracing/trace", READ))
    }),
];

const fn view(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::MountNamespace, does, run)
}

const fn mount(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::Mount, does, run)
}

/// Whether a host path can be opened and is the host's own file: the sandbox may have another file of that name.
fn reach_host_path(scene: &ProbeContext, name: &str) -> AttemptResult {
    let Some(host_path) = scene.probed_paths.iter().find(|place| place.name == name) else {
        return Err(AttemptFailure::NotTried);
    };
    let file = std::fs::File::open(&host_path.path).map_err(error)?;
    let own = file.metadata().map_err(error)?;
    if (own.dev(), own.ino()) == (host_path.device, host_path.inode) {
        Ok(())
    } else {
        Err(AttemptFailure::NoEffect)
    }
}

fn error(error: std::io::Error) -> AttemptFailure {
    error
        .raw_os_error()
        .map_or(AttemptFailure::NoEffect, |number| AttemptFailure::Error(Errno::from_raw(number)))
}

/// Creates a file and removes it again.
fn create_and_remove(child: &DisposableChild, scene: &ProbeContext, directory: &str) -> AttemptResult {
    let file = path(&Path::new(directory).join(&scene.nonce))?;
    open(child, &file, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY)?;
    let _ = child.call(libc::SYS_unlinkat, &[AT_FDCWD, address_of(&*file), 0]);
    Ok(())
}

/// Whether a file has content: a mount that masks a file of /proc is empty.
fn has_content(child: &DisposableChild, name: &CStr) -> AttemptResult {
    let file = open(child, name, READ)?;
    let mut bytes = [0_u8; 8];
    match child.call(libc::SYS_read, &[file.unsigned_abs(), super::address_of_mut(&mut bytes), 8])? {
        0 => Err(AttemptFailure::NoEffect),
        _ => Ok(()),
    }
}

/// Unprivileged processes read zeros in place of addresses.
fn kernel_addresses() -> AttemptResult {
    let symbols = std::fs::read("/proc/kallsyms").map_err(error)?;
    let first = symbols.split(|byte| *byte == b' ').next().unwrap_or_default();
    if first.iter().any(|byte| *byte != b'0') { Ok(()) } else { Err(AttemptFailure::NoEffect) }
}
