//! Calls of the kernel that a start makes, and the walls that it gives.

use super::namespaces::errno;
use super::surroundings::{Surroundings, number};
use super::{Check, cure};
use crate::sys::attempt::{Outcome, attempt};
use crate::sys::file::{self, Resolve};
use crate::sys::landlock::RulesetAttr;
use crate::sys::{Errno, SysResult, keyring, landlock, mount, pidfd, process, seccomp};
use std::os::fd::AsFd;

/// What each ABI of landlock brings (landlock(7)).
const LANDLOCK: [(u32, &str); 7] = [
    (1, "file rules"),
    (2, "renames and links between directories"),
    (3, "truncation"),
    (4, "TCP ports"),
    (5, "ioctl on devices"),
    (6, "scopes of signals and abstract sockets"),
    (7, "log control"),
];

/// The version, and the calls that need one.
pub fn calls(around: &Surroundings) -> Vec<Check> {
    let version = nix::sys::utsname::uname()
        .map_or_else(|_| "unknown".to_owned(), |name| name.release().to_string_lossy().into_owned());
    let call = |name: &'static str, what: &str, since: &str, tried: SysResult<()>| match tried {
        Ok(()) => Check::ok(name, what),
        Err(errno) => Check::missing(name, format!("{what}: {}", errno.desc()))
            .cure(cure::new_call(errno, since, around)),
    };
    let here = || file::open(file::cwd(), c".", libc::O_PATH, 0, Resolve::InRoot);
    vec![
        Check::ok("kernel", format!("Linux {version}")),
        call("mount-api", "mounts by descriptors (fsopen, open_tree, mount_setattr)", "5.12", mount_api()),
        call("openat2", "paths that stay in a directory (openat2)", "5.6", here().map(drop)),
        call(
            "pidfd",
            "processes by descriptor (pidfd_open)",
            "5.3",
            pidfd::open(std::process::id().cast_signed()).map(drop),
        ),
        // No descriptor has such a number: the call is tried, and marks nothing.
        call("close-range", "descriptors closed at once (close_range)", "5.11", file::cloexec_from(i32::MAX)),
    ]
}

/// Whether the calls are there: without rights they answer EPERM, which is an answer.
fn mount_api() -> SysResult<()> {
    let there = |result: SysResult<()>| match result {
        Err(Errno::ENOSYS) => Err(Errno::ENOSYS),
        _ => Ok(()),
    };
    there(mount::new_filesystem(c"tmpfs", &[], 0).map(drop))?;
    there(mount::clone_tree_at(file::cwd(), c"/").map(drop))?;
    let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary)?;
    // Nothing is added, and privately so: the answer is that of the rights alone.
    match attempt(0, |_| Ok(()), || mount::seal_tree(root.as_fd(), 0, false)) {
        Outcome::Fails(Errno::ENOSYS) => Err(Errno::ENOSYS),
        _ => Ok(()),
    }
}

/// Landlock, the filter, the keyring.
pub fn walls(around: &Surroundings) -> Vec<Check> {
    let mut checks = landlock_checks(around);
    checks.push(seccomp_check(around));
    checks.push(keyring_check(around));
    checks
}

fn landlock_checks(around: &Surroundings) -> Vec<Check> {
    const NAME: &str = "landlock";
    let abi = landlock::abi();
    if abi == 0 {
        return vec![Check::missing(NAME, "the kernel has none, or it is off").cure(cure::landlock(around))];
    }
    let tried = attempt(
        0,
        |_| Ok(()),
        || {
            process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0)?;
            // Execution is handled and granted nowhere: an empty domain that is entered all the same.
            let attr = RulesetAttr { access_fs: 1, ..RulesetAttr::default() };
            landlock::restrict_self(landlock::create_ruleset(&attr, abi)?.as_fd())
        },
    );
    let (has, lacks): (Vec<_>, Vec<_>) = LANDLOCK.iter().partition(|(level, _)| *level <= abi);
    let words = |levels: Vec<(u32, &str)>| {
        levels.iter().map(|(level, what)| format!("{level} {what}")).collect::<Vec<_>>().join(", ")
    };
    let (has, lacks) = (words(has), words(lacks));
    let wall = match tried {
        Outcome::Works => Check::ok(NAME, format!("ABI {abi}: {has}")),
        failed => {
            let why = errno(failed).desc();
            let cure = match failed {
                Outcome::NoChild(errno) => cure::new_call(errno, "5.3", around),
                _ => cure::landlock(around),
            };
            Check::missing(NAME, format!("ABI {abi}, and no domain can be entered: {why}")).cure(cure)
        }
    };
    let scopes = match abi {
        0..6 => Check::degraded("landlock-scope", format!("not before ABI 6; still to come: {lacks}"))
            .cure("boot Linux 6.12 or later"),
        _ => Check::ok("landlock-scope", "signals and abstract sockets of the host are out of reach"),
    };
    vec![wall, scopes]
}

fn seccomp_check(around: &Surroundings) -> Check {
    const NAME: &str = "seccomp";
    let filter = seccomp::program(seccomp::Profile::Agent);
    let tried = attempt(
        0,
        |_| Ok(()),
        || {
            process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0)?;
            seccomp::load(filter).map_err(Errno::from_raw)
        },
    );
    match tried {
        Outcome::Works => Check::ok(NAME, format!("the filter of {} instructions is taken", filter.len())),
        failed => {
            let errno = errno(failed);
            let cure = match errno {
                Errno::ENOSYS | Errno::EINVAL if !around.filtered => {
                    "boot a kernel that was built with CONFIG_SECCOMP_FILTER=y".to_owned()
                }
                _ => cure::new_call(errno, "3.17", around),
            };
            Check::missing(NAME, format!("the filter is not taken: {}", errno.desc())).cure(cure)
        }
    }
}

fn keyring_check(around: &Surroundings) -> Check {
    const NAME: &str = "keyring";
    let quota =
        quota().map_or_else(String::new, |(used, most)| format!("; {used} of {most} keys are in use"));
    match attempt(0, |_| Ok(()), keyring::join_new_session) {
        Outcome::Works => Check::ok(NAME, format!("a session keyring of one's own{quota}")),
        failed => {
            let errno = errno(failed);
            Check::degraded(NAME, format!("no session keyring: {}{quota}", errno.desc()))
                .cure(cure::keyring(errno, around))
        }
    }
}

/// Keys in use and keys allowed (proc_key_users(5)); root has a quota of its own.
fn quota() -> Option<(u64, u64)> {
    let uid = nix::unistd::geteuid();
    let text = std::fs::read_to_string("/proc/key-users").ok()?;
    let line =
        text.lines().find(|line| line.split(':').next().is_some_and(|id| id.trim() == uid.to_string()));
    let most = number(if uid.is_root() {
        "/proc/sys/kernel/keys/root_maxkeys"
    } else {
        "/proc/sys/kernel/keys/maxkeys"
    })?;
    let used = line.and_then(|line| line.split_whitespace().nth(3)?.split('/').next()?.parse().ok());
    Some((used.unwrap_or(0), most))
}
