//! Access to other processes: pid 1 of the sandbox, and one of the host.

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary, ContainmentRule, PolicyGrant};
use super::{address_of, address_of_mut, discard_value, open};
use crate::sys::Errno;
use crate::sys::disposable_child::DisposableChild;
use std::ffi::{CStr, CString};

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    inspect_init("init-memory", "Read the memory of pid 1", |child, _| read(child, c"/proc/1/mem")),
    inspect_init("init-environment", "Read the environment of pid 1", |child, _| {
        read(child, c"/proc/1/environ")
    }),
    inspect_init("init-maps", "Read the memory map of pid 1", |child, _| read(child, c"/proc/1/maps")),
    inspect_init("init-descriptors", "List the descriptors of pid 1", |child, _| read(child, c"/proc/1/fd"))
        .grant(PolicyGrant::Container),
    inspect_init("init-thread-descriptors", "List them by its thread", |child, _| {
        read(child, c"/proc/1/task/1/fd")
    })
    .grant(PolicyGrant::Container),
    inspect_init("init-root", "Enter the root of pid 1", |child, _| read(child, c"/proc/1/root/.")),
    inspect_init("init-directory", "Enter the directory of pid 1", |child, _| read(child, c"/proc/1/cwd/.")),
    inspect_init("init-program", "Open the program of pid 1", |child, _| read(child, c"/proc/1/exe")),
    inspect_init("init-program-write", "Open the program of pid 1 for writing", |child, _| {
        not_init()?;
        discard_value(open(child, c"/proc/1/exe", libc::O_WRONLY))
    }),
    inspect_init("init-trace", "Trace pid 1", |child, _| {
        not_init()?;
        // PTRACE_SEIZE stops no process, and ends when this process exits.
        discard_value(child.call(libc::SYS_ptrace, &[0x4206, 1, 0, 0]))
    }),
    inspect_init("init-read-memory", "Read the memory of pid 1 by a call", |child, _| {
        not_init()?;
        let mut byte = 0_u8;
        let (local, remote) = ([address_of_mut(&mut byte), 1], [1_u64, 1]);
        discard_value(
            child.call(libc::SYS_process_vm_readv, &[1, address_of(&local), 1, address_of(&remote), 1, 0]),
        )
    })
    .rule(ContainmentRule::AllExcept(&[Errno::EFAULT])),
    inspect_init("init-take-descriptor", "Take a descriptor of pid 1", |child, _| {
        not_init()?;
        let pidfd = child.call(libc::SYS_pidfd_open, &[1, 0])?;
        discard_value(child.call(libc::SYS_pidfd_getfd, &[pidfd.unsigned_abs(), 1 << 20, 0]))
    })
    .rule(ContainmentRule::AllExcept(&[Errno::EBADF])),
    inspect_init("init-limits", "Read a limit of pid 1", |child, _| {
        not_init()?;
        let mut limit = [0_u64; 2];
        discard_value(
            child.call(libc::SYS_prlimit64, &[1, libc::RLIMIT_NOFILE.into(), 0, address_of_mut(&mut limit)]),
        )
    }),
    inspect_init("init-priority", "Set the nice value of pid 1", |child, _| {
        not_init()?;
        // Sets the current value again: the system call returns 20 minus the nice value.
        let now = 20 - child.call(libc::SYS_getpriority, &[0, 1])?;
        discard_value(child.call(libc::SYS_setpriority, &[0, 1, now.cast_unsigned()]))
    }),
    inspect_init("init-affinity", "Set the processors of pid 1", |child, _| {
        not_init()?;
        let mut mask = [0_u64; 16];
        let len = child.call(libc::SYS_sched_getaffinity, &[1, 128, address_of_mut(&mut mask)])?;
        discard_value(child.call(libc::SYS_sched_setaffinity, &[1, len.unsigned_abs(), address_of(&mask)]))
    }),
    reach_host_process("host-process-seen", "Find a process of the host in /proc", |_, scene| {
        bystander_pid(scene).map(drop)
    })
    .grant(PolicyGrant::Container),
    reach_host_process(
        "host-process-environment",
        "Read the environment of a process of the host",
        |child, scene| open_of_bystander(child, scene, "environ", libc::O_RDONLY),
    ),
    reach_host_process("host-process-memory", "Open the memory of a process of the host", |child, scene| {
        open_of_bystander(child, scene, "mem", libc::O_RDONLY)
    }),
    reach_host_process("host-process-root", "Enter the root of a process of the host", |child, scene| {
        open_of_bystander(child, scene, "root/.", libc::O_RDONLY)
    }),
    reach_host_process(
        "host-process-directory",
        "Enter the directory of a process of the host",
        |child, scene| open_of_bystander(child, scene, "cwd/.", libc::O_RDONLY),
    ),
    reach_host_process(
        "host-process-file",
        "Open a file that a process of the host has open",
        |child, scene| open_of_bystander(child, scene, "fd/0", libc::O_RDONLY | libc::O_NONBLOCK),
    ),
    reach_host_process(
        "host-process-write",
        "Open a setting of a process of the host for writing",
        |child, scene| open_of_bystander(child, scene, "oom_score_adj", libc::O_WRONLY),
    ),
    reach_host_process("host-process-signal", "Signal a process of the host", |child, scene| {
        discard_value(child.call(libc::SYS_kill, &[bystander_number(scene)?, 0]))
    }),
    reach_host_process("host-process-trace", "Trace a process of the host", |child, scene| {
        discard_value(child.call(libc::SYS_ptrace, &[0x4206, bystander_number(scene)?, 0, 0]))
    }),
    reach_host_process("host-process-descriptor", "Open a process of the host", |child, scene| {
        discard_value(child.call(libc::SYS_pidfd_open, &[bystander_number(scene)?, 0]))
    }),
];

const fn inspect_init(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::Undumpable, does, run)
}

const fn reach_host_process(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::PidNamespace, does, run)
}

/// Fails if the probe is itself pid 1, since there is then no other process to inspect.
fn not_init() -> Result<(), AttemptFailure> {
    match nix::unistd::getppid().as_raw() {
        1 => Err(AttemptFailure::NotTried),
        _ => Ok(()),
    }
}

fn read(child: &DisposableChild, path: &CStr) -> AttemptResult {
    not_init()?;
    discard_value(open(child, path, libc::O_RDONLY | libc::O_NONBLOCK))
}

fn open_of_bystander(child: &DisposableChild, scene: &ProbeContext, file: &str, flags: i32) -> AttemptResult {
    let path = format!("/proc/{}/{file}", bystander_pid(scene)?);
    let path = CString::new(path).map_err(|_| AttemptFailure::NotTried)?;
    discard_value(open(child, &path, flags))
}

/// The number of the bystander in system calls. It has none there if `/proc` is that of another pid namespace.
fn bystander_number(scene: &ProbeContext) -> Result<u64, AttemptFailure> {
    let pid = bystander_pid(scene)?;
    let own = std::fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse::<u32>().ok());
    if own != Some(std::process::id()) {
        return Err(AttemptFailure::NotTried);
    }
    Ok(u64::from(pid.unsigned_abs()))
}

/// The number of the bystander in `/proc`.
fn bystander_pid(scene: &ProbeContext) -> Result<i32, AttemptFailure> {
    let words = scene.bystander_words();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(words.as_bytes()))
    };
    pids.into_iter().find(is_it).ok_or(AttemptFailure::NoEffect)
}
