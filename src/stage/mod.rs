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

pub mod block;
pub mod init;
mod program;
mod steps;
pub mod watcher;
pub mod wire;

use crate::plan::Plan;
use crate::sys::{process, scm};
use std::os::fd::{AsFd, OwnedFd};
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

/// Walks the plan and becomes pid 1. Never returns.
///
/// # Safety
/// Only for the child of [`crate::sys::clone::clone3`], whose parent had one thread.
pub unsafe fn run(born: Born<'_>) -> ! {
    let control = born.control.as_fd();
    match steps::walk(&born) {
        Ok(()) => {}
        Err((step, errno)) => {
            let step = u32::try_from(step).unwrap_or(u32::MAX);
            let report = Report::StepFailed { step, errno: errno as i32 };
            let _ = scm::send(control, &report.encode(), &[]);
            process::exit_now(125);
        }
    }
    init::serve(born.control, born.plan.program_filter)
}
