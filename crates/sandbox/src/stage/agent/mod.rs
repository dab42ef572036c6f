//! The child's side of the start of an agent's sandbox.
//!
//! Who runs here: the process that clone3 made, forked from the single-threaded launcher, in its new
//! namespaces. At first it is nobody in them and waits for its id maps; then it has every capability over
//! the new user namespace and none over the host's, and walks the steps of the plan; with the last of
//! them it has no capability at all, and becomes pid 1 ([`init`]).

pub mod copier;
mod hide;
pub mod init;
pub mod launcher;
mod network;
mod overlay;
pub mod ports;
mod program;
pub mod program_args;
mod steps;
mod trampoline;
pub mod wire;

use crate::plan::agent::AgentPlan;
use saggar_sys::spawn;
use saggar_sys::{SysResult, process, scm};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::InitReport;

/// What the child is born with, all of it made by the launcher before the clone.
#[derive(Debug)]
pub struct AgentChildArgs<'a> {
    /// What to do.
    pub plan: &'a AgentPlan,
    /// The table of opened files that steps name by slot.
    pub files: &'a [OwnedFd],
    /// The child's end of the socketpair to the supervisor.
    pub control: OwnedFd,
    /// A pidfd of the supervisor.
    pub supervisor: OwnedFd,
}

/// Clones the child, in `cgroup` when there is one: its pid, a pidfd, and `ours`, the supervisor's end of the
/// socketpair. Returns in the parent only.
///
/// # Errors
/// The error number of clone3(2); EDEADLK when this process has more than one thread, whose locks would stay
/// locked in the child for ever.
pub fn spawn(
    args: AgentChildArgs<'_>,
    ours: OwnedFd,
    cgroup: Option<BorrowedFd<'_>>,
) -> SysResult<(i32, OwnedFd, OwnedFd)> {
    spawn::spawn(args.plan.clone_flags(), cgroup, ours, move || run(args))
}

/// Walks the plan and becomes pid 1. Never returns.
fn run(args: AgentChildArgs<'_>) -> ! {
    let control = args.control.as_fd();
    // What the caller ignores, programs are not to inherit. Now, because the launcher is still at the id maps.
    process::reset_signal_actions();
    // What this process makes has the modes of its steps; the caller's mask is for programs.
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let trampoline = match steps::walk(&args) {
        Ok(trampoline) => trampoline,
        Err((step, errno)) => {
            let step = u32::try_from(step).unwrap_or(u32::MAX);
            let report = InitReport::StepFailed { step, errno: errno as i32 };
            let _ = scm::send(control, &report.encode(), &[]);
            process::exit_now(125);
        }
    };
    init::serve(args.control, trampoline, program::ProgramStart { filter: args.plan.program_filter, umask })
}
