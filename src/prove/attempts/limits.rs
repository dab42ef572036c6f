//! Attempts to exceed resource limits, with bounded effect: a limited number of processes, sparse files, no memory.
//! Limits of memory and CPU time are read from the kernel's files outside ([`super::super::cgroup_limits`]).

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary, ContainmentRule};
use super::{AT_FDCWD, address_of, address_of_mut, discard_value, open, path};
use crate::sys::disposable_child::DisposableChild;
use crate::sys::{Errno, process};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("processes", Boundary::Pids, "Start more processes than are allowed", |child, scene| {
        fork_until_limit(child, scene.pids)
    }),
    new("file-size", Boundary::Rlimit, "Make a file of a tebibyte", |child, scene| {
        let file = path(&scene.probe_path("large"))?;
        let made = open(child, &file, libc::O_CREAT | libc::O_WRONLY)?;
        let _ = child.call(libc::SYS_unlinkat, &[AT_FDCWD, address_of(&*file), 0]);
        discard_value(child.call(libc::SYS_ftruncate, &[made.unsigned_abs(), 1 << 40]))
    }),
    new("open-files", Boundary::Rlimit, "Open a million files", |child, _| {
        let mut limit = [0_u64; 2];
        child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_NOFILE.into(), 0, address_of_mut(&mut limit)])?;
        if limit[1] >= 1_000_000 { Ok(()) } else { Err(AttemptFailure::NoEffect) }
    }),
    new("locked-memory", Boundary::Rlimit, "Lock a gibibyte of memory", |child, _| {
        let mut limit = [0_u64; 2];
        child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_MEMLOCK.into(), 0, address_of_mut(&mut limit)])?;
        if limit[1] >= 1 << 30 { Ok(()) } else { Err(AttemptFailure::NoEffect) }
    }),
    new("core-files", Boundary::Rlimit, "Leave a core file", |child, _| {
        let mut limit = [0_u64; 2];
        child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_CORE.into(), 0, address_of_mut(&mut limit)])?;
        // A core limit of 1 is less than a page, and keeps a piped handler from being started.
        if limit[1] > 1 { Ok(()) } else { Err(AttemptFailure::NoEffect) }
    }),
    new("disk", Boundary::Disk, "Have more disk in the workspace than is allowed", |_, scene| {
        let space = nix::sys::statvfs::statvfs(&scene.work).map_err(|_| AttemptFailure::NotTried)?;
        let total = space.blocks().saturating_mul(space.fragment_size());
        if total > scene.disk { Ok(()) } else { Err(AttemptFailure::NoEffect) }
    }),
    new("memory-files", Boundary::MountNamespace, "Have no limit on files in memory", |_, _| {
        let endless = |at: &&str| {
            let kind = nix::sys::statfs::statfs(*at).map(|is| is.filesystem_type());
            let is_memory = kind.is_ok_and(|kind| kind == nix::sys::statfs::TMPFS_MAGIC);
            is_memory && nix::sys::statvfs::statvfs(*at).is_ok_and(|space| space.blocks() == 0)
        };
        if ["/tmp", "/dev/shm", "/run", "/dev"].iter().any(endless) {
            Ok(())
        } else {
            Err(AttemptFailure::NoEffect)
        }
    }),
];

const fn new(
    name: &'static str,
    boundary: Boundary,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, boundary, does, run).rule(ContainmentRule::Any)
}

/// Starts waiting processes until a fork fails, slightly more than `most` at most; all of them are killed.
fn fork_until_limit(child: &DisposableChild, most: u32) -> AttemptResult {
    let mut pids = Vec::new();
    let mut end = Ok(());
    for _ in 0..most.saturating_add(16) {
        match child.fork() {
            Ok(Some(pid)) => pids.push(Pid::from_raw(pid)),
            Ok(None) => {
                let _ = process::prctl(libc::PR_SET_PDEATHSIG, 9, 0, 0);
                process::sleep_forever();
                process::exit_now(0)
            }
            Err(errno) => {
                end = Err(AttemptFailure::Error(errno));
                break;
            }
        }
    }
    for pid in &pids {
        let _ = kill(*pid, Signal::SIGKILL);
    }
    for pid in pids {
        while nix::sys::wait::waitpid(pid, None) == Err(Errno::EINTR) {}
    }
    end
}
