//! `start.sock` in the state directory of a container: its init waits behind it. The directory is ours alone, and
//! so is whoever knocks.

use crate::error::{Code, Error, Result};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const NAME: &str = "start.sock";

/// The socket on its way; it goes again with this, unless [`Door::leave`] lets it stand.
#[derive(Debug)]
pub(super) struct Door {
    path: PathBuf,
    socket: OwnedFd,
    stays: bool,
}

impl Door {
    /// Makes it in `directory`.
    pub(super) fn make(directory: &Path) -> Result<Self> {
        let path = directory.join(NAME);
        let fail = |errno| Error::system(format_args!("make {}", path.display()), errno);
        let socket = new_socket().map_err(fail)?;
        in_directory(directory, |address| bind(socket.as_raw_fd(), address))?.map_err(fail)?;
        let backlog = Backlog::new(8).map_err(fail)?;
        listen(&socket, backlog).map_err(fail)?;
        Ok(Door { path, socket, stays: false })
    }

    /// The listening end, for the child.
    pub(super) fn listen(&self) -> Result<OwnedFd> {
        self.socket.try_clone().map_err(|e| Error::system("duplicate start.sock", e))
    }

    /// It stands until the container starts.
    pub(super) fn leave(mut self) {
        self.stays = true;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if !self.stays {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Connects to the init of a created container.
pub(super) fn knock(directory: &Path) -> Result<OwnedFd> {
    let fail = |errno: nix::errno::Errno| match errno {
        nix::errno::Errno::ECONNREFUSED | nix::errno::Errno::ENOENT => Error::new(
            Code::Refused,
            "the container's init does not wait for a start: it has ended, or was started",
        )
        .hint("see its state; a container whose init died is stopped, and can be deleted"),
        other => Error::system("reach the container's init", other.desc()),
    };
    let socket = new_socket().map_err(fail)?;
    in_directory(directory, |address| connect(socket.as_raw_fd(), address))?.map_err(fail)?;
    Ok(socket)
}

/// Takes the socket away: nobody waits behind it any more.
pub(super) fn remove(directory: &Path) {
    let _ = fs::remove_file(directory.join(NAME));
}

fn new_socket() -> nix::Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)
}

/// A path to a socket has 107 bytes at most: it is named by way of the open directory.
fn in_directory<T>(directory: &Path, then: impl FnOnce(&UnixAddr) -> T) -> Result<T> {
    let open =
        File::open(directory).map_err(|e| Error::system(format_args!("open {}", directory.display()), e))?;
    let path = format!("/proc/self/fd/{}/{NAME}", open.as_raw_fd());
    let address = UnixAddr::new(path.as_str()).map_err(|e| Error::system("name start.sock", e))?;
    Ok(then(&address))
}
