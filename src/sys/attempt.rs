//! Trying something in a child that is thrown away: whether the kernel does it for this user is found by
//! doing it, and the child takes the traces with it.

use super::{Errno, SysResult, clone, pidfd, process};
use nix::sys::wait::WaitStatus;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It works.
    Works,
    /// The child could not be made (clone3(2)), or not be prepared.
    NoChild(Errno),
    /// The child was there, and the thing itself failed.
    Fails(Errno),
    /// The child was killed by this signal.
    Killed(i32),
}

impl Outcome {
    /// Whether it works.
    pub fn works(self) -> bool {
        self == Outcome::Works
    }
}

/// Runs `job` in a child with these namespaces (flags of clone3(2)) and tells what came of it. `prepare`
/// runs here, with the child's pid, while the child waits: that is where its id maps are written.
///
/// The caller must have one thread: otherwise nothing is tried, and the outcome is `NoChild(EBUSY)`.
pub fn attempt(
    flags: u64,
    prepare: impl FnOnce(i32) -> SysResult<()>,
    job: impl FnOnce() -> SysResult<()>,
) -> Outcome {
    match try_it(flags, prepare, job) {
        Ok(outcome) => outcome,
        Err(errno) => Outcome::NoChild(errno),
    }
}

fn try_it(
    flags: u64,
    prepare: impl FnOnce(i32) -> SysResult<()>,
    job: impl FnOnce() -> SysResult<()>,
) -> SysResult<Outcome> {
    if process::thread_count()? != 1 {
        return Err(Errno::EBUSY);
    }
    let (gate, opener) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: one thread, as just checked, so that every lock is free in the child as well.
    match unsafe { clone::clone3(flags, None) }? {
        clone::Side::Child => {
            drop(opener);
            run_and_exit(gate, job)
        }
        clone::Side::Parent { pid, pidfd } => {
            drop(gate);
            if let Err(errno) = prepare(pid) {
                let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
                pidfd::reap(pidfd.as_fd())?;
                return Err(errno);
            }
            // A child that is gone already says why by its status.
            let _ = File::from(opener).write_all(b"g");
            Ok(match pidfd::reap(pidfd.as_fd())? {
                WaitStatus::Exited(_, 0) => Outcome::Works,
                WaitStatus::Exited(_, status) => Outcome::Fails(Errno::from_raw(status)),
                WaitStatus::Signaled(_, signal, _) => Outcome::Killed(signal as i32),
                _ => Outcome::Fails(Errno::EIO),
            })
        }
    }
}

/// Every error number fits in an exit status.
fn run_and_exit(gate: OwnedFd, job: impl FnOnce() -> SysResult<()>) -> ! {
    /// A panic must not unwind into the parent's code.
    struct Never;
    impl Drop for Never {
        fn drop(&mut self) {
            process::exit_now(Errno::EIO as i32);
        }
    }
    let _never = Never;
    let let_go = File::from(gate).read(&mut [0]).is_ok_and(|count| count == 1);
    let done = if let_go { job() } else { Err(Errno::ECANCELED) };
    process::exit_now(done.map_or_else(|errno| errno as i32, |()| 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The harness has threads: a child of it could meet a lock that nobody holds.
    #[test]
    fn nothing_is_tried_beside_other_threads() {
        let outcome = std::thread::spawn(|| attempt(0, |_| Ok(()), || Ok(()))).join().unwrap();
        assert_eq!(outcome, Outcome::NoChild(Errno::EBUSY));
        assert!(!outcome.works());
    }
}
