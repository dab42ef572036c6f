//! Hints for failed steps of an agent's sandbox, by step and error number.

use crate::host::probe::remedy::MASKED_PROC_REMEDY;
use crate::plan::agent::AgentPlan;
use crate::plan::agent::step::{AgentStep, BindSource};
use saggar_sys::Errno;
use saggar_sys::error::{Code, Error};

/// Returns the error for a step that failed in the child.
pub fn step_failed(plan: &AgentPlan, index: u32, errno: i32) -> Error {
    let errno = Errno::from_raw(errno);
    let steps = plan.steps.as_slice();
    let Some(step) = usize::try_from(index).ok().and_then(|index| steps.get(index)) else {
        return Error::system("start the sandbox: a step that is not in the plan", errno.desc());
    };
    let message = format!("step {} of {}: {step}: {}", index + 1, steps.len(), errno.desc());
    let error = Error::new(Code::System, message);
    match for_step(step, errno) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn for_step(step: &AgentStep, errno: Errno) -> Option<&'static str> {
    Some(match (step, errno) {
        (AgentStep::NewRoot { .. } | AgentStep::Tmpfs { .. }, Errno::EPERM | Errno::EACCES) => {
            "a user namespace was made, and has no right to mount: AppArmor restricts it; install the profile of \
             saggar (saggar doctor shows how)"
        }
        (AgentStep::Overlay { .. }, Errno::ENODEV) => "the kernel has no overlayfs: modprobe overlay",
        (AgentStep::Overlay { .. }, Errno::EINVAL | Errno::ELOOP) => {
            "the file system of the work tree cannot be the lower layer of an overlay, or something is mounted in it: \
             name a copy of it on another file system"
        }
        (AgentStep::Overlay { .. }, Errno::EOPNOTSUPP) => {
            "the file system that takes the changes has no user attributes (tmpfs has them since Linux 6.6)"
        }
        (AgentStep::Proc { .. }, Errno::EPERM) => MASKED_PROC_REMEDY,
        (AgentStep::Bind { source: BindSource::Checked { .. }, .. }, Errno::ESTALE) => {
            "the path was exchanged while saggar started: something else works on this directory"
        }
        (AgentStep::Bind { .. } | AgentStep::Pin { .. }, Errno::ELOOP) => {
            "a component of the path inside is a symbolic link: name the real path"
        }
        (AgentStep::Bind { .. }, Errno::ENOENT) => {
            "the destination must exist in the tree that is mounted there, or lie outside of it"
        }
        (AgentStep::Bind { .. }, Errno::ENOTDIR) => "a file and a directory cannot be mounted on one another",
        (AgentStep::BecomeUser { .. }, Errno::EINVAL) => "the id is not in the map of the sandbox",
        (AgentStep::Hostname { .. }, Errno::EINVAL) => "a host name has at most 64 bytes",
        (AgentStep::NewKeyring { .. }, Errno::EDQUOT) => {
            "the user's key quota is used up: see kernel.keys.maxkeys, or use --prefer keyring"
        }
        (AgentStep::ChangeRoot, Errno::EINVAL) => {
            "the root of this process is not a mount point: saggar was started in a chroot"
        }
        (AgentStep::JoinNetwork, Errno::ENOSPC) => {
            "the limit of network namespaces is reached: raise sysctl user.max_net_namespaces, or use --prefer \
             network to start with weaker isolation"
        }
        (AgentStep::JoinNetwork, Errno::EPERM | Errno::EINVAL) => {
            "no network namespace is available: see saggar doctor, or use --prefer network to start with weaker \
             isolation"
        }
        (AgentStep::Landlock, Errno::E2BIG) => "there are 16 landlock domains around saggar already",
        _ => return None,
    })
}
