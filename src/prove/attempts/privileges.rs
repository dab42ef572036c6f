//! Capabilities, ids, set-id files and other ways to gain privileges.

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary, ContainmentRule};
use super::{AT_FDCWD, address_of, address_of_mut, discard_value, open, path};
use crate::sys::Errno;
use crate::sys::disposable_child::DisposableChild;
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("capabilities-effective", "Have a capability", |_, _| capabilities("CapEff")),
    new("capabilities-permitted", "Have a capability to take", |_, _| capabilities("CapPrm")),
    new("capabilities-bounding", "Have a capability that a file could give", |_, _| capabilities("CapBnd")),
    new("capabilities-ambient", "Have a capability to pass on", |_, _| capabilities("CapAmb")),
    new("capset", "Take every capability", |child, _| {
        let header = [0x2008_0522_u32, 0];
        let all = [u32::MAX, u32::MAX, 0, 0x1ff, 0x1ff, 0];
        discard_value(child.call(libc::SYS_capset, &[address_of(&header), address_of(&all)]))
    }),
    by(Boundary::NoNewPrivs, "no-new-privs", "Be without no_new_privs", |child, _| {
        match child.call(libc::SYS_prctl, &[39, 0, 0, 0, 0])? {
            0 => Ok(()),
            _ => Err(AttemptFailure::NoEffect),
        }
    }),
    by(Boundary::NoNewPrivs, "clear-no-new-privs", "Clear no_new_privs", |child, _| {
        discard_value(child.call(libc::SYS_prctl, &[38, 0, 0, 0, 0]))
    }),
    by(Boundary::Seccomp, "seccomp-filter", "Be without a system call filter", |child, _| {
        match child.call(libc::SYS_prctl, &[21, 0, 0, 0, 0])? {
            2 => Err(AttemptFailure::NoEffect),
            _ => Ok(()),
        }
    }),
    by(Boundary::Landlock, "landlock-domain", "Be without a landlock domain", |child, _| {
        has_no_domain(child)
    }),
    by(Boundary::UserNamespace, "be-host-root", "Be the host's root", |_, _| host_root()),
    by(Boundary::UserNamespace, "become-root", "Become root", |child, _| {
        not_root()?;
        discard_value(child.call(libc::SYS_setuid, &[0]))
    }),
    by(Boundary::UserNamespace, "become-root-group", "Become group root", |child, _| {
        not_root()?;
        discard_value(child.call(libc::SYS_setgid, &[0]))
    }),
    by(Boundary::UserNamespace, "groups", "Choose its groups", |child, _| {
        discard_value(child.call(libc::SYS_setgroups, &[1, address_of(&[0_u32])]))
    }),
    set_id("set-uid-file", "Make a set-user-id file", |child, scene| {
        let file = file(child, scene, c"set-uid")?;
        has_set_id(&file, child.call(libc::SYS_fchmodat, &[AT_FDCWD, address_of(&*file), 0o4755]))
    }),
    set_id("set-gid-file", "Make a set-group-id file", |child, scene| {
        let file = file(child, scene, c"set-gid")?;
        has_set_id(&file, child.call(libc::SYS_fchmodat, &[AT_FDCWD, address_of(&*file), 0o2755]))
    }),
    set_id("set-uid-high", "The same with bits that the kernel ignores", |child, scene| {
        let file = file(child, scene, c"set-high")?;
        has_set_id(&file, child.call(libc::SYS_fchmodat, &[AT_FDCWD, address_of(&*file), 0o4755 | 1 << 32]))
    }),
    set_id("set-uid-fchmodat2", "Make one by fchmodat2(2)", |child, scene| {
        let file = file(child, scene, c"set-chmod2")?;
        has_set_id(&file, child.call(452, &[AT_FDCWD, address_of(&*file), 0o4755, 0]))
    }),
    set_id("set-uid-open", "Open a new set-user-id file", |child, scene| {
        let file = path(&scene.probe_path("set-open"))?;
        has_set_id(&file, child.call(libc::SYS_openat, &[AT_FDCWD, address_of(&*file), CREATE, 0o4755]))
    }),
    set_id("set-uid-openat2", "Open one by openat2(2)", |child, scene| {
        let file = path(&scene.probe_path("set-openat2"))?;
        has_set_id(
            &file,
            child.call(
                libc::SYS_openat2,
                &[AT_FDCWD, address_of(&*file), address_of(&[CREATE, 0o4755, 0]), 24],
            ),
        )
    }),
    set_id("set-uid-node", "Make one by mknod(2)", |child, scene| {
        let file = path(&scene.probe_path("set-node"))?;
        has_set_id(
            &file,
            child.call(
                libc::SYS_mknodat,
                &[AT_FDCWD, address_of(&*file), u64::from(libc::S_IFREG | 0o4755), 0],
            ),
        )
    }),
    set_id("set-gid-directory", "Make a set-group-id directory", |child, scene| {
        let file = path(&scene.probe_path("set-directory"))?;
        has_set_id(&file, child.call(libc::SYS_mkdirat, &[AT_FDCWD, address_of(&*file), 0o2755]))
    }),
    new("file-capability", "Give a file capabilities", |child, scene| {
        let file = file(child, scene, c"capable")?;
        let value = [0x0200_0001_u32, u32::MAX, 0, 0, 0];
        discard_value(child.call(
            libc::SYS_setxattr,
            &[address_of(&*file), address_of(c"security.capability"), address_of(&value), 20, 0],
        ))
    }),
    new("chown-root", "Give a file to root", |child, scene| {
        not_root()?;
        let file = file(child, scene, c"chown")?;
        discard_value(child.call(libc::SYS_fchownat, &[AT_FDCWD, address_of(&*file), 0, 0, 0]))
    }),
    new("nice", "Come before other processes", |child, _| {
        discard_value(child.call(libc::SYS_setpriority, &[0, 0, (-5_i64).cast_unsigned()]))
    }),
    new("realtime", "Be scheduled before all others", |child, _| {
        // SCHED_FIFO at priority 1.
        discard_value(child.call(libc::SYS_sched_setscheduler, &[0, 1, address_of(&1_i32)]))
    }),
    by(Boundary::Seccomp, "hostname", "Set a host name that is too long", |child, _| {
        discard_value(child.call(libc::SYS_sethostname, &[address_of(c""), 1 << 20]))
    })
    .rule(ContainmentRule::Denied),
    by(Boundary::Rlimit, "raise-limit", "Raise a limit of its own", |child, _| {
        let mut limit = [0_u64; 2];
        child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_MEMLOCK.into(), 0, address_of_mut(&mut limit)])?;
        if limit[1] == libc::RLIM_INFINITY {
            return Ok(());
        }
        let higher = [limit[1] + 4096; 2];
        discard_value(
            child.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_MEMLOCK.into(), address_of(&higher), 0]),
        )
    }),
];

const CREATE: u64 = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY).unsigned_abs() as u64;

type PrivilegeAttemptFn = fn(&DisposableChild, &ProbeContext) -> AttemptResult;

const fn by(boundary: Boundary, name: &'static str, does: &'static str, run: PrivilegeAttemptFn) -> Attempt {
    Attempt::new(name, boundary, does, run)
}

const fn new(name: &'static str, does: &'static str, run: PrivilegeAttemptFn) -> Attempt {
    by(Boundary::Capabilities, name, does, run)
}

const fn set_id(name: &'static str, does: &'static str, run: PrivilegeAttemptFn) -> Attempt {
    by(Boundary::Seccomp, name, does, run)
}

/// Creates a new file in the probe's directory.
fn file(
    child: &DisposableChild,
    scene: &ProbeContext,
    name: &CStr,
) -> Result<std::ffi::CString, AttemptFailure> {
    let file = path(&scene.probe_path(&name.to_string_lossy()))?;
    let _ = child.call(libc::SYS_unlinkat, &[AT_FDCWD, address_of(&*file), 0]);
    open(child, &file, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY)?;
    Ok(file)
}

/// Judges by the mode of the file after the call, not by the call's result. The file is removed.
fn has_set_id(file: &CStr, result: crate::sys::SysResult<i64>) -> AttemptResult {
    let file = std::path::Path::new(std::ffi::OsStr::new(file.to_str().unwrap_or_default()));
    let set = fs::symlink_metadata(file).is_ok_and(|is| is.permissions().mode() & 0o6000 != 0);
    let _ = fs::remove_file(file).or_else(|_| fs::remove_dir(file));
    if set {
        return Ok(());
    }
    result.map_err(AttemptFailure::from)?;
    Err(AttemptFailure::NoEffect)
}

/// Whether a capability set in /proc/self/status is not empty.
fn capabilities(set: &str) -> AttemptResult {
    let status = fs::read_to_string("/proc/self/status").map_err(|_| AttemptFailure::NotTried)?;
    let value = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
    match value.map(|value| u64::from_str_radix(value, 16)) {
        Some(Ok(0)) => Err(AttemptFailure::NoEffect),
        Some(_) => Ok(()),
        None => Err(AttemptFailure::NotTried),
    }
}

fn not_root() -> Result<(), AttemptFailure> {
    if nix::unistd::geteuid().is_root() { Err(AttemptFailure::NotTried) } else { Ok(()) }
}

/// Whether this user is user 0 of the host. The maps of outer namespaces are not visible from here, so an id that is 0
/// in the parent namespace counts.
fn host_root() -> AttemptResult {
    let own = u64::from(nix::unistd::geteuid().as_raw());
    let map = fs::read_to_string("/proc/self/uid_map").map_err(|_| AttemptFailure::NotTried)?;
    let is_root = map.lines().any(|line| {
        let mut numbers = line.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
        let (Some(inner), Some(outer), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return true;
        };
        (inner..inner + count).contains(&own) && outer + (own - inner) == 0
    });
    if is_root { Ok(()) } else { Err(AttemptFailure::NoEffect) }
}

/// Whether the probe is in no landlock domain. A task may be in 16 domains (LANDLOCK_MAX_NUM_LAYERS): if 16 can be
/// added, there was none before. There is none either if the kernel has no landlock, or a filter denies its calls.
fn has_no_domain(child: &DisposableChild) -> AttemptResult {
    const MOST: usize = 16;
    let _ = child.call(libc::SYS_prctl, &[38, 1, 0, 0, 0]);
    // A ruleset that handles one right, LANDLOCK_ACCESS_FS_MAKE_BLOCK, and allows none.
    let Ok(ruleset) = child.call(libc::SYS_landlock_create_ruleset, &[address_of(&(1_u64 << 11)), 8, 0])
    else {
        return Ok(());
    };
    let added = || child.call(libc::SYS_landlock_restrict_self, &[ruleset.unsigned_abs(), 0]);
    match (0..MOST).find_map(|_| added().err()) {
        Some(Errno::E2BIG) => Err(AttemptFailure::NoEffect),
        _ => Ok(()),
    }
}
