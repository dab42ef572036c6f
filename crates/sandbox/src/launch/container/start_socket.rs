//! `start.sock` in the state directory of a container, at which its init waits for `start`. Only the container's owner
//! can enter the directory, and so connect.

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use saggar_sys::error::{Code, Error, Result};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const SOCKET_NAME: &str = "start.sock";

/// The new socket; dropping it removes the socket, unless [`StartSocket::keep`] was called.
#[derive(Debug)]
pub(super) struct StartSocket {
    path: PathBuf,
    socket: OwnedFd,
    keep: bool,
}

impl StartSocket {
    /// Makes the socket in `directory`.
    pub(super) fn bind(directory: &Path) -> Result<Self> {
        let path = directory.join(SOCKET_NAME);
        let fail = |errno| Error::system(format_args!("make {}", path.display()), errno);
        let socket = new_socket().map_err(fail)?;
        with_address(directory, |address| bind(socket.as_raw_fd(), address))?.map_err(fail)?;
        let backlog = Backlog::new(8).map_err(fail)?;
        listen(&socket, backlog).map_err(fail)?;
        Ok(StartSocket { path, socket, keep: false })
    }

    /// Returns the listening end, for the child.
    pub(super) fn listener(&self) -> Result<OwnedFd> {
        self.socket.try_clone().map_err(|e| Error::system("duplicate start.sock", e))
    }

    /// Keeps the socket until the container starts.
    pub(super) fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for StartSocket {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Connects to the init of a created container.
pub(super) fn connect_start(directory: &Path) -> Result<OwnedFd> {
    let fail = |errno: nix::errno::Errno| match errno {
        nix::errno::Errno::ECONNREFUSED | nix::errno::Errno::ENOENT => Error::new(
            Code::Refused,
            "the container's init does not wait for a start: it has ended, or was started",
        )
        .hint("see its state; a container whose init died is stopped, and can be deleted"),
        other => Error::system("reach the container's init", other.desc()),
    };
    let socket = new_socket().map_err(fail)?;
    with_address(directory, |address| connect(socket.as_raw_fd(), address))?.map_err(fail)?;
    Ok(socket)
}

/// Removes the socket, after the init has stopped waiting at it.
pub(super) fn remove(directory: &Path) {
    let _ = fs::remove_file(directory.join(SOCKET_NAME));
}

fn new_socket() -> nix::Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)
}

/// A socket's path is limited to 107 bytes: use a path through the open directory.
fn with_address<T>(directory: &Path, then: impl FnOnce(&UnixAddr) -> T) -> Result<T> {
    let open =
        File::open(directory).map_err(|e| Error::system(format_args!("open {}", directory.display()), e))?;
    let path = format!("/proc/self/fd/{}/{SOCKET_NAME}", open.as_raw_fd());
    let address = UnixAddr::new(path.as_str()).map_err(|e| Error::system("name start.sock", e))?;
    Ok(then(&address))
}
