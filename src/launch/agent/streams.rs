//! Replaces files as standard streams of a sandbox whose Landlock domain does not handle files (the profile nesting, or
//! a kernel without Landlock).
//!
//! A process with a file descriptor can open its file again through /proc/self/fd, with its user's permissions on the
//! file: a file opened for reading can be written, and a log opened for writing can be read. Neither mounts nor the
//! access mode of a descriptor prevent that; Landlock does. Without it the program gets a pipe instead of such a file,
//! and a process of saggar copies ([`crate::stage::agent::copier`]). All other streams are passed on unchanged, without
//! overhead.
//!
//! A read-only mount of the file would work for input, but not for output; and it is not possible for a file without a
//! name, such as a shell's here-document.

use crate::error::{Error, Result};
use crate::plan::agent::AgentPlan;
use crate::stage::agent::copier::{Copier, CopyDirection};
use crate::sys::{Errno, SysResult, file};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::fstat;
use nix::unistd::{Whence, dup2_stderr, dup2_stdin, dup2_stdout, lseek, pipe2};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The standard streams for output.
const OUTPUTS: [i32; 2] = [1, 2];

/// The caller's standard streams, while pipes replace some of them in this process; dropping it restores them.
#[derive(Debug, Default)]
pub struct PipedStreams {
    input: Option<PipedInput>,
    outputs: Vec<PipedOutput>,
}

#[derive(Debug)]
struct PipedInput {
    file: OwnedFd,
    copier: Copier,
    /// Dropping it ends the copier.
    stop: OwnedFd,
}

#[derive(Debug)]
struct PipedOutput {
    /// The standard streams that use the pipe, with the caller's descriptors of them.
    files: Vec<(i32, OwnedFd)>,
    copier: Copier,
}

/// Whether a program in the sandbox of `plan` could open the file of a standard stream again.
pub fn needs_pipes(plan: &AgentPlan) -> bool {
    plan.landlock.as_ref().is_none_or(|domain| domain.attr.access_fs == 0)
}

/// Replaces files by pipes, if the sandbox of `plan` needs that.
///
/// # Errors
/// [`crate::error::Code::System`]: the streams are then restored.
pub fn replace_with_pipes(plan: &AgentPlan) -> Result<PipedStreams> {
    if !needs_pipes(plan) {
        return Ok(PipedStreams::default());
    }
    let mut streams = PipedStreams::default();
    let replaced = streams.replace_input().and_then(|()| streams.replace_outputs());
    replaced.map_err(|e| Error::system("put a pipe in the place of a standard stream", e.desc()))?;
    Ok(streams)
}

impl PipedStreams {
    /// Copies the remaining data, and restores the caller's files.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when output could not be written.
    pub fn finish(mut self) -> Result<()> {
        self.restore().map_err(|e| Error::system("write the program's output", e.desc()))
    }

    fn replace_input(&mut self) -> SysResult<()> {
        if !is_file(0, OFlag::O_RDONLY)? {
            return Ok(());
        }
        let file = file::duplicate(0)?;
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&write, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_NONBLOCK))?;
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
        let copier = Copier::start(file.as_fd(), write, CopyDirection::Input { stop: stopped })?;
        dup2_stdin(&read)?;
        self.input = Some(PipedInput { file, copier, stop });
        Ok(())
    }

    /// Two streams to one file share a pipe, which keeps the order of their output.
    fn replace_outputs(&mut self) -> SysResult<()> {
        let mut pipes: Vec<(file::FileId, OwnedFd)> = Vec::new();
        for number in OUTPUTS {
            if !is_file(number, OFlag::O_WRONLY)? {
                continue;
            }
            let file = file::duplicate(number)?;
            let id = file::identity(file.as_fd())?;
            let at = match pipes.iter().position(|(known, _)| *known == id) {
                Some(at) => at,
                None => {
                    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
                    let copier = Copier::start(file.as_fd(), read, CopyDirection::Output)?;
                    self.outputs.push(PipedOutput { files: Vec::new(), copier });
                    pipes.push((id, write));
                    pipes.len() - 1
                }
            };
            set_stream(number, pipes[at].1.as_fd())?;
            self.outputs[at].files.push((number, file));
        }
        Ok(())
    }

    fn restore(&mut self) -> SysResult<()> {
        let mut result = Ok(());
        if let Some(PipedInput { file, copier, stop }) = self.input.take() {
            drop(stop);
            let _ = copier.wait();
            // The program did not read the bytes left in the pipe: they stay for the caller.
            let unread = i64::try_from(file::bytes_available(file::borrow_number(0))).unwrap_or(0);
            let _ = lseek(&file, -unread, Whence::SeekCur);
            result = set_stream(0, file.as_fd());
        }
        for output in &self.outputs {
            for (number, file) in &output.files {
                result = result.and(set_stream(*number, file.as_fd()));
            }
        }
        for output in self.outputs.drain(..) {
            result = result.and(output.copier.wait());
        }
        result
    }
}

impl Drop for PipedStreams {
    fn drop(&mut self) {
        let _ = self.restore();
    }
}

/// Duplicates a descriptor to this standard stream.
fn set_stream(number: i32, fd: BorrowedFd<'_>) -> SysResult<()> {
    match number {
        0 => dup2_stdin(fd),
        1 => dup2_stdout(fd),
        _ => dup2_stderr(fd),
    }
}

/// Whether a stream is a regular file with this access mode only: a second open of a read-write file gains nothing.
fn is_file(number: i32, mode: OFlag) -> SysResult<bool> {
    let stream = match file::duplicate(number) {
        Err(Errno::EBADF) => return Ok(false),
        other => other?,
    };
    let is_regular = fstat(&stream)?.st_mode & libc::S_IFMT == libc::S_IFREG;
    let flags = OFlag::from_bits_retain(fcntl(&stream, FcntlArg::F_GETFL)?);
    Ok(is_regular && flags & OFlag::O_ACCMODE == mode)
}
