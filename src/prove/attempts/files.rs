//! Files of the host and of the kernel. They are opened; nothing is written to them.

use super::super::scene::Scene;
use super::super::{Attempt, Boundary, Gift, No, Rule, Tried};
use super::{HERE, at, done, open, path};
use crate::sys::Errno;
use crate::sys::throwaway::Throwaway;
use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const WRITE: i32 = libc::O_WRONLY | libc::O_NONBLOCK;
const READ: i32 = libc::O_RDONLY | libc::O_NONBLOCK;

/// The attempts. Those whose name begins with `host-` are about the place of the host that [`Scene::places`] has under
/// the rest of the name.
pub(super) const ATTEMPTS: &[Attempt] = &[
    view("outside-file", "Read a file beside the workspace", |child, scene| {
        done(open(child, &path(&scene.secret)?, READ))
    }),
    view("outside-file-dots", "Read it through ..", |child, scene| {
        let dots = scene.work.join("../outside/secret");
        done(open(child, &path(&dots)?, READ))
    }),
    view("outside-file-init-root", "Read it through the root of pid 1", |child, scene| {
        let below = Path::new("/proc/1/root").join(scene.secret.strip_prefix("/").unwrap_or(&scene.secret));
        done(open(child, &path(&below)?, READ))
    }),
    view("outside-file-link", "Read it through a link in the workspace", |child, scene| {
        let link = path(&scene.own("link"))?;
        let _ = child.call(libc::SYS_unlinkat, &[HERE, at(&*link), 0]);
        child.call(libc::SYS_symlinkat, &[at(&*path(&scene.secret)?), HERE, at(&*link)])?;
        let opened = open(child, &link, READ);
        let _ = child.call(libc::SYS_unlinkat, &[HERE, at(&*link), 0]);
        done(opened)
    }),
    view("outside-file-hard-link", "Give it a second name in the workspace", |child, scene| {
        let link = path(&scene.own("hard-link"))?;
        let secret = path(&scene.secret)?;
        child.call(libc::SYS_linkat, &[HERE, at(&*secret), HERE, at(&*link), 0])?;
        let _ = child.call(libc::SYS_unlinkat, &[HERE, at(&*link), 0]);
        Ok(())
    }),
    Attempt::new(
        "reopen-stream",
        Boundary::Descriptors,
        "Read the file that it may only write as standard error",
        // A pipe in its place is opened too, and has no offset.
        |child, _| {
            let stream = open(child, c"/proc/self/fd/2", READ)?;
            done(child.call(
                libc::SYS_lseek,
                &[stream.cast_unsigned(), 0, u64::from(libc::SEEK_CUR.cast_unsigned())],
            ))
        },
    ),
    view("host-shadow", "Read the host's passwords", |_, scene| place(scene, "shadow")),
    view("host-passwd", "Read the host's list of users", |_, scene| place(scene, "passwd")),
    view("host-machine-id", "Read the host's machine-id", |_, scene| place(scene, "machine-id")),
    view("host-ssh", "List the host's ssh keys", |_, scene| place(scene, "ssh")),
    view("host-root", "List the home of root", |_, scene| place(scene, "root")),
    view("host-homes", "List the homes of users", |_, scene| place(scene, "homes")),
    view("host-home", "List the home of who started the sandbox", |_, scene| place(scene, "home")),
    view("host-log", "List the host's logs", |_, scene| place(scene, "log")),
    view("host-lib", "List the host's state", |_, scene| place(scene, "lib")),
    view("host-run", "List the host's runtime files", |_, scene| place(scene, "run")),
    view("host-tmp", "List the host's /tmp", |_, scene| place(scene, "tmp")),
    view("host-boot", "List the host's kernels", |_, scene| place(scene, "boot")),
    view("host-shm", "List the host's shared memory", |_, scene| place(scene, "shm")),
    view("host-proc", "List the host's /proc", |_, scene| place(scene, "proc")),
    view("host-cgroups", "List the host's cgroups", |_, scene| place(scene, "cgroups")),
    mount("write-usr", "Make a file in /usr", |child, scene| make(child, scene, "/usr")),
    mount("write-usr-bin", "Make a file in /usr/bin", |child, scene| make(child, scene, "/usr/bin")),
    mount("write-etc-ssl", "Make a file in /etc/ssl", |child, scene| make(child, scene, "/etc/ssl")),
    mount("write-program", "Open /usr/bin/env for writing", |child, _| {
        done(open(child, c"/usr/bin/env", libc::O_WRONLY))
    }),
    mount("write-loader-cache", "Open /etc/ld.so.cache for writing", |child, _| {
        done(open(child, c"/etc/ld.so.cache", libc::O_WRONLY))
    }),
    mount("sysctl-core-pattern", "Open kernel.core_pattern for writing", |child, _| {
        done(open(child, c"/proc/sys/kernel/core_pattern", WRITE))
    }),
    mount("sysctl-modprobe", "Open kernel.modprobe for writing", |child, _| {
        done(open(child, c"/proc/sys/kernel/modprobe", WRITE))
    }),
    mount("sysctl-hostname", "Open kernel.hostname for writing", |child, _| {
        done(open(child, c"/proc/sys/kernel/hostname", WRITE))
    }),
    mount("sysctl-drop-caches", "Open vm.drop_caches for writing", |child, _| {
        done(open(child, c"/proc/sys/vm/drop_caches", WRITE))
    }),
    mount("sysctl-overcommit", "Open vm.overcommit_memory for writing", |child, _| {
        done(open(child, c"/proc/sys/vm/overcommit_memory", WRITE))
    }),
    mount("sysctl-forward", "Open net.ipv4.ip_forward for writing", |child, _| {
        done(open(child, c"/proc/sys/net/ipv4/ip_forward", WRITE))
    }),
    mount("sysrq", "Open /proc/sysrq-trigger for writing", |child, _| {
        done(open(child, c"/proc/sysrq-trigger", WRITE))
    }),
    mount("binfmt", "Register a format of programs", |child, _| {
        done(open(child, c"/proc/sys/fs/binfmt_misc/register", WRITE))
    }),
    mount("interrupt-affinity", "Open the affinity of interrupts for writing", |child, _| {
        done(open(child, c"/proc/irq/default_smp_affinity", WRITE))
    }),
    mount("kernel-memory", "Read the kernel's memory", |child, _| says(child, c"/proc/kcore")),
    mount("kernel-messages", "Read the kernel's messages", |child, _| says(child, c"/proc/kmsg"))
        .rule(Rule::But(&[Errno::EAGAIN])),
    mount("kernel-keys", "Read the list of keys", |child, _| says(child, c"/proc/keys")).gift(Gift::Nesting),
    mount("kernel-timers", "Read the kernel's timers", |child, _| says(child, c"/proc/timer_list")),
    mount("kernel-interrupts", "Read counts of interrupts, which tell of typing", |child, _| {
        says(child, c"/proc/interrupts")
    })
    .gift(Gift::Nesting),
    mount("kernel-pages", "Read flags of physical pages", |child, _| says(child, c"/proc/kpageflags")),
    mount("kernel-symbols", "Read addresses of the kernel", |_, _| addresses()),
    mount("sysfs-write", "Open a switch in /sys for writing", |child, _| {
        done(open(child, c"/sys/kernel/mm/transparent_hugepage/enabled", WRITE))
    }),
    mount("cgroup-write", "Open the root of cgroups for writing", |child, _| {
        let version_2 = open(child, c"/sys/fs/cgroup/cgroup.procs", WRITE);
        done(version_2.or_else(|_| open(child, c"/sys/fs/cgroup/unified/cgroup.procs", WRITE)))
    }),
    mount("tracefs", "List the kernel's tracing", |child, _| {
        done(open(child, c"/sys/kernel/tracing/trace", READ))
    }),
];

const fn view(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::MountNamespace, does, run)
}

const fn mount(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::Mount, does, run)
}

/// Whether a place of the host can be opened, and is the host's own: the same name may be the sandbox's.
fn place(scene: &Scene, name: &str) -> Tried {
    let Some(place) = scene.places.iter().find(|place| place.name == name) else { return Err(No::Untried) };
    let file = std::fs::File::open(&place.path).map_err(error)?;
    let own = file.metadata().map_err(error)?;
    if (own.dev(), own.ino()) == (place.device, place.inode) { Ok(()) } else { Err(No::Nothing) }
}

fn error(error: std::io::Error) -> No {
    error.raw_os_error().map_or(No::Nothing, |number| No::Error(Errno::from_raw(number)))
}

/// Makes a file and removes it again.
fn make(child: &Throwaway, scene: &Scene, directory: &str) -> Tried {
    let file = path(&Path::new(directory).join(&scene.nonce))?;
    open(child, &file, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY)?;
    let _ = child.call(libc::SYS_unlinkat, &[HERE, at(&*file), 0]);
    Ok(())
}

/// Whether a file has something to read: what covers one of /proc is empty.
fn says(child: &Throwaway, name: &CStr) -> Tried {
    let file = open(child, name, READ)?;
    let mut bytes = [0_u8; 8];
    match child.call(libc::SYS_read, &[file.unsigned_abs(), super::to(&mut bytes), 8])? {
        0 => Err(No::Nothing),
        _ => Ok(()),
    }
}

/// Addresses are zeros for who may not see them.
fn addresses() -> Tried {
    let symbols = std::fs::read("/proc/kallsyms").map_err(error)?;
    let first = symbols.split(|byte| *byte == b' ').next().unwrap_or_default();
    if first.iter().any(|byte| *byte != b'0') { Ok(()) } else { Err(No::Nothing) }
}
