//! Copies between a file that is a standard stream of the caller and the pipe that a program gets in its place
//! ([`crate::launch::agent::streams`] says when).
//!
//! Who runs here: a fork of the supervisor, made before there is a sandbox, with the file, its end of the pipe and, for
//! input, a pipe whose end says that the program is gone. It has no capability, a landlock domain without rules and the
//! filter of file workers, and never looks at what it copies. It ends when there is no more to copy.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Whence, lseek, read, write};
use saggar_sys::confine::{self, LandlockDomain, LandlockSummary, ProcessRights, RetainedRights};
use saggar_sys::seccomp::{self, HostProcessFilter};
use saggar_sys::spawn;
use saggar_sys::{Errno, SysResult, file, pidfd, process};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What it is left with.
pub const RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:copy",
    capabilities: 0,
    filter: HostProcessFilter::FileWorker,
    landlock: Some(LandlockSummary { min_abi: 0, allows: "nothing" }),
};

/// Bytes that are copied at once: what a pipe holds.
const CHUNK: usize = 64 << 10;

/// Which way it copies.
#[derive(Debug)]
pub(crate) enum CopyDirection {
    /// From the file to a pipe that does not block, until the other end of `stop` is closed. The file's offset is then
    /// that of what is in the pipe.
    Input {
        /// Ends it.
        stop: OwnedFd,
    },
    /// From the pipe to the file, until nobody can write to the pipe any more.
    Output,
}

/// A process that copies.
#[derive(Debug)]
pub(crate) struct Copier {
    pidfd: OwnedFd,
}

impl Copier {
    /// Starts it. The caller has one thread.
    ///
    /// # Errors
    /// The error number of clone3(2).
    pub(crate) fn start(file: BorrowedFd<'_>, pipe: OwnedFd, way: CopyDirection) -> SysResult<Self> {
        let (_, pidfd, ()) = spawn::spawn(0, None, (), || match copy(file, pipe.as_fd(), &way) {
            Ok(()) => 0,
            Err(errno) => errno as i32,
        })?;
        Ok(Copier { pidfd })
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// What it could not copy for.
    pub(crate) fn wait(self) -> SysResult<()> {
        match pidfd::reap(self.pidfd.as_fd())? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, errno) => Err(Errno::from_raw(errno)),
            _ => Err(Errno::EINTR),
        }
    }
}

fn copy(file: BorrowedFd<'_>, pipe: BorrowedFd<'_>, way: &CopyDirection) -> SysResult<()> {
    let stop = match way {
        CopyDirection::Input { stop } => Some(stop.as_fd()),
        CopyDirection::Output => None,
    };
    confine([Some(file), Some(pipe), stop])?;
    match stop {
        Some(stop) => copy_in(file, pipe, stop),
        None => copy_out(pipe, file),
    }
}

/// Keeps these descriptors, and no right. A key of the terminal is not meant for it.
fn confine(kept: [Option<BorrowedFd<'_>>; 3]) -> SysResult<()> {
    process::block_signals()?;
    nix::unistd::setsid()?;
    process::set_name(RIGHTS.name)?;
    // SAFETY: nothing of the others is used in this process.
    unsafe { file::close_others(0, kept.into_iter().flatten().map(|fd| fd.as_raw_fd()))? };
    let nothing = RetainedRights {
        domain: Some(LandlockDomain::new(0)?),
        capabilities: RIGHTS.capabilities,
        ..RetainedRights::default()
    };
    confine::drop_rights(nothing).map_err(|(_, errno)| errno)?;
    seccomp::load(RIGHTS.filter.program()).map_err(Errno::from_raw)
}

/// What the pipe did not take is given back: the caller reads on where the program stopped.
fn copy_in(file: BorrowedFd<'_>, pipe: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> SysResult<()> {
    let mut buffer = [0; CHUNK];
    loop {
        // A FIFO may have nothing for a long time.
        if is_stopped(stop, file, PollFlags::POLLIN)? {
            return Ok(());
        }
        let mut rest = match read(file, &mut buffer) {
            Err(Errno::EAGAIN) => continue,
            Ok(0) => return Ok(()),
            Ok(count) => &buffer[..count],
            Err(errno) => return Err(errno),
        };
        while !rest.is_empty() {
            let written = if is_stopped(stop, pipe, PollFlags::POLLOUT)? {
                Err(Errno::EPIPE)
            } else {
                write(pipe, rest)
            };
            match written {
                Ok(count) => rest = &rest[count..],
                Err(Errno::EAGAIN) => {}
                Err(_) => {
                    let back = i64::try_from(rest.len()).map_err(|_| Errno::EOVERFLOW)?;
                    return match lseek(file, -back, Whence::SeekCur) {
                        // A FIFO takes nothing back.
                        Err(Errno::ESPIPE) | Ok(_) => Ok(()),
                        Err(errno) => Err(errno),
                    };
                }
            }
        }
    }
}

/// Waits until the file is ready for this; true when there is no program any more.
fn is_stopped(stop: BorrowedFd<'_>, file: BorrowedFd<'_>, ready: PollFlags) -> SysResult<bool> {
    let mut waits = [PollFd::new(stop, PollFlags::empty()), PollFd::new(file, ready)];
    poll(&mut waits, PollTimeout::NONE)?;
    Ok(waits[0].any().unwrap_or(true))
}

fn copy_out(pipe: BorrowedFd<'_>, file: BorrowedFd<'_>) -> SysResult<()> {
    let mut buffer = [0; CHUNK];
    loop {
        match read(pipe, &mut buffer)? {
            0 => return Ok(()),
            count => match write_whole(file, &buffer[..count]) {
                // No process reads the FIFO any more: the program hears of it from its pipe, as it would have from that.
                Err(Errno::EPIPE) => return Ok(()),
                other => other?,
            },
        }
    }
}

/// As [`file::write_all`], also to a FIFO that its opener made not to block.
fn write_whole(file: BorrowedFd<'_>, mut bytes: &[u8]) -> SysResult<()> {
    while !bytes.is_empty() {
        match write(file, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EAGAIN) => {
                poll(&mut [PollFd::new(file, PollFlags::POLLOUT)], PollTimeout::NONE)?;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
