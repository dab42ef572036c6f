//! Capabilities, ids, set-id files and what else gives a program more than it has.

use super::super::scene::Scene;
use super::super::{Attempt, Boundary, No, Rule, Tried};
use super::{HERE, at, done, open, path, to};
use crate::sys::Errno;
use crate::sys::throwaway::Throwaway;
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// The attempts.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("capabilities-effective", "Have a capability", |_, _| capabilities("CapEff")),
    new("capabilities-permitted", "Have a capability to take", |_, _| capabilities("CapPrm")),
    new("capabilities-bounding", "Have a capability that a file could give", |_, _| capabilities("CapBnd")),
    new("capabilities-ambient", "Have a capability to pass on", |_, _| capabilities("CapAmb")),
    new("capset", "Take every capability", |child, _| {
        let header = [0x2008_0522_u32, 0];
        let all = [u32::MAX, u32::MAX, 0, 0x1ff, 0x1ff, 0];
        done(child.call(libc::SYS_capset, &[at(&header), at(&all)]))
    }),
    by(Boundary::NoNewPrivs, "no-new-privs", "Be without no_new_privs", |child, _| {
        match child.call(libc::SYS_prctl, &[39, 0, 0, 0, 0])? {
            0 => Ok(()),
            _ => Err(No::Nothing),
        }
    }),
    by(Boundary::NoNewPrivs, "clear-no-new-privs", "Clear no_new_privs", |child, _| {
        done(child.call(libc::SYS_prctl, &[38, 0, 0, 0, 0]))
    }),
    by(Boundary::Seccomp, "seccomp-filter", "Be without a system call filter", |child, _| {
        match child.call(libc::SYS_prctl, &[21, 0, 0, 0, 0])? {
            2 => Err(No::Nothing),
            _ => Ok(()),
        }
    }),
    by(Boundary::Landlock, "landlock-domain", "Be without a landlock domain", |child, _| domains(child)),
    by(Boundary::UserNamespace, "be-host-root", "Be the host's root", |_, _| host_root()),
    by(Boundary::UserNamespace, "become-root", "Become root", |child, _| {
        not_root()?;
        done(child.call(libc::SYS_setuid, &[0]))
    }),
    by(Boundary::UserNamespace, "become-root-group", "Become group root", |child, _| {
        not_root()?;
        done(child.call(libc::SYS_setgid, &[0]))
    }),
    by(Boundary::UserNamespace, "groups", "Choose its groups", |child, _| {
        done(child.call(libc::SYS_setgroups, &[1, at(&[0_u32])]))
    }),
    set_id("set-uid-file", "Make a set-user-id file", |child, scene| {
        let file = file(child, scene, c"set-uid")?;
        left(&file, child.call(libc::SYS_fchmodat, &[HERE, at(&*file), 0o4755]))
    }),
    set_id("set-gid-file", "Make a set-group-id file", |child, scene| {
        let file = file(child, scene, c"set-gid")?;
        left(&file, child.call(libc::SYS_fchmodat, &[HERE, at(&*file), 0o2755]))
    }),
    set_id("set-uid-high", "The same with bits that the kernel ignores", |child, scene| {
        let file = file(child, scene, c"set-high")?;
        left(&file, child.call(libc::SYS_fchmodat, &[HERE, at(&*file), 0o4755 | 1 << 32]))
    }),
    set_id("set-uid-fchmodat2", "Make one by fchmodat2(2)", |child, scene| {
        let file = file(child, scene, c"set-chmod2")?;
        left(&file, child.call(452, &[HERE, at(&*file), 0o4755, 0]))
    }),
    set_id("set-uid-open", "Open a new set-user-id file", |child, scene| {
        let file = path(&scene.own("set-open"))?;
        left(&file, child.call(libc::SYS_openat, &[HERE, at(&*file), CREATE, 0o4755]))
    }),
    set_id("set-uid-openat2", "Open one by openat2(2)", |child, scene| {
        let file = path(&scene.own("set-openat2"))?;
        left(&file, child.call(libc::SYS_openat2, &[HERE, at(&*file), at(&[CREATE, 0o4755, 0]), 24]))
    }),
    set_id("set-uid-node", "Make one by mknod(2)", |child, scene| {
        let file = path(&scene.own("set-node"))?;
        left(&file, child.call(libc::SYS_mknodat, &[HERE, at(&*file), u64::from(libc::S_IFREG | 0o4755), 0]))
    }),
    set_id("set-gid-directory", "Make a set-group-id directory", |child, scene| {
        let file = path(&scene.own("set-directory"))?;
        left(&file, child.call(libc::SYS_mkdirat, &[HERE, at(&*file), 0o2755]))
    }),
    new("file-capability", "Give a file capabilities", |child, scene| {
        let file = file(child, scene, c"capable")?;
        let value = [0x0200_0001_u32, u32::MAX, 0, 0, 0];
        done(child.call(libc::SYS_setxattr, &[at(&*file), at(c"security.capability"), at(&value), 20, 0]))
    }),
    new("chown-root", "Give a file to root", |child, scene| {
        not_root()?;
        let file = file(child, scene, c"chown")?;
        done(child.call(libc::SYS_fchownat, &[HERE, at(&*file), 0, 0, 0]))
    }),
    new("nice", "Come before other processes", |child, _| {
        done(child.call(libc::SYS_setpriority, &[0, 0, (-5_i64).cast_unsigned()]))
    }),
    new("realtime", "Be scheduled before all others", |child, _| {
        // SCHED_FIFO at priority 1.
        done(child.call(libc::SYS_sched_setscheduler, &[0, 1, at(&1_i32)]))
    }),
    by(Boundary::Seccomp, "hostname", "Set a host name that is too long", |child, _| {
        done(child.call(libc::SYS_sethostname, &[at(c""), 1 << 20]))
    })
    .rule(Rule::Denied),
    by(Boundary::Rlimit, "raise-limit", "Raise a limit of its own", |child, _| {
        let mut limit = [0_u64; 2];
        child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_MEMLOCK.into(), 0, to(&mut limit)])?;
        if limit[1] == libc::RLIM_INFINITY {
            return Ok(());
        }
        let higher = [limit[1] + 4096; 2];
        done(child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_MEMLOCK.into(), at(&higher), 0]))
    }),
];

const CREATE: u64 = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY).unsigned_abs() as u64;

type Run = fn(&Throwaway, &Scene) -> Tried;

const fn by(boundary: Boundary, name: &'static str, does: &'static str, run: Run) -> Attempt {
    Attempt::new(name, boundary, does, run)
}

const fn new(name: &'static str, does: &'static str, run: Run) -> Attempt {
    by(Boundary::Capabilities, name, does, run)
}

const fn set_id(name: &'static str, does: &'static str, run: Run) -> Attempt {
    by(Boundary::Seccomp, name, does, run)
}

/// A new file of the probe's own.
fn file(child: &Throwaway, scene: &Scene, name: &CStr) -> Result<std::ffi::CString, No> {
    let file = path(&scene.own(&name.to_string_lossy()))?;
    let _ = child.call(libc::SYS_unlinkat, &[HERE, at(&*file), 0]);
    open(child, &file, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY)?;
    Ok(file)
}

/// The mode that a call left on a file counts, not what the call said. The file is removed.
fn left(file: &CStr, said: crate::sys::SysResult<i64>) -> Tried {
    let file = std::path::Path::new(std::ffi::OsStr::new(file.to_str().unwrap_or_default()));
    let set = fs::symlink_metadata(file).is_ok_and(|is| is.permissions().mode() & 0o6000 != 0);
    let _ = fs::remove_file(file).or_else(|_| fs::remove_dir(file));
    if set {
        return Ok(());
    }
    said.map_err(No::from)?;
    Err(No::Nothing)
}

/// Whether a set of capabilities in /proc/self/status is not empty.
fn capabilities(set: &str) -> Tried {
    let status = fs::read_to_string("/proc/self/status").map_err(|_| No::Untried)?;
    let value = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
    match value.map(|value| u64::from_str_radix(value, 16)) {
        Some(Ok(0)) => Err(No::Nothing),
        Some(_) => Ok(()),
        None => Err(No::Untried),
    }
}

fn not_root() -> Result<(), No> {
    if nix::unistd::geteuid().is_root() { Err(No::Untried) } else { Ok(()) }
}

/// Whether this user is user 0 of the host. Maps of namespaces further out are not seen from here, so that an id that
/// is 0 in the next one counts.
fn host_root() -> Tried {
    let own = u64::from(nix::unistd::geteuid().as_raw());
    let map = fs::read_to_string("/proc/self/uid_map").map_err(|_| No::Untried)?;
    let is_root = map.lines().any(|line| {
        let mut numbers = line.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
        let (Some(inner), Some(outer), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return true;
        };
        (inner..inner + count).contains(&own) && outer + (own - inner) == 0
    });
    if is_root { Ok(()) } else { Err(No::Nothing) }
}

/// A task may be in 16 landlock domains (LANDLOCK_MAX_NUM_LAYERS): where all 16 can be added, there was none. A kernel
/// that has no landlock, or a filter that refuses it, leaves none to be found either.
fn domains(child: &Throwaway) -> Tried {
    const MOST: usize = 16;
    let _ = child.call(libc::SYS_prctl, &[38, 1, 0, 0, 0]);
    // A ruleset that handles one right, LANDLOCK_ACCESS_FS_MAKE_BLOCK, and allows none.
    let Ok(ruleset) = child.call(libc::SYS_landlock_create_ruleset, &[at(&(1_u64 << 11)), 8, 0]) else {
        return Ok(());
    };
    let added = || child.call(libc::SYS_landlock_restrict_self, &[ruleset.unsigned_abs(), 0]);
    match (0..MOST).find_map(|_| added().err()) {
        Some(Errno::E2BIG) => Err(No::Nothing),
        _ => Ok(()),
    }
}
