//! Probes the system calls of a start, and the isolation features of the kernel.

use super::environment::{ProbeEnvironment, read_number};
use super::namespaces::attempt_errno;
use super::{HostCheck, remedy};
use saggar_sys::attempt::{AttemptOutcome, attempt};
use saggar_sys::file::{self, Resolve};
use saggar_sys::landlock::RulesetAttr;
use saggar_sys::{Errno, SysResult, keyring, landlock, mount, pidfd, process, seccomp};
use std::os::fd::AsFd;

/// The features that each ABI of landlock adds (landlock(7)).
const LANDLOCK_ABIS: [(u32, &str); 7] = [
    (1, "file rules"),
    (2, "renames and links between directories"),
    (3, "truncation"),
    (4, "TCP ports"),
    (5, "ioctl on devices"),
    (6, "scopes of signals and abstract sockets"),
    (7, "log control"),
];

/// Checks the kernel version and the system calls that need a newer one.
pub(crate) fn system_call_checks(environment: &ProbeEnvironment) -> Vec<HostCheck> {
    let version = nix::sys::utsname::uname()
        .map_or_else(|_| "unknown".to_owned(), |name| name.release().to_string_lossy().into_owned());
    let call = |name: &'static str, what: &str, since: &str, tried: SysResult<()>| match tried {
        Ok(()) => HostCheck::ok(name, what),
        Err(errno) => HostCheck::missing(name, format!("{what}: {}", errno.desc()))
            .with_remedy(remedy::newer_kernel(errno, since, environment)),
    };
    let here = || file::open(file::cwd(), c".", libc::O_PATH, 0, Resolve::InRoot);
    vec![
        HostCheck::ok("kernel", format!("Linux {version}")),
        call(
            "mount-api",
            "mounts by descriptors (fsopen, open_tree, mount_setattr)",
            "5.12",
            try_mount_api(),
        ),
        call("openat2", "paths that stay in a directory (openat2)", "5.6", here().map(drop)),
        call(
            "pidfd",
            "processes by descriptor (pidfd_open)",
            "5.3",
            pidfd::open(std::process::id().cast_signed()).map(drop),
        ),
        // No descriptor has this number: the call is tried and marks nothing.
        call("close-range", "descriptors closed at once (close_range)", "5.11", file::cloexec_from(i32::MAX)),
    ]
}

/// Tries the mount API. Without privileges the calls fail with EPERM, which proves that they exist.
fn try_mount_api() -> SysResult<()> {
    let there = |result: SysResult<()>| match result {
        Err(Errno::ENOSYS) => Err(Errno::ENOSYS),
        _ => Ok(()),
    };
    there(mount::new_filesystem(c"tmpfs", &[], 0).map(drop))?;
    there(mount::clone_tree_at(file::cwd(), c"/").map(drop))?;
    let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary)?;
    // No attribute is added, and the propagation becomes private: only missing privileges can make it fail.
    match attempt(0, |_| Ok(()), || mount::seal_tree(root.as_fd(), 0, false)) {
        AttemptOutcome::Fails(Errno::ENOSYS) => Err(Errno::ENOSYS),
        _ => Ok(()),
    }
}

/// Checks landlock, seccomp and keyrings.
pub(crate) fn isolation_checks(environment: &ProbeEnvironment) -> Vec<HostCheck> {
    let mut checks = landlock_checks(environment);
    checks.push(seccomp_check(environment));
    checks.push(keyring_check(environment));
    checks
}

fn landlock_checks(environment: &ProbeEnvironment) -> Vec<HostCheck> {
    const NAME: &str = "landlock";
    let abi = landlock::abi();
    if abi == 0 {
        return vec![
            HostCheck::missing(NAME, "the kernel has none, or it is off")
                .with_remedy(remedy::landlock(environment)),
        ];
    }
    let tried = attempt(
        0,
        |_| Ok(()),
        || {
            process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0)?;
            // Execution is handled and allowed nowhere: the ruleset has no rules, but entering the domain
            // is tested.
            let attr = RulesetAttr { access_fs: 1, ..RulesetAttr::default() };
            landlock::restrict_self(landlock::create_ruleset(&attr, abi)?.as_fd())
        },
    );
    let (has, lacks): (Vec<_>, Vec<_>) = LANDLOCK_ABIS.iter().partition(|(level, _)| *level <= abi);
    let words = |levels: Vec<(u32, &str)>| {
        levels.iter().map(|(level, what)| format!("{level} {what}")).collect::<Vec<_>>().join(", ")
    };
    let (has, lacks) = (words(has), words(lacks));
    let check = match tried {
        AttemptOutcome::Works => HostCheck::ok(NAME, format!("ABI {abi}: {has}")),
        failed => {
            let why = attempt_errno(failed).desc();
            let remedy = match failed {
                AttemptOutcome::NoChild(errno) => remedy::newer_kernel(errno, "5.3", environment),
                _ => remedy::landlock(environment),
            };
            HostCheck::missing(NAME, format!("ABI {abi}, and no domain can be entered: {why}"))
                .with_remedy(remedy)
        }
    };
    let scopes = match abi {
        0..6 => HostCheck::degraded("landlock-scope", format!("not before ABI 6; still to come: {lacks}"))
            .with_remedy("boot Linux 6.12 or later"),
        _ => HostCheck::ok("landlock-scope", "signals and abstract sockets of the host are out of reach"),
    };
    vec![check, scopes]
}

fn seccomp_check(environment: &ProbeEnvironment) -> HostCheck {
    const NAME: &str = "seccomp";
    let filter = seccomp::program(seccomp::FilterProfile::Agent);
    let tried = attempt(
        0,
        |_| Ok(()),
        || {
            process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0)?;
            seccomp::load(filter).map_err(Errno::from_raw)
        },
    );
    match tried {
        AttemptOutcome::Works => {
            HostCheck::ok(NAME, format!("the filter of {} instructions is taken", filter.len()))
        }
        failed => {
            let errno = attempt_errno(failed);
            let remedy = match errno {
                Errno::ENOSYS | Errno::EINVAL if !environment.filtered => {
                    "boot a kernel that was built with CONFIG_SECCOMP_FILTER=y".to_owned()
                }
                _ => remedy::newer_kernel(errno, "3.17", environment),
            };
            HostCheck::missing(NAME, format!("the filter is not taken: {}", errno.desc())).with_remedy(remedy)
        }
    }
}

fn keyring_check(environment: &ProbeEnvironment) -> HostCheck {
    const NAME: &str = "keyring";
    let quota =
        key_quota().map_or_else(String::new, |(used, most)| format!("; {used} of {most} keys are in use"));
    match attempt(0, |_| Ok(()), keyring::join_new_session) {
        AttemptOutcome::Works => HostCheck::ok(NAME, format!("a session keyring of one's own{quota}")),
        failed => {
            let errno = attempt_errno(failed);
            HostCheck::degraded(NAME, format!("no session keyring: {}{quota}", errno.desc()))
                .with_remedy(remedy::keyring(errno, environment))
        }
    }
}

/// The number of keys in use and the quota (proc_key_users(5)); root has a separate quota.
fn key_quota() -> Option<(u64, u64)> {
    let uid = nix::unistd::geteuid();
    let text = std::fs::read_to_string("/proc/key-users").ok()?;
    let line =
        text.lines().find(|line| line.split(':').next().is_some_and(|id| id.trim() == uid.to_string()));
    let most = read_number(if uid.is_root() {
        "/proc/sys/kernel/keys/root_maxkeys"
    } else {
        "/proc/sys/kernel/keys/maxkeys"
    })?;
    let used = line.and_then(|line| line.split_whitespace().nth(3)?.split('/').next()?.parse().ok());
    Some((used.unwrap_or(0), most))
}
