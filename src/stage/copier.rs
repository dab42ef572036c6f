//! Copies between a file that is a standard stream of the caller and the pipe that a program gets in its place
//! ([`crate::launch::streams`] says when).
//!
//! Who runs here: a fork of the supervisor, made before there is a sandbox, with the file, its end of the pipe and, for
//! input, a pipe whose end says that the program is gone. It has no capability, a landlock domain without rules and the
//! filter of file workers, and never looks at what it copies. It ends when there is no more to copy.

use crate::sys::confine::{self, Domain, Kept};
use crate::sys::seccomp::{self, Outside};
use crate::sys::{Errno, SysResult, clone, file, pidfd, process};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Whence, lseek, read, write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes that are copied at once: what a pipe holds.
const CHUNK: usize = 64 << 10;

/// Which way it copies.
#[derive(Debug)]
pub enum Way {
    /// From the file to a pipe that does not block, until the other end of `stop` is closed. The file's offset is then
    /// that of what is in the pipe.
    In {
        /// Ends it.
        stop: OwnedFd,
    },
    /// From the pipe to the file, until nobody can write to the pipe any more.
    Out,
}

/// A process that copies.
#[derive(Debug)]
pub struct Copier {
    pidfd: OwnedFd,
}

impl Copier {
    /// Starts it. The caller has one thread.
    ///
    /// # Errors
    /// The error number of clone3(2).
    pub fn start(file: BorrowedFd<'_>, pipe: OwnedFd, way: Way) -> SysResult<Self> {
        if process::thread_count()? != 1 {
            return Err(Errno::EDEADLK);
        }
        // SAFETY: one thread, as just seen; the child runs `copy`, which uses no heap.
        match unsafe { clone::clone3(0, None)? } {
            clone::Side::Child => match copy(file, pipe.as_fd(), &way) {
                Ok(()) => process::exit_now(0),
                Err(errno) => process::exit_now(errno as i32),
            },
            clone::Side::Parent { pidfd, .. } => Ok(Copier { pidfd }),
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// What it could not copy for.
    pub fn wait(self) -> SysResult<()> {
        match pidfd::reap(self.pidfd.as_fd())? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, errno) => Err(Errno::from_raw(errno)),
            _ => Err(Errno::EINTR),
        }
    }
}

fn copy(file: BorrowedFd<'_>, pipe: BorrowedFd<'_>, way: &Way) -> SysResult<()> {
    let stop = match way {
        Way::In { stop } => Some(stop.as_fd()),
        Way::Out => None,
    };
    keep_only([Some(file), Some(pipe), stop])?;
    match stop {
        Some(stop) => copy_in(file, pipe, stop),
        None => copy_out(pipe, file),
    }
}

/// Keeps these descriptors, and no right. A key of the terminal is not meant for it.
fn keep_only(kept: [Option<BorrowedFd<'_>>; 3]) -> SysResult<()> {
    process::block_signals()?;
    nix::unistd::setsid()?;
    process::set_name(c"saggar:copy")?;
    // SAFETY: nothing of the others is used in this process.
    unsafe { file::close_others(0, kept.into_iter().flatten().map(|fd| fd.as_raw_fd()))? };
    let nothing = Kept { domain: Some(Domain::new(0)?), ..Kept::default() };
    confine::give_up(nothing).map_err(|(_, errno)| errno)?;
    seccomp::load(Outside::FileWorker.program()).map_err(Errno::from_raw)
}

/// What the pipe did not take is given back: the caller reads on where the program stopped.
fn copy_in(file: BorrowedFd<'_>, pipe: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> SysResult<()> {
    let mut buffer = [0; CHUNK];
    loop {
        let mut rest = match read(file, &mut buffer)? {
            0 => return Ok(()),
            count => &buffer[..count],
        };
        while !rest.is_empty() {
            let written = if is_stopped(stop, pipe)? { Err(Errno::EPIPE) } else { write(pipe, rest) };
            match written {
                Ok(count) => rest = &rest[count..],
                Err(Errno::EAGAIN) => {}
                Err(_) => {
                    let back = i64::try_from(rest.len()).map_err(|_| Errno::EOVERFLOW)?;
                    return lseek(file, -back, Whence::SeekCur).map(drop);
                }
            }
        }
    }
}

/// Waits until the pipe takes something; true when there is no program any more.
fn is_stopped(stop: BorrowedFd<'_>, pipe: BorrowedFd<'_>) -> SysResult<bool> {
    let mut waits = [PollFd::new(stop, PollFlags::empty()), PollFd::new(pipe, PollFlags::POLLOUT)];
    poll(&mut waits, PollTimeout::NONE)?;
    Ok(waits[0].any().unwrap_or(true))
}

fn copy_out(pipe: BorrowedFd<'_>, file: BorrowedFd<'_>) -> SysResult<()> {
    let mut buffer = [0; CHUNK];
    loop {
        match read(pipe, &mut buffer)? {
            0 => return Ok(()),
            count => file::write_all(file, &buffer[..count])?,
        }
    }
}
