//! `--pidfd-socket`: sends a pidfd of the program to this socket, with the word that runc sends beside it.

use crate::error::{Error, Result};
use crate::launch::container::connect_to_socket;
use crate::sys::scm;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Beside the pidfd of a container's first process.
pub(super) const OF_INIT: &str = "standard";
/// Beside that of a program of `exec`.
pub(super) const OF_EXEC: &str = "setns";

/// The connection, made first of all, to fail early if no process listens.
#[derive(Debug)]
pub(super) struct PidfdSocket(Option<OwnedFd>);

impl PidfdSocket {
    pub(super) fn connect(path: Option<&Path>) -> Result<Self> {
        path.map(|path| connect_to_socket(path, "--pidfd-socket")).transpose().map(PidfdSocket)
    }

    pub(super) fn send(&self, word: &str, pidfd: BorrowedFd<'_>) -> Result<()> {
        let Some(socket) = &self.0 else { return Ok(()) };
        scm::send(socket.as_fd(), word.as_bytes(), &[pidfd.as_raw_fd()])
            .map_err(|errno| Error::system("send a pidfd to --pidfd-socket", errno.desc()))
    }
}
