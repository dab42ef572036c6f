//! Files as standard streams of a sandbox whose landlock domain says nothing of files (the profile nesting, or a kernel
//! without landlock).
//!
//! Whoever has a descriptor can open its file again through /proc/self/fd, with the rights of its user on the file: one
//! that was opened for reading becomes one for writing, and a log that was opened for writing is read. Neither mounts nor
//! modes of descriptors stand against that; landlock does. Without it the program gets a pipe in the place of such a file, and
//! a process of ours copies ([`crate::stage::copier`]). Everything else is passed on as it is, and costs nothing.
//!
//! A mount of the file that is read-only would do for input, and not for output; and it cannot be had for a file without a
//! name, such as a shell's here-document.

use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::stage::copier::{Copier, Way};
use crate::sys::{Errno, SysResult, file};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::fstat;
use nix::unistd::{Whence, dup2_stderr, dup2_stdin, dup2_stdout, lseek, pipe2};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The numbers of the standard streams that are written to.
const OUTPUTS: [i32; 2] = [1, 2];

/// The caller's standard streams while this process has pipes in the place of some; they are back when it is dropped.
#[derive(Debug, Default)]
pub struct Streams {
    input: Option<Input>,
    outputs: Vec<Output>,
}

#[derive(Debug)]
struct Input {
    file: OwnedFd,
    copier: Copier,
    /// Ends the copier.
    stop: OwnedFd,
}

#[derive(Debug)]
struct Output {
    /// The streams that this is, with the caller's descriptors of them.
    files: Vec<(i32, OwnedFd)>,
    copier: Copier,
}

/// Puts pipes in the place of files, where the sandbox of `plan` needs that.
///
/// # Errors
/// [`crate::error::Code::System`]: then the streams are as they were.
pub fn guard(plan: &Plan) -> Result<Streams> {
    if plan.landlock.as_ref().is_some_and(|domain| domain.attr.access_fs != 0) {
        return Ok(Streams::default());
    }
    let mut streams = Streams::default();
    let replaced = streams.replace_input().and_then(|()| streams.replace_outputs());
    replaced.map_err(|e| Error::system("put a pipe in the place of a standard stream", e.desc()))?;
    Ok(streams)
}

impl Streams {
    /// Copies what is left, and puts the caller's files back.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when output could not be written.
    pub fn finish(mut self) -> Result<()> {
        self.put_back().map_err(|e| Error::system("write the program's output", e.desc()))
    }

    fn replace_input(&mut self) -> SysResult<()> {
        if !is_file(0, OFlag::O_RDONLY)? {
            return Ok(());
        }
        let file = file::duplicate_number(0)?;
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&write, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_NONBLOCK))?;
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
        let copier = Copier::start(file.as_fd(), write, Way::In { stop: stopped })?;
        dup2_stdin(&read)?;
        self.input = Some(Input { file, copier, stop });
        Ok(())
    }

    /// Two streams to one file get one pipe: the order of what is written to them is kept.
    fn replace_outputs(&mut self) -> SysResult<()> {
        let mut pipes: Vec<(file::FileId, OwnedFd)> = Vec::new();
        for number in OUTPUTS {
            if !is_file(number, OFlag::O_WRONLY)? {
                continue;
            }
            let file = file::duplicate_number(number)?;
            let id = file::identity(file.as_fd())?;
            let at = match pipes.iter().position(|(known, _)| *known == id) {
                Some(at) => at,
                None => {
                    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
                    let copier = Copier::start(file.as_fd(), read, Way::Out)?;
                    self.outputs.push(Output { files: Vec::new(), copier });
                    pipes.push((id, write));
                    pipes.len() - 1
                }
            };
            put(number, pipes[at].1.as_fd())?;
            self.outputs[at].files.push((number, file));
        }
        Ok(())
    }

    fn put_back(&mut self) -> SysResult<()> {
        let mut result = Ok(());
        if let Some(Input { file, copier, stop }) = self.input.take() {
            drop(stop);
            let _ = copier.wait();
            // What is still in the pipe was not read by the program, and is left to the caller.
            let unread = i64::try_from(file::waiting(file::number(0))).unwrap_or(0);
            let _ = lseek(&file, -unread, Whence::SeekCur);
            result = put(0, file.as_fd());
        }
        for output in &self.outputs {
            for (number, file) in &output.files {
                result = result.and(put(*number, file.as_fd()));
            }
        }
        for output in self.outputs.drain(..) {
            result = result.and(output.copier.wait());
        }
        result
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}

/// Makes a descriptor this standard stream.
fn put(number: i32, fd: BorrowedFd<'_>) -> SysResult<()> {
    match number {
        0 => dup2_stdin(fd),
        1 => dup2_stdout(fd),
        _ => dup2_stderr(fd),
    }
}

/// Whether a stream is a regular file that is open this way only: one that is open both ways has no more to give.
fn is_file(number: i32, mode: OFlag) -> SysResult<bool> {
    let stream = match file::duplicate_number(number) {
        Err(Errno::EBADF) => return Ok(false),
        other => other?,
    };
    let is_regular = fstat(&stream)?.st_mode & libc::S_IFMT == libc::S_IFREG;
    let flags = OFlag::from_bits_retain(fcntl(&stream, FcntlArg::F_GETFL)?);
    Ok(is_regular && flags & OFlag::O_ACCMODE == mode)
}
