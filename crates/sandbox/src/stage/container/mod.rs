//! The child's side of a container's start, and of `exec`.
//!
//! Who runs here: the process that will be the program, forked from the runtime, which has one thread. In its new
//! user namespace it waits for the id maps; then it walks the steps of its plan, at last with the rights of its
//! program alone, and executes that. Between the runtime and it stands an intermediate process, for a moment, when
//! a user or pid namespace is joined:
//!
//! ```text
//! runtime ── clone3 ──> intermediate ── setns, clone3(CLONE_PARENT) ──> child, born inside, the runtime's own
//!    └──────────────── waits for both ────────────────────────────────────┘
//! ```
//!
//! No heap, no lock, no log, and not dumpable: processes of a container that it joins may see it, and must see
//! nothing in it. Whatever fails is told to the runtime as `{step, errno}`, and the process ends.

mod copy;
mod device;
mod files;
pub mod opener;
mod process;
pub mod program_args;
mod rooted_path;
mod steps;
pub mod wire;

use crate::plan::container::step::ContainerStep;
use crate::plan::container::{ContainerFilter, ContainerPlan};
use crate::stage::parent_death;
use crate::stage::wire::LEN;
use program_args::ProgramArgs;
use saggar_sys::file::{self, Resolve};
use saggar_sys::spawn;
use saggar_sys::{Errno, SysResult, clone, namespace, process as own, scm};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use wire::{ChildReport, ChildRequest};

/// What the child is born with, all of it made by the runtime before the clone.
#[derive(Debug)]
pub struct ContainerChildArgs<'a> {
    /// What to do.
    pub plan: &'a ContainerPlan,
    /// The program.
    pub program: Option<ProgramArgs>,
    /// Its filter.
    pub filter: Option<&'a ContainerFilter>,
    /// Namespaces to join: a file of one with its CLONE_NEW* flag, or a pidfd with many.
    pub joins: &'a [(OwnedFd, u64)],
    /// The child's end of the socketpair to the runtime.
    pub control: OwnedFd,
    /// A pidfd of the runtime.
    pub runtime: OwnedFd,
    /// The runtime's /proc: no file of it is the container's to exchange.
    pub proc: OwnedFd,
    /// What `start` will connect to.
    pub start_socket: Option<OwnedFd>,
    /// Its standard streams, where they are not the runtime's.
    pub streams: Option<[OwnedFd; 3]>,
    /// Whether to die with the runtime for good.
    pub die_with_runtime: bool,
}

/// Who was born.
#[derive(Debug)]
pub struct SpawnedChild {
    /// The pid of the child, or of the intermediate process.
    pub pid: i32,
    /// A pidfd of it.
    pub pidfd: OwnedFd,
    /// The runtime's end of the socketpair.
    pub control: OwnedFd,
}

/// Clones the child, or the intermediate process, in `cgroup` when there is one. Returns in the runtime only.
///
/// # Errors
/// The error number of clone3(2); EDEADLK when this process has more than one thread.
pub fn spawn(
    args: ContainerChildArgs<'_>,
    ours: OwnedFd,
    cgroup: Option<BorrowedFd<'_>>,
) -> SysResult<SpawnedChild> {
    let namespaces = if args.plan.needs_intermediate { 0 } else { args.plan.namespaces };
    let (pid, pidfd, control) = spawn::spawn(namespaces, cgroup, ours, move || {
        if close_runtime_fds(&args).is_err() {
            own::exit_now(125);
        }
        if args.plan.needs_intermediate { run_intermediate(args) } else { steps::walk(args) }
    })?;
    Ok(SpawnedChild { pid, pidfd, control })
}

/// Closes what the runtime had open for itself: the lock of a container, which an init that outlives its maker would
/// hold on, its cgroups, its log.
fn close_runtime_fds(args: &ContainerChildArgs<'_>) -> SysResult<()> {
    let first = args.plan.steps.as_slice().iter().find_map(|step| match step {
        ContainerStep::CloseDescriptors { from } => i32::try_from(*from).ok(),
        _ => None,
    });
    let streams = args.streams.iter().flatten();
    let joins = args.joins.iter().map(|(file, _)| file);
    let kept = [&args.control, &args.runtime, &args.proc]
        .into_iter()
        .chain(&args.start_socket)
        .chain(streams)
        .chain(joins);
    // SAFETY: what owns the others lies in frames of the runtime's that the child never returns to.
    unsafe { file::close_others(first.unwrap_or(3), kept.map(AsRawFd::as_raw_fd)) }
}

/// Joins the namespaces and makes the child in them. Never returns.
fn run_intermediate(args: ContainerChildArgs<'_>) -> ! {
    let control = args.control.as_fd();
    let fail = |report: ChildReport| -> ! {
        let _ = scm::send(control, &report.encode(), &[]);
        own::exit_now(125)
    };
    if parent_death::die_with(args.runtime.as_fd()).and_then(|()| await_go(control)).is_err() {
        own::exit_now(125);
    }
    let clocks = args.plan.early_time_offsets.as_deref().map(|offsets| (open_time_offsets(&args), offsets));
    // The maps of a new user namespace are written by a runtime that must find the child dumpable.
    if args.plan.namespaces & libc::CLONE_NEWUSER as u64 == 0 {
        let _ = own::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0);
    }
    if let Err((join, errno)) = join_namespaces(args.joins) {
        fail(ChildReport::JoinFailed { join, errno: errno as i32 });
    }
    if let Some((file, offsets)) = clocks
        && let Err(errno) = file.and_then(|file| new_time_namespace(file.as_fd(), offsets))
    {
        fail(ChildReport::TimeNamespaceFailed { errno: errno as i32 });
    }
    // SAFETY: this process has one thread, the child runs the walk alone, and we do nothing more.
    match unsafe { clone::clone3_sibling(args.plan.namespaces) } {
        Ok(true) => {
            if scm::send(control, &ChildReport::Waiting.encode(), &[]).is_err() {
                own::exit_now(125);
            }
            steps::walk(args)
        }
        Ok(false) => own::exit_now(0),
        Err(errno) => fail(ChildReport::CloneFailed { errno: errno as i32 }),
    }
}

/// Our own offsets, opened while we are still the caller's: who may write them is decided by who opened them.
fn open_time_offsets(args: &ContainerChildArgs<'_>) -> SysResult<OwnedFd> {
    file::open(args.proc.as_fd(), c"self/timens_offsets", libc::O_WRONLY, 0, Resolve::Ordinary)
}

/// A time namespace for the child, with its offsets.
fn new_time_namespace(file: BorrowedFd<'_>, offsets: &CStr) -> SysResult<()> {
    namespace::unshare(libc::CLONE_NEWTIME)?;
    if offsets.is_empty() { Ok(()) } else { file::write_all(file, offsets.to_bytes()) }
}

/// First with the runtime's own rights, which may be needed to enter what is not the user namespace's; those
/// that it may not enter wait until the user namespace is entered.
fn join_namespaces(joins: &[(OwnedFd, u64)]) -> Result<(), (u32, Errno)> {
    const USER: u64 = libc::CLONE_NEWUSER as u64;
    let mut later = 0u32;
    let numbered = || (0u32..).zip(joins);
    for (index, (file, flag)) in numbered().filter(|(_, (_, flag))| *flag != USER) {
        match join_namespace(file, *flag) {
            Ok(()) => {}
            Err(Errno::EPERM) if index < 32 => later |= 1 << index,
            Err(errno) => return Err((index, errno)),
        }
    }
    for (index, (file, flag)) in numbered().filter(|(_, (_, flag))| *flag == USER) {
        join_namespace(file, *flag).map_err(|errno| (index, errno))?;
    }
    for (index, (file, flag)) in numbered().filter(|(index, _)| *index < 32 && later & (1 << index) != 0) {
        join_namespace(file, *flag).map_err(|errno| (index, errno))?;
    }
    Ok(())
}

fn join_namespace(file: &OwnedFd, flags: u64) -> SysResult<()> {
    namespace::join(file.as_fd(), libc::c_int::try_from(flags).map_err(|_| Errno::EINVAL)?)
}

/// Waits for [`ChildRequest::Go`]. The end of the stream means that the runtime gave up, and has said why.
fn await_go(control: BorrowedFd<'_>) -> SysResult<()> {
    let mut buffer = [0; LEN];
    let received = scm::receive(control, &mut buffer)?;
    match ChildRequest::decode(&buffer[..received.len]) {
        Some(ChildRequest::Go) => Ok(()),
        _ => own::exit_now(125),
    }
}
