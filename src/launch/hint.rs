//! What to do about a failed start: one table, keyed by what was done and by the error number.

use crate::error::{Code, Error};
use crate::plan::Plan;
use crate::plan::step::{Source, Step};
use crate::sys::Errno;

/// The error for a clone3(2) that failed.
pub fn clone_failed(errno: Errno) -> Error {
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

/// The error for a map that the kernel did not take.
pub fn map_failed(name: &str, text: &str, errno: Errno) -> Error {
    let message = format!("write {:?} to {name} of the sandbox: {}", text.trim_end(), errno.desc());
    Error::new(Code::Unsupported, message)
        .hint("the ids are not ours to map: see id_range in saggar-policy(5), and saggar doctor")
}

/// The error for a step that failed in the child.
pub fn step_failed(plan: &Plan, index: u32, errno: i32) -> Error {
    let errno = Errno::from_raw(errno);
    let steps = plan.steps.as_slice();
    let Some(step) = usize::try_from(index).ok().and_then(|index| steps.get(index)) else {
        return Error::system("start the sandbox: a step that is not in the plan", errno.desc());
    };
    let message = format!("step {} of {}: {step}: {}", index + 1, steps.len(), errno.desc());
    let error = Error::new(Code::System, message);
    match hint_for(step, errno) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn hint_for(step: &Step, errno: Errno) -> Option<&'static str> {
    Some(match (step, errno) {
        (Step::NewRoot { .. } | Step::Tmpfs { .. }, Errno::EPERM | Errno::EACCES) => {
            "a user namespace was made, and has no right to mount: AppArmor restricts it; install the profile of \
             saggar (saggar doctor says how)"
        }
        (Step::Overlay { .. }, Errno::ENODEV) => "the kernel has no overlayfs: modprobe overlay",
        (Step::Overlay { .. }, Errno::EINVAL | Errno::ELOOP) => {
            "the file system of the work tree cannot be the lower layer of an overlay, or something is mounted in it: \
             name a copy of it on another file system"
        }
        (Step::Overlay { .. }, Errno::EOPNOTSUPP) => {
            "the file system that takes the changes has no user attributes (tmpfs has them since Linux 6.6)"
        }
        (Step::Proc { .. }, Errno::EPERM) => {
            "the kernel gives a fresh /proc only where the host's own is wholly visible: this host is a container \
             whose /proc is masked; run it with an unmasked /proc"
        }
        (Step::Bind { source: Source::Checked { .. }, .. }, Errno::ESTALE) => {
            "the path was exchanged while saggar started: something else works on this directory"
        }
        (Step::Bind { .. } | Step::Pin { .. }, Errno::ELOOP) => {
            "a component of the path inside is a symbolic link: name the real path"
        }
        (Step::Bind { .. }, Errno::ENOENT) => {
            "the destination must exist in the tree that is mounted there, or lie outside of it"
        }
        (Step::Bind { .. }, Errno::ENOTDIR) => "a file and a directory cannot be mounted on one another",
        (Step::BecomeUser { .. }, Errno::EINVAL) => "the id is not in the map of the sandbox",
        (Step::Hostname { .. }, Errno::EINVAL) => "a host name has at most 64 bytes",
        (Step::NewKeyring { .. }, Errno::EDQUOT) => {
            "the user's key quota is used up: see kernel.keys.maxkeys, or say --prefer keyring"
        }
        (Step::ChangeRoot, Errno::EINVAL) => {
            "the root of this process is not a mount point: saggar was started in a chroot"
        }
        (Step::JoinNetwork, Errno::ENOSPC) => {
            "the limit of network namespaces is reached: raise sysctl user.max_net_namespaces, or say --prefer network to \
             go on with less of a wall"
        }
        (Step::JoinNetwork, Errno::EPERM | Errno::EINVAL) => {
            "no network namespace is to be had: see saggar doctor, or say --prefer network to go on with less of a wall"
        }
        (Step::Landlock, Errno::E2BIG) => "there are 16 landlock domains around saggar already",
        _ => return None,
    })
}
