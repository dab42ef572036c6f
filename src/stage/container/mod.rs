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
mod files;
pub mod image;
pub mod opener;
mod place;
mod process;
mod steps;
pub mod wire;

use crate::plan::container::step::Step;
use crate::plan::container::{Filter, Plan};
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult, clone, namespace, process as own, scm};
use image::Image;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use wire::{Answer, LEN, Report};

/// What the child is born with, all of it made by the runtime before the clone.
#[derive(Debug)]
pub struct Born<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// The program.
    pub image: Option<Image>,
    /// Its filter.
    pub filter: Option<&'a Filter>,
    /// Namespaces to join: a file of one with its CLONE_NEW* flag, or a pidfd with many.
    pub joins: &'a [(OwnedFd, u64)],
    /// The child's end of the socketpair to the runtime.
    pub control: OwnedFd,
    /// A pidfd of the runtime.
    pub runtime: OwnedFd,
    /// The runtime's /proc: no file of it is the container's to exchange.
    pub proc: OwnedFd,
    /// What `start` will connect to.
    pub door: Option<OwnedFd>,
    /// Its standard streams, where they are not the runtime's.
    pub streams: Option<[OwnedFd; 3]>,
    /// Whether to die with the runtime for good.
    pub die_with_runtime: bool,
}

/// Who was born.
#[derive(Debug)]
pub struct Newborn {
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
pub fn bear(born: Born<'_>, ours: OwnedFd, cgroup: Option<BorrowedFd<'_>>) -> SysResult<Newborn> {
    if own::thread_count()? != 1 {
        return Err(Errno::EDEADLK);
    }
    let namespaces = if born.plan.intermediate { 0 } else { born.plan.namespaces };
    // SAFETY: one thread, as just seen; the child runs this module, which uses no heap.
    match unsafe { clone::clone3(namespaces, cgroup)? } {
        clone::Side::Child => {
            // Our copy of the runtime's end would keep the stream open after the runtime's death.
            drop(ours);
            if keep_own(&born).is_err() {
                own::exit_now(125);
            }
            if born.plan.intermediate { intermediate(born) } else { steps::walk(born) }
        }
        clone::Side::Parent { pid, pidfd } => Ok(Newborn { pid, pidfd, control: ours }),
    }
}

/// Closes what the runtime had open for itself: the lock of a container, which an init that outlives its maker would
/// hold on, its cgroups, its log.
fn keep_own(born: &Born<'_>) -> SysResult<()> {
    let first = born.plan.steps.as_slice().iter().find_map(|step| match step {
        Step::CloseDescriptors { from } => i32::try_from(*from).ok(),
        _ => None,
    });
    let streams = born.streams.iter().flatten();
    let joins = born.joins.iter().map(|(file, _)| file);
    let kept =
        [&born.control, &born.runtime, &born.proc].into_iter().chain(&born.door).chain(streams).chain(joins);
    // SAFETY: what owns the others lies in frames of the runtime's that the child never returns to.
    unsafe { file::close_others(first.unwrap_or(3), kept.map(AsRawFd::as_raw_fd)) }
}

/// Joins the namespaces and makes the child in them. Never returns.
fn intermediate(born: Born<'_>) -> ! {
    let control = born.control.as_fd();
    let fail = |report: Report| -> ! {
        let _ = scm::send(control, &report.encode(), &[]);
        own::exit_now(125)
    };
    if die_with(born.runtime.as_fd()).and_then(|()| await_go(control)).is_err() {
        own::exit_now(125);
    }
    let clocks = born.plan.early_clocks.as_deref().map(|offsets| (clocks_file(&born), offsets));
    // The maps of a new user namespace are written by a runtime that must find the child dumpable.
    if born.plan.namespaces & libc::CLONE_NEWUSER as u64 == 0 {
        let _ = own::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0);
    }
    if let Err((join, errno)) = join_all(born.joins) {
        fail(Report::JoinFailed { join, errno: errno as i32 });
    }
    if let Some((file, offsets)) = clocks
        && let Err(errno) = file.and_then(|file| new_clocks(file.as_fd(), offsets))
    {
        fail(Report::ClocksFailed { errno: errno as i32 });
    }
    // SAFETY: this process has one thread, the child runs the walk alone, and we do nothing more.
    match unsafe { clone::clone3_sibling(born.plan.namespaces) } {
        Ok(true) => {
            if scm::send(control, &Report::Waiting.encode(), &[]).is_err() {
                own::exit_now(125);
            }
            steps::walk(born)
        }
        Ok(false) => own::exit_now(0),
        Err(errno) => fail(Report::CloneFailed { errno: errno as i32 }),
    }
}

/// Our own offsets, opened while we are still the caller's: who may write them is decided by who opened them.
fn clocks_file(born: &Born<'_>) -> SysResult<OwnedFd> {
    file::open(born.proc.as_fd(), c"self/timens_offsets", libc::O_WRONLY, 0, Resolve::Ordinary)
}

/// A time namespace for the child, with its offsets.
fn new_clocks(file: BorrowedFd<'_>, offsets: &CStr) -> SysResult<()> {
    namespace::unshare(libc::CLONE_NEWTIME)?;
    if offsets.is_empty() { Ok(()) } else { file::write_all(file, offsets.to_bytes()) }
}

/// First with the runtime's own rights, which may be needed to enter what is not the user namespace's; those
/// that it may not enter wait until the user namespace is entered.
fn join_all(joins: &[(OwnedFd, u64)]) -> Result<(), (u32, Errno)> {
    const USER: u64 = libc::CLONE_NEWUSER as u64;
    let mut later = 0u32;
    let numbered = || (0u32..).zip(joins);
    for (index, (file, flag)) in numbered().filter(|(_, (_, flag))| *flag != USER) {
        match join(file, *flag) {
            Ok(()) => {}
            Err(Errno::EPERM) if index < 32 => later |= 1 << index,
            Err(errno) => return Err((index, errno)),
        }
    }
    for (index, (file, flag)) in numbered().filter(|(_, (_, flag))| *flag == USER) {
        join(file, *flag).map_err(|errno| (index, errno))?;
    }
    for (index, (file, flag)) in numbered().filter(|(index, _)| *index < 32 && later & (1 << index) != 0) {
        join(file, *flag).map_err(|errno| (index, errno))?;
    }
    Ok(())
}

fn join(file: &OwnedFd, flags: u64) -> SysResult<()> {
    namespace::join(file.as_fd(), libc::c_int::try_from(flags).map_err(|_| Errno::EINVAL)?)
}

/// Dies with the runtime: the signal alone would miss one that died before it was set.
fn die_with(runtime: BorrowedFd<'_>) -> SysResult<()> {
    own::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)?;
    if own::is_ready(runtime.as_raw_fd(), libc::POLLIN)? {
        own::exit_now(125);
    }
    Ok(())
}

/// Waits for [`Answer::Go`]. The end of the stream means that the runtime gave up, and has said why.
fn await_go(control: BorrowedFd<'_>) -> SysResult<()> {
    let mut buffer = [0; LEN];
    let received = scm::receive(control, &mut buffer)?;
    match Answer::decode(&buffer[..received.len]) {
        Some(Answer::Go) => Ok(()),
        _ => own::exit_now(125),
    }
}
