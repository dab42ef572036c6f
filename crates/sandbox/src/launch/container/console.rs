//! `--console-socket`: sends the terminal's master to this socket.

use super::ConsoleTarget;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::scm;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// The connection, made first of all, to fail early if no process listens.
#[derive(Debug)]
pub(super) struct ConsoleSocket(Option<OwnedFd>);

impl ConsoleSocket {
    pub(super) fn connect(console: ConsoleTarget<'_>) -> Result<Self> {
        match console {
            ConsoleTarget::Socket(path) => {
                connect_to(path, "--console-socket").map(|socket| ConsoleSocket(Some(socket)))
            }
            ConsoleTarget::None | ConsoleTarget::Keep => Ok(ConsoleSocket(None)),
        }
    }

    /// Sends the master, with the terminal's name inside the container.
    pub(super) fn send(&mut self, number: u32, master: OwnedFd) -> Result<()> {
        let socket = self.0.take().ok_or_else(|| {
            Error::new(Code::Invalid, "process.terminal is true, and no process takes the terminal")
                .hint("name a --console-socket")
        })?;
        let name = format!("/dev/pts/{number}");
        scm::send(socket.as_fd(), name.as_bytes(), &[master.as_raw_fd()])
            .map_err(|e| Error::system("send the terminal to --console-socket", e.desc()))
    }
}

/// Connects to a stream socket by its path, which may be longer than a socket address. `what` names it in errors.
///
/// # Errors
/// [`Code::Invalid`] if nothing listens there.
pub fn connect_to(path: &Path, what: &str) -> Result<OwnedFd> {
    let fail = |errno: nix::errno::Errno| {
        Error::new(Code::Invalid, format!("connect to {what} {}: {}", path.display(), errno.desc()))
    };
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map_err(fail)?;
    let address = match UnixAddr::new(path) {
        Ok(address) => address,
        // A path of more than 107 bytes is reached through its directory.
        Err(_) => return connect_by_directory(path, what, &socket).map(|()| socket),
    };
    connect(socket.as_raw_fd(), &address).map_err(fail)?;
    Ok(socket)
}

fn connect_by_directory(path: &Path, what: &str, socket: &OwnedFd) -> Result<()> {
    let fail = |cause: &dyn std::fmt::Display| {
        Error::new(Code::Invalid, format!("connect to {what} {}: {cause}", path.display()))
    };
    let directory = path.parent().and_then(|parent| std::fs::File::open(parent).ok());
    let (Some(directory), Some(name)) = (directory, path.file_name()) else {
        return Err(fail(&"there is no such directory"));
    };
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    let address = UnixAddr::new(&short).map_err(|e| fail(&e.desc()))?;
    connect(socket.as_raw_fd(), &address).map_err(|e| fail(&e.desc()))
}
