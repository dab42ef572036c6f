//! The container, as the loop accesses it: through its keeper ([`super::keeper`]).

use super::keeper_wire::{KeeperCall, ProcessExit};
use crate::error::{Code, Error, Result};
use crate::host::peer::{self, UNVERIFIABLE_PID};
use crate::supervise::worker::peers;
use crate::supervise::worker::request::{MAX_MESSAGE_SIZE, encode_request, parse_response};
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

/// How long the keeper may take to exit, in milliseconds.
const EXIT_TIMEOUT_MS: u16 = 1000;

/// The loop's connection to the keeper.
#[derive(Debug)]
pub(super) struct KeeperClient {
    calls: OwnedFd,
    /// A pidfd of the keeper.
    keeper: OwnedFd,
}

impl KeeperClient {
    pub(super) fn new(calls: OwnedFd, keeper: OwnedFd) -> Self {
        KeeperClient { calls, keeper }
    }

    /// From now on the keeper verifies peers.
    pub(super) fn verify_peers(self: &Rc<Self>) {
        let remote = Rc::clone(self);
        peer::set_peer_check(Box::new(move |connection| {
            peers::decode_verdict(
                remote.call(&KeeperCall::VerifyPeer, &[connection]).map_err(|_| UNVERIFIABLE_PID)?,
            )
        }));
    }

    /// Starts a command; its status messages ([`super::keeper_wire::CommandStatus`]) arrive on the socket in
    /// `passed_fds`.
    pub(super) fn start_command(&self, command: String, passed_fds: [BorrowedFd<'_>; 3]) -> Result<()> {
        self.call(&KeeperCall::StartCommand(command), &passed_fds)
    }

    pub(super) fn kill_tree(&self, pid: i32) {
        let _ = self.call::<()>(&KeeperCall::KillTree(pid), &[]);
    }

    pub(super) fn kill(&self) {
        // Without a keeper the loop ends, and the guard kills the container.
        let _ = self.call::<()>(&KeeperCall::Kill, &[]);
    }

    pub(super) fn freeze(&self, freeze: bool) -> Result<()> {
        self.call(&KeeperCall::Freeze(freeze), &[])
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.call(&KeeperCall::IsFrozen, &[]).unwrap_or(false)
    }

    pub(super) fn stats(&self) -> Result<Value> {
        self.call(&KeeperCall::Stats, &[])
    }

    pub(super) fn update(&self, resources: &str) -> Result<()> {
        self.call(&KeeperCall::Update(resources.to_owned()), &[])
    }

    pub(super) fn state(&self) -> Value {
        self.call(&KeeperCall::State, &[]).unwrap_or_default()
    }

    pub(super) fn init_exit(&self) -> Option<ProcessExit> {
        self.call(&KeeperCall::Exit, &[]).ok().flatten()
    }

    pub(super) fn signal(&self, signal: i32) -> Result<()> {
        self.call(&KeeperCall::Signal(signal), &[])
    }

    fn call<T: DeserializeOwned>(&self, call: &KeeperCall, passed_fds: &[BorrowedFd<'_>]) -> Result<T> {
        let fails = |e: nix::Error| Error::system("have the keeper of the container do something", e);
        let request = encode_request(call).map_err(|e| Error::system("write a request to the keeper", e))?;
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fails)?;
        let own = [write.as_raw_fd(), request.as_raw_fd()];
        let fds: Vec<RawFd> = own.into_iter().chain(passed_fds.iter().map(AsRawFd::as_raw_fd)).collect();
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
                return Err(KeeperClient::keeper_exited_error());
            }
            let mut chunk = [0; 4096];
            match (&answer).read(&mut chunk) {
                Ok(0) => return parse_response(&said),
                Ok(count) if said.len() < MAX_MESSAGE_SIZE => said.extend_from_slice(&chunk[..count]),
                Ok(_) => return Err(KeeperClient::keeper_exited_error()),
                Err(e) => return Err(Error::system("receive from the keeper of the container", e)),
            }
        }
    }

    /// Ends the keeper and waits until it has exited: then the socket files are removed.
    pub(super) fn stop(&self) {
        let _ = shutdown(self.calls.as_raw_fd(), Shutdown::Both);
        let _ = poll(&mut [PollFd::new(self.keeper.as_fd(), PollFlags::POLLIN)], EXIT_TIMEOUT_MS);
    }

    /// The error with which the loop ends when the keeper has exited.
    pub(super) fn keeper_exited_error() -> Error {
        Error::new(Code::System, "the keeper of the container was killed")
    }
}

impl AsFd for KeeperClient {
    /// Readable when the keeper has exited.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.keeper.as_fd()
    }
}
