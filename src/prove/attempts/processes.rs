//! Other processes: pid 1 of the sandbox, and one of the host's.

use super::super::scene::Scene;
use super::super::{Attempt, Boundary, No, Rule, Tried};
use super::{at, done, open, to};
use crate::sys::Errno;
use crate::sys::throwaway::Throwaway;
use std::ffi::CStr;

/// The attempts.
pub(super) const ATTEMPTS: &[Attempt] = &[
    look("init-memory", "Read the memory of pid 1", |child, _| read(child, c"/proc/1/mem")),
    look("init-environment", "Read the environment of pid 1", |child, _| read(child, c"/proc/1/environ")),
    look("init-maps", "Read the memory map of pid 1", |child, _| read(child, c"/proc/1/maps")),
    look("init-descriptors", "List the descriptors of pid 1", |child, _| read(child, c"/proc/1/fd")),
    look("init-thread-descriptors", "List them by its thread", |child, _| read(child, c"/proc/1/task/1/fd")),
    look("init-root", "Enter the root of pid 1", |child, _| read(child, c"/proc/1/root/.")),
    look("init-directory", "Enter the directory of pid 1", |child, _| read(child, c"/proc/1/cwd/.")),
    look("init-program", "Open the program of pid 1", |child, _| read(child, c"/proc/1/exe")),
    look("init-program-write", "Open the program of pid 1 for writing", |child, _| {
        not_init()?;
        done(open(child, c"/proc/1/exe", libc::O_WRONLY))
    }),
    look("init-trace", "Trace pid 1", |child, _| {
        not_init()?;
        // PTRACE_SEIZE stops nobody, and ends with this process.
        done(child.call(libc::SYS_ptrace, &[0x4206, 1, 0, 0]))
    }),
    look("init-read-memory", "Read the memory of pid 1 by a call", |child, _| {
        not_init()?;
        let mut byte = 0_u8;
        let (local, remote) = ([to(&mut byte), 1], [1_u64, 1]);
        done(child.call(libc::SYS_process_vm_readv, &[1, at(&local), 1, at(&remote), 1, 0]))
    })
    .rule(Rule::But(&[Errno::EFAULT])),
    look("init-take-descriptor", "Take a descriptor of pid 1", |child, _| {
        not_init()?;
        let pidfd = child.call(libc::SYS_pidfd_open, &[1, 0])?;
        done(child.call(libc::SYS_pidfd_getfd, &[pidfd.unsigned_abs(), 1 << 20, 0]))
    })
    .rule(Rule::But(&[Errno::EBADF])),
    look("init-limits", "Read a limit of pid 1", |child, _| {
        not_init()?;
        let mut limit = [0_u64; 2];
        done(child.call(libc::SYS_prlimit64, &[1, libc::RLIMIT_NOFILE.into(), 0, to(&mut limit)]))
    }),
    look("init-priority", "Set the nice value of pid 1", |child, _| {
        not_init()?;
        // To what it is: the call answers 20 less that.
        let now = 20 - child.call(libc::SYS_getpriority, &[0, 1])?;
        done(child.call(libc::SYS_setpriority, &[0, 1, now.cast_unsigned()]))
    }),
    look("init-affinity", "Set the processors of pid 1", |child, _| {
        not_init()?;
        let mut mask = [0_u64; 16];
        let len = child.call(libc::SYS_sched_getaffinity, &[1, 128, to(&mut mask)])?;
        done(child.call(libc::SYS_sched_setaffinity, &[1, len.unsigned_abs(), at(&mask)]))
    }),
    outside("host-process-seen", "Find a process of the host in /proc", |_, scene| found(scene).map(drop)),
    outside("host-process-signal", "Signal a process of the host", |child, scene| {
        done(child.call(libc::SYS_kill, &[u64::from(found(scene)?.unsigned_abs()), 0]))
    }),
    outside("host-process-trace", "Trace a process of the host", |child, scene| {
        done(child.call(libc::SYS_ptrace, &[0x4206, u64::from(found(scene)?.unsigned_abs()), 0, 0]))
    }),
    outside("host-process-descriptor", "Open a process of the host", |child, scene| {
        done(child.call(libc::SYS_pidfd_open, &[u64::from(found(scene)?.unsigned_abs()), 0]))
    }),
];

const fn look(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::Undumpable, does, run)
}

const fn outside(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::PidNamespace, does, run)
}

/// Where the probe is pid 1 itself, there is no other to look into.
fn not_init() -> Result<(), No> {
    match nix::unistd::getppid().as_raw() {
        1 => Err(No::Untried),
        _ => Ok(()),
    }
}

fn read(child: &Throwaway, path: &CStr) -> Tried {
    not_init()?;
    done(open(child, path, libc::O_RDONLY | libc::O_NONBLOCK))
}

/// The pid that the bystander has here.
fn found(scene: &Scene) -> Result<i32, No> {
    let words = scene.bystander_words();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(words.as_bytes()))
    };
    pids.into_iter().find(is_it).ok_or(No::Nothing)
}
