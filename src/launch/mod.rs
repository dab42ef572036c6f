//! The parent's side of a start: opens what the plan names, clones once, writes the id maps, lets the
//! child go.
//!
//! Who runs here: the supervisor, with one thread (asserted), with the caller's rights. Everything that
//! can be prepared is prepared before the clone, since the child does no work.

pub mod container;
pub mod exec;
pub mod guard;
pub mod hint;
pub mod ids;
mod reserve;
pub mod streams;
pub mod trees;

use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::plan::ids::Maps;
use crate::stage;
use crate::stage::launcher::Launcher;
use crate::stage::wire::{LEN, Report, Request};
use crate::sys::{Errno, pidfd, process, scm};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// A sandbox whose pid 1 exists. Dropping it without more ends the sandbox: pid 1 sees the end of the
/// control stream.
#[derive(Debug)]
pub struct Launched {
    /// pid 1 of the sandbox, as the host numbers it.
    pub pid: i32,
    /// A pidfd of it.
    pub pidfd: OwnedFd,
    /// The supervisor's end of the socketpair to it.
    pub control: OwnedFd,
    /// Who kills it for a supervisor that has no right to.
    pub launcher: Option<Rc<Launcher>>,
}

/// Starts the sandbox of `plan`, in `cgroup` when there is one. pid 1 may still be at work on its steps when
/// this returns; [`Launched::next_report`] tells how they went.
///
/// # Errors
/// [`crate::error::Code::System`] and [`crate::error::Code::Unsupported`] with the cure; nothing is left behind.
pub fn start(plan: &Plan, cgroup: Option<BorrowedFd<'_>>) -> Result<Launched> {
    let files = trees::open_all(plan)?;
    let (ours, theirs) = socket_pair()?;
    let supervisor = pidfd::open(std::process::id().cast_signed())
        .map_err(|e| Error::system("open a pidfd of saggar itself", e))?;
    let born = stage::Born { plan, files: &files, control: theirs, supervisor };
    let (pid, pidfd, control) = {
        let _reserve = reserve::Reserve::take();
        stage::bear(born, ours, cgroup).map_err(hint::clone_failed)?
    };
    let launched = Launched { pid, pidfd, control, launcher: None };
    let ready = write_maps(pid, &plan.maps)
        .and_then(|()| launched.send(Request::Go, &[]))
        .and_then(|()| launched.send_trees(plan, &files));
    match ready {
        Ok(()) => Ok(launched),
        Err(error) => {
            launched.kill_and_reap();
            Err(error)
        }
    }
}

impl Launched {
    /// Sends a request to pid 1.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when pid 1 is gone.
    pub fn send(&self, request: Request, fds: &[std::os::fd::RawFd]) -> Result<()> {
        scm::send(self.control.as_fd(), &request.encode(), fds)
            .map_err(|e| Error::system("speak to pid 1 of the sandbox", e))
    }

    /// Maps the owners of the named trees and hands them over, while the child is at work on the rest.
    fn send_trees(&self, plan: &Plan, files: &[OwnedFd]) -> Result<()> {
        let trees = trees::idmapped(plan, files)?;
        for some in trees.chunks(scm::MAX_FDS) {
            let fds: Vec<_> = some.iter().map(AsRawFd::as_raw_fd).collect();
            match self.send(Request::Trees, &fds) {
                // A child that ended has said why: that is what its supervisor hears first.
                Err(_) if process::is_ready(self.pidfd.as_raw_fd(), libc::POLLIN) == Ok(true) => break,
                other => other?,
            }
        }
        Ok(())
    }

    /// The next thing that pid 1 says, with the descriptor that came beside it; `None` when it is gone.
    /// Waits, unless the socket was made non-blocking: then [`Errno::EAGAIN`] says "nothing now".
    ///
    /// # Errors
    /// The error number of recvmsg(2).
    pub fn next_report(&self) -> Result<Option<(Report, Option<OwnedFd>)>, Errno> {
        let mut buffer = [0; LEN];
        let mut received = match scm::receive(self.control.as_fd(), &mut buffer) {
            Err(Errno::ECONNRESET) => return Ok(None),
            other => other?,
        };
        let fd = received.fds[0].take();
        Ok(Report::decode(&buffer[..received.len]).map(|report| (report, fd)))
    }

    /// Ends the sandbox at once and waits until its last process is gone.
    pub fn kill_and_reap(&self) {
        let killed = match &self.launcher {
            Some(launcher) => launcher.kill(),
            None => pidfd::signal(self.pidfd.as_fd(), libc::SIGKILL).is_ok(),
        };
        if !killed {
            // pid 1 ends by itself when this stream does.
            let _ = nix::sys::socket::shutdown(self.control.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        }
        let _ = pidfd::reap(self.pidfd.as_fd());
    }
}

/// A close-on-exec socketpair that keeps message boundaries.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(|e| Error::system("make a socketpair", e))
}

/// Writes the maps of the user namespace of `pid`, our unreaped child, so that the number is surely its.
pub(crate) fn write_maps(pid: i32, maps: &Maps) -> Result<()> {
    let write = |name: &str, text: &str| {
        let path = format!("/proc/{pid}/{name}");
        let file = nix::fcntl::open(
            path.as_str(),
            nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_CLOEXEC,
            nix::sys::stat::Mode::empty(),
        )
        .map_err(|e| Error::system(format_args!("open {name} of the sandbox"), e))?;
        // One write: the kernel takes a map whole or not at all.
        nix::unistd::write(file.as_fd(), text.as_bytes())
            .map(drop)
            .map_err(|e| hint::map_failed(name, text, e))
    };
    if maps.deny_setgroups {
        write("setgroups", "deny")?;
    }
    // A namespace may lack a map: its ids are nobody's.
    let map = |name, text: &str| if text.is_empty() { Ok(()) } else { write(name, text) };
    map("gid_map", &maps.gid)?;
    map("uid_map", &maps.uid)
}

/// Makes a descriptor non-blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<()> {
    let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL)
        .map_err(|e| Error::system(format_args!("read the flags of descriptor {}", fd.as_raw_fd()), e))?;
    let flags = nix::fcntl::OFlag::from_bits_truncate(flags) | nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(flags))
        .map(drop)
        .map_err(|e| Error::system("make a descriptor non-blocking", e))
}
