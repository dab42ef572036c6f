//! A child process that runs one job and exits: a fork that keeps only the descriptors of its job.

use super::{Errno, SysResult, clone, file, process};
use std::os::fd::{OwnedFd, RawFd};

/// The parent's handle of the child.
#[derive(Debug)]
pub struct WorkerProcess {
    /// The child's pid.
    pub pid: i32,
    /// The child's pidfd, to wait for its exit and to kill it.
    pub pidfd: OwnedFd,
}

/// Forks a child that runs `job` and exits with the status that it returns. The child has /dev/null as standard streams
/// and the descriptors of `kept`; all others are closed, and `job` must not use them.
///
/// # Errors
/// EBUSY for a process with several threads: another thread could hold a lock for which the child would wait forever.
/// Those of clone(2).
pub fn fork(kept: &[RawFd], job: impl FnOnce() -> u8) -> SysResult<WorkerProcess> {
    if process::thread_count()? != 1 {
        return Err(Errno::EBUSY);
    }
    // SAFETY: this process has one thread, as just checked, so every lock is free in the child as well.
    match unsafe { clone::fork_with_pidfd() }? {
        clone::CloneSide::Parent { pid, pidfd } => Ok(WorkerProcess { pid, pidfd }),
        clone::CloneSide::Child => run_worker(kept, job),
    }
}

fn run_worker(kept: &[RawFd], job: impl FnOnce() -> u8) -> ! {
    /// A panic must not unwind into the parent's code.
    struct ExitOnUnwind;
    impl Drop for ExitOnUnwind {
        fn drop(&mut self) {
            process::exit_now(101);
        }
    }
    let _never = ExitOnUnwind;
    process::reset_signals();
    // SAFETY: the owners of the other descriptors are never used or dropped: this process runs `job`, which has `kept`,
    // and exits.
    let closed = unsafe { file::close_others(0, kept.iter().copied()) };
    if closed.and_then(|()| file::fill_standard_streams()).is_err() {
        process::exit_now(101);
    }
    process::exit_now(job().into())
}
