//! A process of saggar that serves sockets of a sandbox, seen from inside: how it starts, and what it and the supervisor
//! send each other. The model API and the mailbox are served in this way.
//!
//! ```text
//!  supervisor ── ServiceConfig, a descriptor ──> process: takes what it needs, drops its rights
//!             <── Ready, or Failed ──
//!             ── a listening socket of the sandbox ──> serves it; reports errors
//! ```
//! The messages are JSON, one a packet of a seqpacket socket, which is the process's standard input. The process ends
//! with its supervisor, and when the supervisor closes the socket.

use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file::set_nonblocking;
use saggar_sys::spawn;
use saggar_sys::{Errno, file, process, scm};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// Largest message, in bytes.
pub const MAX_MESSAGE_SIZE: usize = 16 << 10;
/// The message that accompanies a listening socket.
pub const SOCKET_MESSAGE: &[u8] = b"s";

/// What the supervisor sends first.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServiceConfig<C> {
    /// The pid of the supervisor, or of the launcher that started the process in its place.
    pub parent: i32,
    /// What is to be served.
    pub service: C,
}

/// What the process reports.
#[derive(Debug, Serialize, Deserialize)]
pub enum ServiceEvent {
    /// It has what it needs, and serves the sockets that it gets.
    Ready,
    /// It could not start, and exits.
    Failed(Error),
    /// Something that it serves does not work at present; why, as a sentence.
    Unavailable(String),
}

impl<C: Serialize> ServiceConfig<C> {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl ServiceEvent {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes a message; `None` if it is not valid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// Runs the process: `prepare` takes the configuration and its descriptor and drops the process's rights, and `serve` ends
/// when the supervisor does. Returns the exit status.
pub fn run<C: DeserializeOwned, T>(
    name: &CStr,
    prepare: impl FnOnce(ServiceConfig<C>, Option<OwnedFd>) -> Result<T>,
    serve: impl FnOnce(T, OwnedFd) -> io::Result<()>,
) -> u8 {
    let Ok(supervisor) = spawn::close_inherited().and_then(|()| file::duplicate(0)) else { return 1 };
    let _ = process::set_name(name);
    let prepared = receive_config(&supervisor)
        .and_then(|(config, descriptor)| prepare(config, descriptor))
        .and_then(|prepared| report_ready(&supervisor).map(|()| prepared));
    match prepared {
        Ok(prepared) => u8::from(serve(prepared, supervisor).is_err()),
        Err(error) => {
            let _ = scm::send(supervisor.as_fd(), &ServiceEvent::Failed(error).encode(), &[]);
            1
        }
    }
}

fn receive_config<C: DeserializeOwned>(supervisor: &OwnedFd) -> Result<(ServiceConfig<C>, Option<OwnedFd>)> {
    let mut buffer = [0; MAX_MESSAGE_SIZE];
    let mut received = scm::receive(supervisor.as_fd(), &mut buffer)
        .map_err(|e| Error::system("receive from the supervisor", e.desc()))?;
    let config = buffer.get(..received.len).and_then(|bytes| serde_json::from_slice(bytes).ok());
    match config {
        Some(config) => Ok((config, received.fds[0].take())),
        None => Err(Error::new(Code::Usage, "this process is started by a supervisor of saggar")),
    }
}

fn report_ready(supervisor: &OwnedFd) -> Result<()> {
    scm::send(supervisor.as_fd(), &ServiceEvent::Ready.encode(), &[])
        .map_err(|e| Error::system("send to the supervisor", e.desc()))?;
    set_nonblocking(supervisor.as_fd())
}

/// Ends this process with `parent`, which must still be its parent. Call it after a change of the user id, which
/// clears the signal (`PR_SET_PDEATHSIG` in prctl(2)).
///
/// # Errors
/// [`Code::State`]: the parent has exited.
pub fn end_with_parent(parent: i32) -> Result<()> {
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)
        .map_err(|errno: Errno| Error::system("follow the supervisor", errno.desc()))?;
    match nix::unistd::getppid().as_raw() == parent {
        true => Ok(()),
        false => Err(Error::new(Code::State, "the supervisor is gone")),
    }
}

/// The supervisor's end, in the event loop of the process.
#[derive(Debug)]
pub struct SupervisorSocket(UnixDatagram);

impl SupervisorSocket {
    /// The socket is seqpacket, not datagram; both keep the boundaries of messages.
    ///
    /// # Errors
    /// The event loop cannot watch it.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        UnixDatagram::from_std(socket.into()).map(SupervisorSocket)
    }

    /// The next listening socket; `None` when the supervisor has closed its end.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn next_listener(&self) -> io::Result<Option<OwnedFd>> {
        loop {
            self.0.readable().await?;
            let mut buffer = [0; MAX_MESSAGE_SIZE];
            let received =
                self.0.try_io(Interest::READABLE, || Ok(scm::receive(self.0.as_fd(), &mut buffer)?));
            match received {
                Ok(received) if received.len == 0 => return Ok(None),
                Ok(mut received) => {
                    let is_socket = buffer.get(..received.len) == Some(SOCKET_MESSAGE);
                    if let Some(socket) = received.fds[0].take().filter(|_| is_socket) {
                        return Ok(Some(socket));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reports an event. The supervisor may be gone; then this process is about to end as well.
    pub fn report(&self, event: &ServiceEvent) {
        let _ = scm::send(self.0.as_fd(), &event.encode(), &[]);
    }
}
