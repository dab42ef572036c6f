//! Workers for files: what reads and writes trees that other users and sandboxes made runs in a short-lived process
//! that has nothing else (DECISIONS 33).
//!
//! ```text
//! verb ── fork ──> worker: the owner's ids, no capability, landlock, a filter, limits ── job ── end
//!   ^                                                                                    │
//!   └────────────────────── log entries, output, result (a pipe) ───────────────────────┘
//! ```
//! The verb opens the directories, by paths that its caller named; the worker works beneath the descriptors. A mistake
//! in it, or in what it parses, is one of the owner's processes, in these directories, for a limited time. The verb
//! takes from it a result of a limited length.

mod wire;

use crate::error::{Code, Error, Result};
use crate::session::beneath;
use crate::sys::confine::{self, AccessFs, Domain, Kept};
use crate::sys::seccomp::{self, Outside};
use crate::sys::{self, Errno, SysResult, process};
use ::landlock::AccessFs as Right;
use nix::fcntl::OFlag;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;
pub use wire::Output;

/// CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER as bits: what it takes to work on files of several owners. Landlock then
/// bounds which files; other file systems, devices, processes and ids stay out of reach.
pub const SEVERAL_OWNERS: u64 = 0b1011;
/// CAP_DAC_READ_SEARCH as a bit: what it takes to read files of several owners.
pub const READ_SEVERAL_OWNERS: u64 = 0b100;

/// The least ABI of landlock that a worker uses (Linux 5.19): ABI 1 allows no file to be moved to another directory,
/// which is most of the work.
const LEAST_ABI: u32 = 2;
/// New files that an `apply` has open at once, and descriptors for everything else.
const DESCRIPTORS: u64 = (1 << 16) + 128;

/// What a worker may do in a directory and below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read files and directories.
    Read,
    /// Also make, change, move and remove them.
    Write,
}

impl Access {
    fn rights(self) -> AccessFs {
        let read = Right::ReadFile | Right::ReadDir;
        let change = Right::WriteFile | Right::Truncate | Right::RemoveFile | Right::RemoveDir | Right::Refer;
        // A character device is how an overlay says that a name is gone; other devices take a capability.
        let make = Right::MakeReg | Right::MakeDir | Right::MakeSym | Right::MakeFifo | Right::MakeChar;
        match self {
            Access::Read => read,
            Access::Write => read | change | make,
        }
    }
}

/// How much a worker may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long it may take.
    pub time: Duration,
    /// How much processor time it may use, in seconds (RLIMIT_CPU).
    pub cpu: u64,
    /// How much address space it may have, in bytes (RLIMIT_AS).
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Duration::from_secs(1800), cpu: 900, memory: 8 << 30 }
    }
}

/// What a worker is for, and all that it has.
#[derive(Debug)]
pub struct Confinement<'a> {
    /// What it does, for messages: a verb and its subject.
    pub task: &'a str,
    /// The user and the group that it becomes; `None` keeps the caller's. See [`owner`].
    pub owner: Option<(u32, u32)>,
    /// The capabilities that it keeps, as bits, of those that the caller has.
    pub capabilities: u64,
    /// Open directories, and what it may do in them.
    pub directories: &'a [(BorrowedFd<'a>, Access)],
    /// Open files that it reads or writes.
    pub files: &'a [BorrowedFd<'a>],
    /// How much it may use.
    pub limits: Limits,
}

/// The ids of a worker in `directory`: those of its owner, when this process is root; otherwise `None`, for its own.
///
/// # Errors
/// Those of statx(2).
pub fn owner(directory: BorrowedFd<'_>) -> std::io::Result<Option<(u32, u32)>> {
    let owner = beneath::itself(directory)?.owner;
    Ok(nix::unistd::geteuid().is_root().then_some(owner))
}

/// Runs `job` in a worker, and passes on what it writes to its [`Output`]. `job` must use no descriptors but those of
/// the confinement.
///
/// # Errors
/// Those of `job` and `pass_on`; [`Code::System`] for a worker that cannot be made or confined, or ends without a
/// result; [`Code::Invalid`] for one that exceeds a limit.
pub fn run_with_output<T: Serialize + DeserializeOwned>(
    confinement: &Confinement<'_>,
    job: impl FnOnce(&Output) -> Result<T>,
    pass_on: impl FnMut(&str) -> Result<()>,
) -> Result<T> {
    let fail = |errno: Errno| {
        let why = if errno == Errno::EBUSY { "this process has several threads" } else { errno.desc() };
        Error::system(format_args!("{}: start a worker", confinement.task), why)
    };
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
    let mut kept: Vec<RawFd> = confinement.directories.iter().map(|(fd, _)| fd.as_raw_fd()).collect();
    kept.extend(confinement.files.iter().map(AsRawFd::as_raw_fd));
    kept.push(write.as_raw_fd());
    let parent = nix::unistd::getpid().as_raw();
    let child = sys::worker::fork(&kept, || {
        let output = Output::new(sys::file::number(write.as_raw_fd()));
        output.take_log();
        let done = confine(confinement, parent).and_then(|()| job(&output));
        output.finish(done)
    });
    let child = child.map_err(fail)?;
    drop(write);
    wire::receive(confinement, File::from(read), child.pidfd.as_fd(), pass_on)
}

/// As [`run_with_output`], for a job without output.
///
/// # Errors
/// As [`run_with_output`].
pub fn run<T: Serialize + DeserializeOwned>(
    confinement: &Confinement<'_>,
    job: impl FnOnce() -> Result<T>,
) -> Result<T> {
    run_with_output(confinement, |_| job(), |_| Ok(()))
}

/// Confines this process, for good, to this work: for a process that was forked for it by `parent`, and has no other
/// threads. It ends when `parent` does.
///
/// # Errors
/// [`Code::System`]: then it must not go on.
pub fn confine(confinement: &Confinement<'_>, parent: i32) -> Result<()> {
    let fail = |what: &str, errno: Errno| {
        let task = confinement.task;
        Error::system(format_args!("{task}: confine the worker: {what}"), errno.desc())
    };
    let _ = process::set_name(c"saggar:files");
    let Limits { cpu, memory, .. } = confinement.limits;
    let limits = [
        (libc::RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS),
        // A second more until SIGKILL: SIGXCPU names the reason.
        (libc::RLIMIT_CPU, cpu, cpu + 1),
        (libc::RLIMIT_AS, memory, memory),
    ];
    for (resource, soft, hard) in limits {
        process::lower_limit(resource.cast_signed(), soft, hard)
            .map_err(|e| fail("limit its resources", e))?;
    }
    let domain = domain(confinement).map_err(|e| fail("make its landlock domain", e))?;
    let (ids, capabilities) = (confinement.owner, confinement.capabilities);
    confine::give_up(Kept { ids, capabilities, domain: Some(domain) }).map_err(|(what, e)| fail(what, e))?;
    // A change of ids clears an earlier bond (prctl(2)).
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)
        .map_err(|e| fail("follow its parent", e))?;
    if nix::unistd::getppid().as_raw() != parent {
        return Err(Error::new(Code::State, "the parent of the worker has ended"));
    }
    seccomp::load(Outside::FileWorker.program()).map_err(|e| fail("load the filter", Errno::from_raw(e)))
}

fn domain(confinement: &Confinement<'_>) -> SysResult<Domain> {
    let domain = Domain::new(LEAST_ABI)?;
    for (directory, access) in confinement.directories {
        domain.allow_beneath(*directory, access.rights())?;
    }
    Ok(domain)
}

#[cfg(test)]
mod tests;
