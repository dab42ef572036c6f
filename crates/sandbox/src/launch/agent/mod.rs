//! The parent's side of the start of an agent's sandbox: opens the plan's source paths, clones once, writes the id
//! maps, releases the child.

pub mod cleanup;
pub mod exec;
pub mod hint;
mod process_limits;
mod rlimit_reserve;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod skipped_entries;
pub mod streams;
pub mod trees;

use crate::launch::write_maps;
use crate::plan::agent::AgentPlan;
use crate::stage::agent as stage;
use crate::stage::agent::launcher::Launcher;
use crate::stage::agent::wire::{InitReport, InitRequest};
use crate::stage::wire::LEN;
use saggar_sys::error::{Error, Result};
use saggar_sys::scm::socket_pair;
use saggar_sys::{Errno, pidfd, scm};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

/// A sandbox whose pid 1 exists. Dropping it ends the sandbox: pid 1 reads the end of the control stream.
#[derive(Debug)]
pub struct LaunchedSandbox {
    /// The host pid of the sandbox's pid 1.
    pub pid: i32,
    /// A pidfd of pid 1.
    pub pidfd: OwnedFd,
    /// The supervisor's end of the socket pair to pid 1.
    pub control: OwnedFd,
    /// Kills pid 1 for a supervisor that lacks the right to.
    pub launcher: Option<Rc<Launcher>>,
}

/// Starts the sandbox of `plan`, in `cgroup` if there is one. pid 1 is made while the result of `enter` exists, which puts
/// this process into cgroups that a clone cannot enter. pid 1 may still be running its steps when this returns;
/// [`LaunchedSandbox::next_report`] returns their result.
///
/// # Errors
/// [`saggar_sys::error::Code::System`] and [`saggar_sys::error::Code::Unsupported`] with a hint; everything made so far is
/// removed.
pub fn start<M>(
    plan: &AgentPlan,
    cgroup: Option<BorrowedFd<'_>>,
    enter: impl FnOnce() -> Result<M>,
) -> Result<LaunchedSandbox> {
    let files = trees::open_slots(plan)?;
    let (ours, theirs) = socket_pair()?;
    let supervisor = pidfd::open(std::process::id().cast_signed())
        .map_err(|e| Error::system("open a pidfd of saggar itself", e))?;
    let born = stage::AgentChildArgs { plan, files: &files, control: theirs, supervisor };
    let affinity = process_limits::CallerAffinity::read();
    let (pid, pidfd, control) = {
        let _membership = enter()?;
        let _reserve = rlimit_reserve::RlimitReserve::lower();
        stage::spawn(born, ours, cgroup).map_err(super::hint::clone_failed)?
    };
    let launched = LaunchedSandbox { pid, pidfd, control, launcher: None };
    affinity.restore(pid);
    let ready = process_limits::apply(pid, &plan.process_limits)
        .and_then(|()| write_maps(pid, &plan.maps))
        .and_then(|()| launched.send(InitRequest::Go, &[]))
        .and_then(|()| launched.send_trees(plan, &files));
    match ready {
        Ok(()) => Ok(launched),
        Err(error) => {
            launched.kill_and_reap();
            Err(error)
        }
    }
}

fn send_failed(errno: Errno) -> Error {
    Error::system("send to pid 1 of the sandbox", errno)
}

impl LaunchedSandbox {
    /// Sends a request to pid 1.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`] when pid 1 has exited.
    pub fn send(&self, request: InitRequest, fds: &[RawFd]) -> Result<()> {
        self.try_send(request, fds).map_err(send_failed)
    }

    fn try_send(&self, request: InitRequest, fds: &[RawFd]) -> Result<(), Errno> {
        scm::send(self.control.as_fd(), &request.encode(), fds)
    }

    /// Makes the idmapped trees and sends them, while the child runs its other steps.
    fn send_trees(&self, plan: &AgentPlan, files: &[OwnedFd]) -> Result<()> {
        let trees = trees::idmapped_trees(plan, files)?;
        for some in trees.chunks(scm::MAX_FDS) {
            let fds: Vec<_> = some.iter().map(AsRawFd::as_raw_fd).collect();
            match self.try_send(InitRequest::Trees, &fds) {
                // The child has closed its end, and exits: it has reported the cause, which the supervisor receives next.
                Err(Errno::EPIPE | Errno::ECONNRESET) => break,
                other => other.map_err(send_failed)?,
            }
        }
        Ok(())
    }

    /// Receives the next report of pid 1, with the descriptor sent along with it; `None` when pid 1 has exited. Blocks,
    /// unless the socket is non-blocking: then [`Errno::EAGAIN`] means that there is no report yet.
    ///
    /// # Errors
    /// The error number of recvmsg(2).
    pub fn next_report(&self) -> Result<Option<(InitReport, Option<OwnedFd>)>, Errno> {
        let mut buffer = [0; LEN];
        let mut received = match scm::receive(self.control.as_fd(), &mut buffer) {
            Err(Errno::ECONNRESET) => return Ok(None),
            other => other?,
        };
        let fd = received.fds[0].take();
        Ok(InitReport::decode(&buffer[..received.len]).map(|report| (report, fd)))
    }

    /// Kills the sandbox and waits until its last process has exited.
    pub fn kill_and_reap(&self) {
        let killed = match &self.launcher {
            Some(launcher) => launcher.kill() && self.ends_before(launcher.pidfd()),
            None => pidfd::signal(self.pidfd.as_fd(), libc::SIGKILL).is_ok(),
        };
        if !killed {
            // pid 1 exits at the end of this stream.
            let _ = nix::sys::socket::shutdown(self.control.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        }
        let _ = pidfd::reap(self.pidfd.as_fd());
    }

    /// Waits until pid 1 or the launcher that was to kill it has exited. Returns whether pid 1 has: a launcher that was
    /// killed takes no request, and a process that has its end of the socket hides that.
    fn ends_before(&self, launcher: BorrowedFd<'_>) -> bool {
        pidfd::wait_either_exit(self.pidfd.as_fd(), launcher);
        pidfd::has_exited(self.pidfd.as_fd())
    }
}
