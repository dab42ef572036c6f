//! A child process that does one thing and ends: a fork that keeps the descriptors of its job and no others.

use super::{Errno, SysResult, clone, file, process};
use std::os::fd::{OwnedFd, RawFd};

/// The parent's side.
#[derive(Debug)]
pub struct Child {
    /// Its pid.
    pub pid: i32,
    /// Its end, and the way to kill it.
    pub pidfd: OwnedFd,
}

/// Forks a child that runs `job` and exits with the status that it returns. It has /dev/null for its standard streams,
/// the descriptors of `kept`, and no others: `job` must use none but these.
///
/// # Errors
/// EBUSY for a process with several threads: another one could hold a lock that the child would wait for forever.
/// Those of clone(2).
pub fn fork(kept: &[RawFd], job: impl FnOnce() -> u8) -> SysResult<Child> {
    if process::thread_count()? != 1 {
        return Err(Errno::EBUSY);
    }
    // SAFETY: one thread, as just checked, so that every lock is free in the child as well.
    match unsafe { clone::fork_with_pidfd() }? {
        clone::Side::Parent { pid, pidfd } => Ok(Child { pid, pidfd }),
        clone::Side::Child => live(kept, job),
    }
}

fn live(kept: &[RawFd], job: impl FnOnce() -> u8) -> ! {
    /// A panic must not unwind into the parent's code.
    struct Never;
    impl Drop for Never {
        fn drop(&mut self) {
            process::exit_now(101);
        }
    }
    let _never = Never;
    process::reset_signals();
    // SAFETY: what owns the others is never used or dropped: this process runs `job`, which has `kept`, and exits.
    let closed = unsafe { file::close_others(0, kept.iter().copied()) };
    if closed.and_then(|()| file::fill_standard_streams()).is_err() {
        process::exit_now(101);
    }
    process::exit_now(job().into())
}
