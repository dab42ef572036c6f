//! More listening sockets in the network namespace of a sandbox that runs.
//!
//! Nobody inside may open a port below 1024 any more, and the supervisor is not in there. A copy of it is sent in: it
//! joins the user namespace and the network namespace, of which it then has all capabilities, sends the sockets back
//! and ends. It never sees anything else of the sandbox, and the sandbox nothing of it.

use crate::sys::catch::{Kind, listen_everywhere};
use crate::sys::{Errno, SysResult, clone, namespace, net, process, scm};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of a message: the error number, in which 0 is none.
const LEN: usize = 4;

/// Sockets that hear whoever calls these ports of any address, in the network namespace of `beside`.
///
/// # Errors
/// EADDRINUSE when a program inside has one of them; what socket(2), setns(2) and clone(2) say.
pub fn listen(beside: BorrowedFd<'_>, ports: &[u16]) -> SysResult<Vec<OwnedFd>> {
    let network = net::namespace_of(beside)?;
    let user = namespace::owner(network.as_fd())?;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the child makes system calls, and nothing else.
    let child = match unsafe { clone::fork()? } {
        0 => {
            let said = match send_all(user.as_fd(), network.as_fd(), ports, theirs.as_fd()) {
                Ok(()) => 0,
                Err(errno) => errno as i32,
            };
            let _ = scm::send(theirs.as_fd(), &said.to_ne_bytes(), &[]);
            process::exit_now(0)
        }
        child => child,
    };
    drop(theirs);
    let received = receive_all(ours.as_fd(), ports.len());
    let _ = waitpid(Pid::from_raw(child), None);
    received
}

fn send_all(
    user: BorrowedFd<'_>,
    network: BorrowedFd<'_>,
    ports: &[u16],
    to: BorrowedFd<'_>,
) -> SysResult<()> {
    namespace::join(user, libc::CLONE_NEWUSER)?;
    namespace::join(network, libc::CLONE_NEWNET)?;
    ports.iter().try_for_each(|port| {
        let socket = listen_everywhere(Kind::Tcp, *port)?;
        scm::send(to, &0i32.to_ne_bytes(), &[socket.as_raw_fd()])
    })
}

/// As many sockets as were asked for, and the word that these are all.
fn receive_all(from: BorrowedFd<'_>, count: usize) -> SysResult<Vec<OwnedFd>> {
    let mut sockets = Vec::new();
    loop {
        let mut said = [0; LEN];
        let received = scm::receive(from, &mut said)?;
        let [socket, ..] = received.fds;
        match (received.len, i32::from_ne_bytes(said), socket) {
            (LEN, 0, Some(socket)) => sockets.push(socket),
            (LEN, 0, None) if sockets.len() == count => return Ok(sockets),
            (LEN, errno, _) if errno != 0 => return Err(Errno::from_raw(errno)),
            // It was killed.
            _ => return Err(Errno::EIO),
        }
    }
}
