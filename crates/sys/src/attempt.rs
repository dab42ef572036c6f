//! Tests a kernel feature in a disposable child. The child uses the feature, so the result holds for this user on this
//! kernel; the child's exit removes all traces.

use super::{Errno, SysResult, clone, pidfd, process};
use nix::sys::wait::WaitStatus;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// The result of [`attempt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// `job` succeeded.
    Works,
    /// The child could not be created (clone3(2)) or prepared.
    NoChild(Errno),
    /// The child ran and `job` returned this error.
    Fails(Errno),
    /// This signal killed the child.
    Killed(i32),
}

impl AttemptOutcome {
    /// Whether the outcome is [`AttemptOutcome::Works`].
    pub fn works(self) -> bool {
        self == AttemptOutcome::Works
    }
}

/// Runs `job` in a child with new namespaces (`flags` of clone3(2)) and returns the outcome. `prepare` runs in the
/// caller with the child's pid while the child waits; it writes the child's id maps.
///
/// The caller must have one thread. Otherwise no child is created, and the outcome is `NoChild(EBUSY)`.
pub fn attempt(
    flags: u64,
    prepare: impl FnOnce(i32) -> SysResult<()>,
    job: impl FnOnce() -> SysResult<()>,
) -> AttemptOutcome {
    match try_in_child(flags, prepare, job) {
        Ok(outcome) => outcome,
        Err(errno) => AttemptOutcome::NoChild(errno),
    }
}

fn try_in_child(
    flags: u64,
    prepare: impl FnOnce(i32) -> SysResult<()>,
    job: impl FnOnce() -> SysResult<()>,
) -> SysResult<AttemptOutcome> {
    if process::thread_count()? != 1 {
        return Err(Errno::EBUSY);
    }
    let (barrier, opener) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: this process has one thread, as just checked, so every lock is free in the child as well.
    match unsafe { clone::clone3(flags, None) }? {
        clone::CloneSide::Child => {
            drop(opener);
            run_and_exit(barrier, job)
        }
        clone::CloneSide::Parent { pid, pidfd } => {
            drop(barrier);
            if let Err(errno) = prepare(pid) {
                let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
                pidfd::reap(pidfd.as_fd())?;
                return Err(errno);
            }
            // If the child has already exited, its status holds the reason.
            let _ = File::from(opener).write_all(b"g");
            Ok(match pidfd::reap(pidfd.as_fd())? {
                WaitStatus::Exited(_, 0) => AttemptOutcome::Works,
                WaitStatus::Exited(_, status) => AttemptOutcome::Fails(Errno::from_raw(status)),
                WaitStatus::Signaled(_, signal, _) => AttemptOutcome::Killed(signal as i32),
                _ => AttemptOutcome::Fails(Errno::EIO),
            })
        }
    }
}

/// Exits with the error number of `job`; every error number fits in an exit status.
fn run_and_exit(barrier: OwnedFd, job: impl FnOnce() -> SysResult<()>) -> ! {
    /// A panic must not unwind into the parent's code.
    struct ExitOnUnwind;
    impl Drop for ExitOnUnwind {
        fn drop(&mut self) {
            process::exit_now(Errno::EIO as i32);
        }
    }
    let _never = ExitOnUnwind;
    let released = File::from(barrier).read(&mut [0]).is_ok_and(|count| count == 1);
    let done = if released { job() } else { Err(Errno::ECANCELED) };
    process::exit_now(done.map_or_else(|errno| errno as i32, |()| 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test harness has several threads: its child could wait for a lock that no thread of the child holds.
    #[test]
    fn nothing_is_tried_beside_other_threads() {
        let outcome = std::thread::spawn(|| attempt(0, |_| Ok(()), || Ok(()))).join().unwrap();
        assert_eq!(outcome, AttemptOutcome::NoChild(Errno::EBUSY));
        assert!(!outcome.works());
    }
}
