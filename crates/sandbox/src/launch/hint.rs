//! Hints for a start that failed before the child ran its steps, by error number. Hints for a failed step are in
//! [`super::agent::hint`] and in `container/hint.rs`, one table for each list of steps.

use saggar_sys::Errno;
use saggar_sys::error::{Code, Error};

/// Returns the error for a failed clone3(2).
pub(super) fn clone_failed(errno: Errno) -> Error {
    let hint = match errno {
        Errno::EPERM => {
            "user namespaces are refused: on Ubuntu install the AppArmor profile of saggar, on Debian see \
             sysctl kernel.unprivileged_userns_clone; in a container allow clone(CLONE_NEWUSER)"
        }
        Errno::ENOSPC => {
            "the limit of namespaces is reached: raise sysctl user.max_user_namespaces (it may be 0)"
        }
        Errno::EAGAIN => "the limit of processes is reached: see ulimit -u and the pids limit of this cgroup",
        Errno::ENOSYS => "clone3 is missing: the kernel is older than 5.3, or a seccomp filter hides it",
        Errno::EDEADLK => {
            "saggar has more than one thread, and a fork copies one alone: this is a bug of saggar"
        }
        Errno::ENOENT => "saggar needs /proc: mount it",
        Errno::EBUSY | Errno::EOPNOTSUPP => "the cgroup cannot take processes: see saggar doctor",
        _ => "see saggar doctor",
    };
    Error::new(Code::Unsupported, format!("make the namespaces of the sandbox: {}", errno.desc())).hint(hint)
}

/// Returns the error for an id map that the kernel rejected.
pub(super) fn map_failed(name: &str, text: &str, errno: Errno) -> Error {
    let message = format!("write {:?} to {name} of the sandbox: {}", text.trim_end(), errno.desc());
    Error::new(Code::Unsupported, message)
        .hint("the ids are not ours to map: see id_range in saggar-policy(5), and saggar doctor")
}
