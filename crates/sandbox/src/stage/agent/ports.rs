//! More listening sockets in the network namespace of a sandbox that runs.
//!
//! Nobody inside may open a port below 1024 any more, and the supervisor is not in there. A worker is sent in: it
//! joins the user namespace and the network namespace, of which it then has all capabilities, sends the sockets back
//! and ends. It never sees anything else of the sandbox, and the sandbox nothing of it.

use saggar_sys::redirect::{SocketProtocol, listen_everywhere};
use saggar_sys::{Errno, SysResult, namespace, net, scm};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of a message: the error number, in which 0 is none.
const LEN: usize = 4;

/// The worker's side: sends sockets that hear whoever calls these ports of any address, in the network namespace of
/// `beside`, or why there are none. It stays in that network.
pub fn send_listeners(inside: BorrowedFd<'_>, ports: &[u16], to: BorrowedFd<'_>) {
    let errno = match send_all(inside, ports, to) {
        Ok(()) => 0,
        Err(errno) => errno as i32,
    };
    let _ = scm::send(to, &errno.to_ne_bytes(), &[]);
}

fn send_all(inside: BorrowedFd<'_>, ports: &[u16], to: BorrowedFd<'_>) -> SysResult<()> {
    let network = net::namespace_of(inside)?;
    let user = namespace::owner(network.as_fd())?;
    namespace::join(user.as_fd(), libc::CLONE_NEWUSER)?;
    namespace::join(network.as_fd(), libc::CLONE_NEWNET)?;
    ports.iter().try_for_each(|port| {
        let socket = listen_everywhere(SocketProtocol::Tcp, *port)?;
        scm::send(to, &0i32.to_ne_bytes(), &[socket.as_raw_fd()])
    })
}

/// As many sockets as were asked for, and the word that these are all.
///
/// # Errors
/// EADDRINUSE when a program inside has one of them; what socket(2) and setns(2) say; EIO when the worker was killed.
pub fn receive_listeners(from: BorrowedFd<'_>, count: usize) -> SysResult<Vec<OwnedFd>> {
    let mut sockets = Vec::new();
    loop {
        let mut reply = [0; LEN];
        let received = scm::receive(from, &mut reply)?;
        let [socket, ..] = received.fds;
        match (received.len, i32::from_ne_bytes(reply), socket) {
            (LEN, 0, Some(socket)) => sockets.push(socket),
            (LEN, 0, None) if sockets.len() == count => return Ok(sockets),
            (LEN, errno, _) if errno != 0 => return Err(Errno::from_raw(errno)),
            // It was killed.
            _ => return Err(Errno::EIO),
        }
    }
}
