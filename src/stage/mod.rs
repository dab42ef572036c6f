//! The child's side of a start.
//!
//! Who runs here: the process that clone3 made, forked from the single-threaded launcher, in its new
//! namespaces. At first it is nobody in them and waits for its id maps; then it has every capability over
//! the new user namespace and none over the host's, and walks the steps of the plan; with the last of
//! them it has no capability at all, and becomes pid 1 ([`init`]).
//!
//! No heap, no lock, no log: the launcher's memory was copied in the middle of whatever it did. Whatever
//! fails is told to the launcher as `{step, errno}`, and the process ends; the kernel takes the rest of
//! the sandbox with it.
#![allow(unsafe_code)]

pub mod beside;
pub mod block;
pub mod container;
pub mod copier;
pub mod init;
pub mod launcher;
mod network;
mod overlay;
pub mod ports;
mod program;
mod steps;
mod trampoline;
pub mod watcher;
pub mod wire;

use crate::plan::Plan;
use crate::sys::{Errno, SysResult, clone, process, scm};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::Report;

/// What the child is born with, all of it made by the launcher before the clone.
#[derive(Debug)]
pub struct Born<'a> {
    /// What to do.
    pub plan: &'a Plan,
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
pub fn bear(
    born: Born<'_>,
    ours: OwnedFd,
    cgroup: Option<BorrowedFd<'_>>,
) -> SysResult<(i32, OwnedFd, OwnedFd)> {
    if process::thread_count()? != 1 {
        return Err(Errno::EDEADLK);
    }
    // SAFETY: one thread, as just seen; the child runs `run`, which uses no heap.
    match unsafe { clone::clone3(born.plan.cloned(), cgroup)? } {
        clone::Side::Child => {
            // Our copy of the supervisor's end would keep the stream open after the supervisor's death.
            drop(ours);
            run(born)
        }
        clone::Side::Parent { pid, pidfd } => Ok((pid, pidfd, ours)),
    }
}

/// Walks the plan and becomes pid 1. Never returns.
fn run(born: Born<'_>) -> ! {
    let control = born.control.as_fd();
    // What the caller ignores, programs are not to inherit. Now, because the launcher is still at the id maps.
    process::reset_signal_actions();
    let trampoline = match steps::walk(&born) {
        Ok(trampoline) => trampoline,
        Err((step, errno)) => {
            let step = u32::try_from(step).unwrap_or(u32::MAX);
            let report = Report::StepFailed { step, errno: errno as i32 };
            let _ = scm::send(control, &report.encode(), &[]);
            process::exit_now(125);
        }
    };
    init::serve(born.control, trampoline, born.plan.program_filter)
}
