//! Listens at more ports of the sandbox's network, which takes the rights of its owner.

use super::PORTS;
use super::call::{asked, written};
use crate::stage::launcher::Launcher;
use crate::stage::ports;
use crate::sys::{Errno, SysResult};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Sockets that hear whoever calls these ports of any address, in the network namespace of `beside`.
///
/// # Errors
/// Those of [`ports::receive`]; EPIPE where there is no launcher any more.
pub(in crate::supervise) fn listen(
    launcher: &Launcher,
    beside: BorrowedFd<'_>,
    ports: &[u16],
) -> SysResult<Vec<OwnedFd>> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let request = written(&ports).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
    launcher.work(PORTS, 0, &[theirs.as_raw_fd(), request.as_raw_fd(), beside.as_raw_fd()])?;
    drop(theirs);
    ports::receive(ours.as_fd(), ports.len())
}

/// The worker's side.
pub(super) fn answer(to: OwnedFd, request: Option<OwnedFd>, beside: Option<OwnedFd>) {
    let Some((request, beside)) = request.zip(beside) else { return };
    if let Ok(numbers) = asked::<Vec<u16>>(request) {
        ports::send(beside.as_fd(), &numbers, to.as_fd());
    }
}
