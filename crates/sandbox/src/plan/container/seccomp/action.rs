//! Converts the actions and flags of a profile to those of the kernel.

use oci_spec::runtime::{LinuxSeccompAction as Action, LinuxSeccompFilterFlag as Flag};
use saggar_sys::error::{Code, Error, Result};

/// The largest error number that the kernel returns (MAX_ERRNO of linux/err.h): it lowers greater ones to this.
const LARGEST_ERRNO: u32 = 4095;

/// Returns `action` with its errno as SECCOMP_RET_* of seccomp(2). `path` is the JSON path, for errors.
pub(super) fn code(action: Action, errno: Option<u32>, path: &str, key: &str) -> Result<u32> {
    let data = |largest: u32| match errno.unwrap_or(libc::EPERM.cast_unsigned()) {
        data if data > largest => {
            let message =
                format!("{path}.{key} is {data}, and {largest} is the largest that the kernel takes");
            Err(Error::new(Code::Invalid, message)
                .hint("give an error number of errno(3), such as 1 for EPERM"))
        }
        data => Ok(data),
    };
    let code = match action {
        Action::ScmpActErrno => return Ok(libc::SECCOMP_RET_ERRNO | data(LARGEST_ERRNO)?),
        Action::ScmpActTrace => return Ok(libc::SECCOMP_RET_TRACE | data(libc::SECCOMP_RET_DATA)?),
        Action::ScmpActKill | Action::ScmpActKillThread => libc::SECCOMP_RET_KILL_THREAD,
        Action::ScmpActKillProcess => libc::SECCOMP_RET_KILL_PROCESS,
        Action::ScmpActTrap => libc::SECCOMP_RET_TRAP,
        Action::ScmpActNotify => libc::SECCOMP_RET_USER_NOTIF,
        Action::ScmpActLog => libc::SECCOMP_RET_LOG,
        Action::ScmpActAllow => libc::SECCOMP_RET_ALLOW,
    };
    match errno {
        None => Ok(code),
        Some(errno) => {
            let message = format!("{path}.{key} is {errno}, but the action {action} returns no error");
            let hint = "only SCMP_ACT_ERRNO and SCMP_ACT_TRACE take one: leave it out";
            Err(Error::new(Code::Invalid, message).hint(hint))
        }
    }
}

/// Returns the action for a call newer than the profile: ENOSYS, as from a kernel without that call, so that a C
/// library falls back to the older call; unless unlisted calls pass, or a listener decides on them.
pub(super) fn newer(default: u32) -> u32 {
    match default & libc::SECCOMP_RET_ACTION_FULL {
        libc::SECCOMP_RET_ALLOW
        | libc::SECCOMP_RET_LOG
        | libc::SECCOMP_RET_TRACE
        | libc::SECCOMP_RET_USER_NOTIF => default,
        _ => libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned(),
    }
}

/// Each flag, its name, and the kernel version that introduced it (seccomp(2)).
pub(super) const FLAGS: [(u64, &str, &str); 5] = [
    (libc::SECCOMP_FILTER_FLAG_TSYNC, "SECCOMP_FILTER_FLAG_TSYNC", "3.17"),
    (libc::SECCOMP_FILTER_FLAG_LOG, "SECCOMP_FILTER_FLAG_LOG", "4.14"),
    (libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW, "SECCOMP_FILTER_FLAG_SPEC_ALLOW", "4.17"),
    (libc::SECCOMP_FILTER_FLAG_NEW_LISTENER, "SECCOMP_FILTER_FLAG_NEW_LISTENER (SCMP_ACT_NOTIFY)", "5.0"),
    (libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV", "5.19"),
];

/// Returns the flags for loading the filter. Without `flags` in the profile that is SPEC_ALLOW, as with other runtimes;
/// an empty list means no flag.
pub(super) fn flags(given: Option<&[Flag]>, notify: bool, warnings: &mut Vec<String>) -> u64 {
    let Some(given) = given else {
        return libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW | listener(notify);
    };
    let mut flags = listener(notify);
    for flag in given {
        flags |= match flag {
            Flag::SeccompFilterFlagLog => libc::SECCOMP_FILTER_FLAG_LOG,
            Flag::SeccompFilterFlagTsync => libc::SECCOMP_FILTER_FLAG_TSYNC,
            Flag::SeccompFilterFlagSpecAllow => libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            // The kernel accepts this flag only with a listener.
            Flag::SeccompFilterFlagWaitKillableRecv if notify => libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
            Flag::SeccompFilterFlagWaitKillableRecv => {
                warnings.push(format!(
                    "linux.seccomp.flags: {flag} has no meaning, as no call has the action SCMP_ACT_NOTIFY"
                ));
                0
            }
        };
    }
    flags
}

fn listener(notify: bool) -> u64 {
    if notify { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 }
}
