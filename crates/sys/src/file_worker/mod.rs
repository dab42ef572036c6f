//! File workers: reading and writing trees that other users and sandboxes created happens in a short-lived process with
//! access to nothing else (DECISIONS 33).
//!
//! ```text
//! command ── fork ──> worker: the owner's ids, no capability, Landlock, seccomp, limits ── job ── exit
//!   ^                                                                                       │
//!   └────────────────────── log entries, output, result (a pipe) ──────────────────────────┘
//! ```
//! The command opens the directories, by paths that its caller gave; the worker accesses files below these descriptors.
//! An exploited bug in the worker, or in its parsers, has the rights of the owner, in these directories, for a limited
//! time. The command accepts a result of bounded length from it.

mod wire;

use crate::beneath;
use crate::confine::{self, AccessFs, LandlockDomain, LandlockSummary, ProcessRights, RetainedRights};
use crate::error::{Code, Error, Result};
use crate::seccomp::{self, HostProcessFilter};
use crate::{Errno, SysResult, process};
use ::landlock::AccessFs as Right;
use nix::fcntl::OFlag;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;
pub use wire::WorkerOutput;

/// CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER as bits: needed to work on files of several owners. Landlock then
/// restricts which files; other file systems, devices, processes and ids stay inaccessible.
pub const MULTI_OWNER_CAPABILITIES: u64 = 0b1011;
/// CAP_DAC_READ_SEARCH as a bit: needed to read files of several owners.
pub const READ_MULTI_OWNER_CAPABILITIES: u64 = 0b100;

/// The least Landlock ABI that a worker uses (Linux 5.19): ABI 1 does not allow moving files between directories, which
/// most jobs do.
pub const MIN_LANDLOCK_ABI: u32 = 2;
/// The rights that a worker keeps, for files of one owner.
pub const FILE_WORKER_RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:files",
    capabilities: 0,
    filter: HostProcessFilter::FileWorker,
    landlock: Some(LandlockSummary { min_abi: MIN_LANDLOCK_ABI, allows: "the directories at hand" }),
};

/// New files that an `apply` has open at once, and descriptors for all other purposes.
const MAX_DESCRIPTORS: u64 = (1 << 16) + 128;

/// Access of a worker to a directory and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Read files and directories.
    Read,
    /// Also create, change, move and remove them.
    Write,
}

impl FileAccess {
    fn landlock_access(self) -> AccessFs {
        let read = Right::ReadFile | Right::ReadDir;
        let change = Right::WriteFile | Right::Truncate | Right::RemoveFile | Right::RemoveDir | Right::Refer;
        // A character device 0:0 marks a deleted name in an overlay; other devices need a capability. A socket that a
        // program has left is moved like any file.
        let make = Right::MakeReg
            | Right::MakeDir
            | Right::MakeSym
            | Right::MakeFifo
            | Right::MakeSock
            | Right::MakeChar;
        match self {
            FileAccess::Read => read,
            FileAccess::Write => read | change | make,
        }
    }
}

/// Resource limits of a worker.
#[derive(Debug, Clone, Copy)]
pub struct WorkerLimits {
    /// Longest wall-clock time.
    pub time: Duration,
    /// Most processor time, in seconds (RLIMIT_CPU).
    pub cpu_seconds: u64,
    /// Most address space, in bytes (RLIMIT_AS).
    pub memory: u64,
    /// Largest file that it writes, in bytes (RLIMIT_FSIZE).
    pub file_size: u64,
    /// Most bytes that it may send: log entries, output and result together.
    pub output_size: usize,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        WorkerLimits {
            time: Duration::from_secs(1800),
            cpu_seconds: 900,
            memory: 8 << 30,
            file_size: libc::RLIM_INFINITY,
            // Enough for a manifest of 200 000 names, or a long patch.
            output_size: 256 << 20,
        }
    }
}

/// The task of a worker, and all that it can access.
#[derive(Debug)]
pub struct Confinement<'a> {
    /// The task as text for messages: a verb and its object.
    pub task: &'a str,
    /// The user and group that it changes to; `None` keeps the caller's. See [`worker_owner`].
    pub owner: Option<(u32, u32)>,
    /// The capabilities that it keeps, as bits, of those that the caller has.
    pub capabilities: u64,
    /// Open directories, and its access to them.
    pub directories: &'a [(BorrowedFd<'a>, FileAccess)],
    /// Open files that it reads or writes.
    pub files: &'a [BorrowedFd<'a>],
    /// Its resource limits.
    pub limits: WorkerLimits,
}

/// The ids of a worker in `directory`: those of its owner if this process is root; otherwise `None`, for its own ids.
///
/// # Errors
/// Those of statx(2).
pub fn worker_owner(directory: BorrowedFd<'_>) -> std::io::Result<Option<(u32, u32)>> {
    let owner = beneath::stat_fd(directory)?.owner;
    Ok(nix::unistd::geteuid().is_root().then_some(owner))
}

/// Runs `job` in a worker, and forwards the text that it writes to its [`WorkerOutput`]. `job` must use no descriptors
/// but those of the confinement.
///
/// # Errors
/// Those of `job` and `pass_on`; [`Code::System`] for a worker that cannot be forked or confined, or exits without a
/// result; [`Code::Invalid`] for one that exceeds a limit.
pub fn run_worker_with_output<T: Serialize + DeserializeOwned>(
    confinement: &Confinement<'_>,
    job: impl FnOnce(&WorkerOutput) -> Result<T>,
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
    let child = crate::worker::fork(&kept, || {
        let output = WorkerOutput::new(crate::file::borrow_number(write.as_raw_fd()));
        output.redirect_log();
        let done = confine_worker(confinement, parent).and_then(|()| job(&output));
        output.finish(done)
    });
    let child = child.map_err(fail)?;
    drop(write);
    wire::receive_output(confinement, File::from(read), child.pidfd.as_fd(), pass_on)
}

/// Like [`run_worker_with_output`], for a job without output.
///
/// # Errors
/// As [`run_worker_with_output`].
pub fn run_worker<T: Serialize + DeserializeOwned>(
    confinement: &Confinement<'_>,
    job: impl FnOnce() -> Result<T>,
) -> Result<T> {
    run_worker_with_output(confinement, |_| job(), |_| Ok(()))
}

/// Confines this process irrevocably to a task: for a process that `parent` has forked for it, and that has no other
/// threads. It ends when `parent` does.
///
/// # Errors
/// [`Code::System`]: the process must not continue.
pub fn confine_worker(confinement: &Confinement<'_>, parent: i32) -> Result<()> {
    let fail = |what: &str, errno: Errno| {
        let task = confinement.task;
        Error::system(format_args!("{task}: confine the worker: {what}"), errno.desc())
    };
    let WorkerLimits { cpu_seconds: cpu, memory, file_size: file, .. } = confinement.limits;
    let limits = [
        (libc::RLIMIT_NOFILE, MAX_DESCRIPTORS, MAX_DESCRIPTORS),
        // SIGKILL follows one second later: SIGXCPU identifies the reason.
        (libc::RLIMIT_CPU, cpu, cpu + 1),
        (libc::RLIMIT_AS, memory, memory),
        (libc::RLIMIT_FSIZE, file, file),
    ];
    for (resource, soft, hard) in limits {
        process::lower_limit(resource.cast_signed(), soft, hard)
            .map_err(|e| fail("limit its resources", e))?;
    }
    let domain = landlock_domain(confinement).map_err(|e| fail("make its landlock domain", e))?;
    let (ids, capabilities) = (confinement.owner, confinement.capabilities);
    confine::drop_rights(RetainedRights {
        ids,
        capabilities,
        domain: Some(domain),
        ..RetainedRights::default()
    })
    .map_err(|(what, e)| fail(what, e))?;
    // A process of this name has no more rights than the table of processes says.
    let _ = process::set_name(FILE_WORKER_RIGHTS.name);
    // A change of ids clears an earlier parent-death signal (prctl(2)).
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)
        .map_err(|e| fail("follow its parent", e))?;
    if nix::unistd::getppid().as_raw() != parent {
        return Err(Error::new(Code::State, "the parent of the worker has ended"));
    }
    seccomp::load(FILE_WORKER_RIGHTS.filter.program())
        .map_err(|e| fail("load the filter", Errno::from_raw(e)))
}

fn landlock_domain(confinement: &Confinement<'_>) -> SysResult<LandlockDomain> {
    let domain = LandlockDomain::new(MIN_LANDLOCK_ABI)?;
    for (directory, access) in confinement.directories {
        domain.allow_beneath(*directory, access.landlock_access())?;
    }
    Ok(domain)
}

#[cfg(test)]
mod tests;
