//! The end of the process that started saggar (`--die-with-parent`), as a descriptor: pidfd_open(2).
//!
//! PR_SET_PDEATHSIG would report the end of the thread that forked, which ends earlier than its process in many servers.
//! A parent that exits before saggar runs is not seen: the kernel has given this process another parent by then.

use crate::error::{Code, Error, Result};
use crate::sys::pidfd;
use mio::Token;
use nix::errno::Errno;
use nix::unistd::getppid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Of its events, in each loop.
pub(super) const TOKEN: Token = Token(6);

/// Readable when the parent has exited.
#[derive(Debug)]
pub struct ParentWatch {
    pidfd: OwnedFd,
}

impl ParentWatch {
    /// Opens the parent of this process.
    ///
    /// # Errors
    /// [`Code::State`] if it exits meanwhile, [`Code::Unsupported`] if it is outside of this pid namespace.
    pub fn open() -> Result<Self> {
        let parent = getppid();
        if parent.as_raw() == 0 {
            let message = "--die-with-parent: the parent process is outside of this pid namespace";
            return Err(Error::new(Code::Unsupported, message)
                .hint("start saggar from a process of the same pid namespace"));
        }
        let exited = || Error::new(Code::State, "--die-with-parent: the parent process has exited");
        let pidfd = match pidfd::open(parent.as_raw()) {
            Ok(pidfd) => pidfd,
            Err(Errno::ESRCH) => return Err(exited()),
            Err(errno) => return Err(Error::system("open the parent process", errno.desc())),
        };
        // Another process can have its number by now; then this process has another parent.
        match getppid() == parent {
            true => Ok(ParentWatch { pidfd }),
            false => Err(exited()),
        }
    }
}

impl AsFd for ParentWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
