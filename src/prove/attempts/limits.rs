//! Taking more of the machine than is given, within bounds: so many processes and no more, sparse files, no memory.
//! Memory and processor time are read from the kernel's account outside ([`super::super::account`]).

use super::super::scene::Scene;
use super::super::{Attempt, Boundary, No, Rule, Tried};
use super::{HERE, at, done, open, path, to};
use crate::sys::throwaway::Throwaway;
use crate::sys::{Errno, process};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The attempts.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("processes", Boundary::Pids, "Start more processes than are allowed", |child, scene| {
        bomb(child, scene.pids)
    }),
    new("file-size", Boundary::Rlimit, "Make a file of a tebibyte", |child, scene| {
        let file = path(&scene.own("large"))?;
        let made = open(child, &file, libc::O_CREAT | libc::O_WRONLY)?;
        let _ = child.call(libc::SYS_unlinkat, &[HERE, at(&*file), 0]);
        done(child.call(libc::SYS_ftruncate, &[made.unsigned_abs(), 1 << 40]))
    }),
    new("open-files", Boundary::Rlimit, "Open a million files", |child, _| {
        let mut limit = [0_u64; 2];
        child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_NOFILE.into(), 0, to(&mut limit)])?;
        if limit[1] >= 1_000_000 { Ok(()) } else { Err(No::Nothing) }
    }),
    new("locked-memory", Boundary::Rlimit, "Lock a gibibyte of memory", |child, _| {
        let mut limit = [0_u64; 2];
        child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_MEMLOCK.into(), 0, to(&mut limit)])?;
        if limit[1] >= 1 << 30 { Ok(()) } else { Err(No::Nothing) }
    }),
    new("core-files", Boundary::Rlimit, "Leave a core file", |child, _| {
        let mut limit = [0_u64; 2];
        child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_CORE.into(), 0, to(&mut limit)])?;
        // 1 is less than a page, and keeps a piped handler from being started.
        if limit[1] > 1 { Ok(()) } else { Err(No::Nothing) }
    }),
    new("disk", Boundary::Disk, "Have more disk in the workspace than is allowed", |_, scene| {
        let space = nix::sys::statvfs::statvfs(&scene.work).map_err(|_| No::Untried)?;
        let total = space.blocks().saturating_mul(space.fragment_size());
        if total > scene.disk { Ok(()) } else { Err(No::Nothing) }
    }),
    new("memory-files", Boundary::MountNamespace, "Have no limit on files in memory", |_, _| {
        let endless = |at: &&str| {
            let kind = nix::sys::statfs::statfs(*at).map(|is| is.filesystem_type());
            let is_memory = kind.is_ok_and(|kind| kind == nix::sys::statfs::TMPFS_MAGIC);
            is_memory && nix::sys::statvfs::statvfs(*at).is_ok_and(|space| space.blocks() == 0)
        };
        if ["/tmp", "/dev/shm", "/run", "/dev"].iter().any(endless) { Ok(()) } else { Err(No::Nothing) }
    }),
];

const fn new(
    name: &'static str,
    boundary: Boundary,
    does: &'static str,
    run: fn(&Throwaway, &Scene) -> Tried,
) -> Attempt {
    Attempt::new(name, boundary, does, run).rule(Rule::Any)
}

/// Starts processes that wait until one cannot be started, `most` and a few at most; all of them are ended.
fn bomb(child: &Throwaway, most: u32) -> Tried {
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
                end = Err(No::Error(errno));
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
