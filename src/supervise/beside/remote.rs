//! The container, as the loop reaches it: by its keeper ([`super::keeper`]).

use super::wire::{Call, How};
use crate::error::{Code, Error, Result};
use crate::host::peer::{self, UNCERTAIN};
use crate::supervise::worker::call::{MOST, parse, written};
use crate::supervise::worker::callers;
use crate::sys::Errno;
use crate::sys::scm;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

/// How long the keeper may take to end, in milliseconds.
const ENDS_WITHIN: u16 = 1000;

/// The loop's side of a keeper.
#[derive(Debug)]
pub(super) struct Remote {
    calls: OwnedFd,
    /// A pidfd: processes on their way into the container may have copies of the keeper's sockets.
    keeper: OwnedFd,
}

impl Remote {
    pub(super) fn new(calls: OwnedFd, keeper: OwnedFd) -> Self {
        Remote { calls, keeper }
    }

    /// Has the keeper judge callers from now on.
    pub(super) fn judges(self: &Rc<Self>) {
        let remote = Rc::clone(self);
        peer::judge_by(Box::new(move |connection| {
            callers::verdict(remote.call(&Call::Judge, &[connection]).map_err(|_| UNCERTAIN)?)
        }));
    }

    /// Begins the start of a command; a [`super::wire::Told`] each comes where `told` leads.
    pub(super) fn exec(&self, command: String, beside: [BorrowedFd<'_>; 3]) -> Result<()> {
        self.call(&Call::Exec(command), &beside)
    }

    pub(super) fn kill_tree(&self, pid: i32) {
        let _ = self.call::<()>(&Call::KillTree(pid), &[]);
    }

    pub(super) fn kill(&self) {
        // Without a keeper the loop ends, and the guard kills.
        let _ = self.call::<()>(&Call::Kill, &[]);
    }

    pub(super) fn freeze(&self, freeze: bool) -> Result<()> {
        self.call(&Call::Freeze(freeze), &[])
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.call(&Call::IsFrozen, &[]).unwrap_or(false)
    }

    pub(super) fn stats(&self) -> Result<Value> {
        self.call(&Call::Stats, &[])
    }

    pub(super) fn update(&self, resources: &str) -> Result<()> {
        self.call(&Call::Update(resources.to_owned()), &[])
    }

    pub(super) fn state(&self) -> Value {
        self.call(&Call::State, &[]).unwrap_or_default()
    }

    pub(super) fn exit(&self) -> Option<How> {
        self.call(&Call::Exit, &[]).ok().flatten()
    }

    pub(super) fn signal(&self, signal: i32) -> Result<()> {
        self.call(&Call::Signal(signal), &[])
    }

    fn call<T: DeserializeOwned>(&self, call: &Call, beside: &[BorrowedFd<'_>]) -> Result<T> {
        let fails = |e: nix::Error| Error::system("have the keeper of the container do something", e);
        let request = written(call).map_err(|e| Error::system("write a request to the keeper", e))?;
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fails)?;
        let own = [write.as_raw_fd(), request.as_raw_fd()];
        let fds: Vec<RawFd> = own.into_iter().chain(beside.iter().map(AsRawFd::as_raw_fd)).collect();
        scm::send(self.calls.as_fd(), &[0], &fds).map_err(fails)?;
        drop(write);
        let mut said = Vec::new();
        let answer = File::from(read);
        loop {
            let watched = [answer.as_fd(), self.keeper.as_fd()];
            let mut fds = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other.map_err(fails)?,
            };
            if fds[0].any() != Some(true) {
                return Err(Remote::gone());
            }
            let mut chunk = [0; 4096];
            match (&answer).read(&mut chunk) {
                Ok(0) => return parse(&said),
                Ok(count) if said.len() < MOST => said.extend_from_slice(&chunk[..count]),
                Ok(_) => return Err(Remote::gone()),
                Err(e) => return Err(Error::system("hear from the keeper of the container", e)),
            }
        }
    }

    /// Lets the keeper end, and waits until it has: then the files of the sockets are gone.
    pub(super) fn end(&self) {
        let _ = shutdown(self.calls.as_raw_fd(), Shutdown::Both);
        let _ = poll(&mut [PollFd::new(self.keeper.as_fd(), PollFlags::POLLIN)], ENDS_WITHIN);
    }

    /// What the loop ends with.
    pub(super) fn gone() -> Error {
        Error::new(Code::System, "the keeper of the container was killed")
    }
}

impl AsFd for Remote {
    /// Readable when the keeper is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.keeper.as_fd()
    }
}
