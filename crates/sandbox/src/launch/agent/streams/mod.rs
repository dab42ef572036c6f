//! Lets a program open its standard streams by name (`/dev/stdout`, `/proc/self/fd/1`), each for what it was opened for.
//!
//! Such a path opens the file of the stream again, with the permissions of the program's user on it. That can be too
//! little: the programs of a sandbox that root started have ids of their own, to which root's pipes and files say nothing.
//! A pipe without a name gets a mode for all users: only a process that has it finds it (proc(5): the links of
//! `/proc/PID/fd` are open only to those that may trace the process). A file or a FIFO is not changed: the program gets a
//! pipe in its place, and a process of saggar copies ([`crate::stage::agent::copier`]). Some that are open
//! for both directions are opened again through a mount that maps their owner ([`mapped`]).
//!
//! It can be too much, too: a file that is open for reading could be written, and a log that is open for writing could be
//! read. Neither mounts nor the access mode of a descriptor prevent that; Landlock does. A sandbox whose Landlock domain
//! does not handle files (the profile nesting, or a kernel without Landlock) therefore gets a pipe in place of each file that
//! is open for one direction.
//!
//! A read-only mount of the file would work for input, but not for output; and it is not possible for a file without a
//! name, such as a shell's here-document. All other streams are passed on unchanged, without overhead.

mod mapped;

use crate::plan::agent::{AgentPlan, BlockIds};
use crate::stage::agent::copier::{Copier, CopyDirection};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat};
use nix::unistd::{Whence, dup2_stderr, dup2_stdin, dup2_stdout, lseek, pipe2};
use saggar_sys::error::{Error, Result};
use saggar_sys::{Errno, SysResult, file};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mapped::MappedStreams;

/// The standard streams for output.
const OUTPUTS: [i32; 2] = [1, 2];

/// The caller's standard streams, while pipes and mapped files replace some of them in this process; dropping it
/// restores them.
#[derive(Debug, Default)]
pub struct ReplacedStreams {
    mapped: MappedStreams,
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

/// The files that a pipe replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacedFiles {
    /// None: programs have the caller's ids.
    None,
    /// Those that these ids may not open again.
    Forbidden(BlockIds),
    /// All: nothing else keeps programs from opening them for more.
    All,
}

impl ReplacedFiles {
    /// Those of a sandbox with this plan.
    pub fn of(plan: &AgentPlan) -> ReplacedFiles {
        if plan.landlock.as_ref().is_none_or(|domain| domain.attr.access_fs == 0) {
            return ReplacedFiles::All;
        }
        plan.block.map_or(ReplacedFiles::None, ReplacedFiles::Forbidden)
    }

    /// Whether a pipe replaces a standard stream that is used in this mode. Of a file that is open for both, a second open
    /// gains nothing, but may fail.
    fn contain(self, number: i32, mode: OFlag) -> SysResult<bool> {
        let stream = match file::duplicate(number) {
            Err(Errno::EBADF) => return Ok(false),
            other => other?,
        };
        let stat = fstat(&stream)?;
        let is_replaceable = is_replaceable(&stream, &stat)?;
        let flags = OFlag::from_bits_retain(fcntl(&stream, FcntlArg::F_GETFL)?);
        let opened = flags & OFlag::O_ACCMODE;
        let is_for_both = opened == OFlag::O_RDWR && self != ReplacedFiles::All;
        Ok(is_replaceable && (opened == mode || is_for_both) && self.include(&stat, mode))
    }

    fn include(self, stat: &FileStat, mode: OFlag) -> bool {
        match self {
            ReplacedFiles::None => false,
            ReplacedFiles::Forbidden(ids) => !may_open(stat, &ids, mode),
            ReplacedFiles::All => true,
        }
    }
}

/// Whether a stream is a file or a FIFO.
fn is_replaceable(stream: &OwnedFd, stat: &FileStat) -> SysResult<bool> {
    Ok(match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => true,
        libc::S_IFIFO => !file::is_nameless_pipe(stream.as_fd())?,
        _ => false,
    })
}

/// Whether the mode of a file lets the programs open it for this access (path_resolution(7)).
fn may_open(stat: &FileStat, ids: &BlockIds, mode: OFlag) -> bool {
    let bits = if stat.st_uid == ids.host_uid {
        stat.st_mode >> 6
    } else if stat.st_gid == ids.host_gid {
        stat.st_mode >> 3
    } else {
        stat.st_mode
    };
    let wanted = if mode == OFlag::O_RDONLY { libc::S_IROTH } else { libc::S_IWOTH };
    bits & wanted != 0
}

/// Makes what programs may open of the standard streams of this process what they were opened for, for the sandbox of
/// `plan`.
///
/// # Errors
/// [`saggar_sys::error::Code::System`]: the streams are then restored.
pub fn make_reopenable(plan: &AgentPlan) -> Result<ReplacedStreams> {
    let replaced = ReplacedFiles::of(plan);
    if plan.block.is_some() {
        let opened = (0..=2).try_for_each(open_pipe_to_all);
        opened.map_err(|e| Error::system("let the program open a standard stream", e.desc()))?;
    }
    let mut streams = ReplacedStreams::default();
    if let ReplacedFiles::Forbidden(ids) = replaced {
        let mapped = streams.mapped.replace(&ids);
        mapped.map_err(|e| Error::system("map the owner of a standard stream", e.desc()))?;
    }
    if replaced != ReplacedFiles::None {
        let done = streams.replace_input(replaced).and_then(|()| streams.replace_outputs(replaced));
        done.map_err(|e| Error::system("put a pipe in the place of a standard stream", e.desc()))?;
    }
    Ok(streams)
}

/// Sets the mode of a stream that is a pipe without a name. A pipe of another user, which a caller with few capabilities
/// may not change, stays as it is.
fn open_pipe_to_all(number: i32) -> SysResult<()> {
    let Ok(stream) = file::duplicate(number) else { return Ok(()) };
    if fstat(&stream)?.st_mode & libc::S_IFMT != libc::S_IFIFO || !file::is_nameless_pipe(stream.as_fd())? {
        return Ok(());
    }
    match fchmod(&stream, Mode::from_bits_truncate(file::PIPE_FOR_ALL)) {
        Err(Errno::EPERM) => Ok(()),
        other => other,
    }
}

impl ReplacedStreams {
    /// Copies the remaining data, and restores the caller's files.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`] when output could not be written.
    pub fn finish(mut self) -> Result<()> {
        self.restore().map_err(|e| Error::system("write the program's output", e.desc()))
    }

    fn replace_input(&mut self, replaced: ReplacedFiles) -> SysResult<()> {
        if !replaced.contain(0, OFlag::O_RDONLY)? {
            return Ok(());
        }
        let file = file::duplicate(0)?;
        let (read, write) = file::pipe_with_mode(0o444)?;
        fcntl(&write, FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_NONBLOCK))?;
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
        let copier = Copier::start(file.as_fd(), write, CopyDirection::Input { stop: stopped })?;
        dup2_stdin(&read)?;
        self.input = Some(PipedInput { file, copier, stop });
        Ok(())
    }

    /// Two streams to one file share a pipe, which keeps the order of their output.
    fn replace_outputs(&mut self, replaced: ReplacedFiles) -> SysResult<()> {
        let mut pipes: Vec<(file::FileId, OwnedFd)> = Vec::new();
        for number in OUTPUTS {
            if !replaced.contain(number, OFlag::O_WRONLY)? {
                continue;
            }
            let file = file::duplicate(number)?;
            let id = file::identity(file.as_fd())?;
            let at = match pipes.iter().position(|(known, _)| *known == id) {
                Some(at) => at,
                None => {
                    let (read, write) = file::pipe_with_mode(0o222)?;
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
        result.and(self.mapped.restore())
    }
}

impl Drop for ReplacedStreams {
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
