//! Listens on more ports of the sandbox's network, which needs the rights of its owner.

use super::LISTEN;
use super::request::{encode_request, read_request};
use crate::stage::agent::launcher::Launcher;
use crate::stage::agent::ports;
use crate::sys::{Errno, SysResult};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Sockets that accept connections to these ports of any address, in the network namespace of `namespace_socket`.
///
/// # Errors
/// Those of [`crate::stage::agent::ports::receive_listeners`]; EPIPE when the launcher has exited.
pub(in crate::supervise) fn open_listeners(
    launcher: &Launcher,
    namespace_socket: BorrowedFd<'_>,
    ports: &[u16],
) -> SysResult<Vec<OwnedFd>> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let request =
        encode_request(&ports).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
    launcher.start_worker(
        LISTEN,
        0,
        &[theirs.as_raw_fd(), request.as_raw_fd(), namespace_socket.as_raw_fd()],
    )?;
    drop(theirs);
    ports::receive_listeners(ours.as_fd(), ports.len())
}

/// In the worker: serves one request.
pub(super) fn serve_request(to: OwnedFd, request: Option<OwnedFd>, beside: Option<OwnedFd>) {
    let Some((request, beside)) = request.zip(beside) else { return };
    if let Ok(numbers) = read_request::<Vec<u16>>(request) {
        ports::send_listeners(beside.as_fd(), &numbers, to.as_fd());
    }
}
