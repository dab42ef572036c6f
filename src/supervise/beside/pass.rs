//! Lines of the program that are no messages, on their way to where the container's standard output goes.
//!
//! That is the orchestrator's, and others write to it: its file description is not ours to make non-blocking. A
//! pipe is opened once more, a socket is written to with MSG_DONTWAIT; of anything else poll(2) says when it takes
//! something.

use crate::bridge::io::Outbox;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// How much may wait until no more is read from the program.
const FULL: usize = 1 << 20;

/// The way out.
#[derive(Debug)]
pub(super) struct Pass {
    to: To,
    waiting: Outbox,
    watched: bool,
}

#[derive(Debug)]
enum To {
    /// A description of our own, non-blocking.
    Own(OwnedFd),
    Socket(OwnedFd),
    Polled(OwnedFd),
}

impl Pass {
    pub(super) fn new(stdout: OwnedFd) -> Self {
        let kind = fstat(&stdout).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let path = format!("/proc/self/fd/{}", stdout.as_raw_fd());
        let to = match kind {
            Ok(SFlag::S_IFIFO) => match nix::fcntl::open(path.as_str(), flags, Mode::empty()) {
                Ok(own) => To::Own(own),
                Err(_) => To::Polled(stdout),
            },
            Ok(SFlag::S_IFSOCK) => To::Socket(stdout),
            _ => To::Polled(stdout),
        };
        Pass { to, waiting: Outbox::default(), watched: false }
    }

    /// Adds a line and its newline.
    pub(super) fn push(&mut self, mut line: Vec<u8>) {
        line.push(b'\n');
        self.waiting.push(line);
    }

    /// Whether the program must wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= FULL
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes what is taken now; of the rest `token` tells later.
    pub(super) fn write(&mut self, registry: &Registry, token: Token) {
        if self.waiting.is_empty() {
            return;
        }
        if self.waiting.write_to(&mut self.to).is_err() {
            // Nobody reads it any more; that is no business of the program's.
            return self.waiting.clear();
        }
        if !self.waiting.is_empty() {
            let fd = self.to.fd().as_raw_fd();
            let mut source = SourceFd(&fd);
            // Once more even when it is watched: it may take something by now, and each change is told once.
            let done = if self.watched {
                registry.reregister(&mut source, token, Interest::WRITABLE)
            } else {
                registry.register(&mut source, token, Interest::WRITABLE)
            };
            self.watched |= done.is_ok();
        }
    }
}

impl To {
    fn fd(&self) -> &OwnedFd {
        match self {
            To::Own(fd) | To::Socket(fd) | To::Polled(fd) => fd,
        }
    }
}

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            To::Own(fd) => nix::unistd::write(&*fd, bytes),
            To::Socket(fd) => send(fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL),
            To::Polled(fd) => {
                let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
                if !poll(&mut polled, PollTimeout::ZERO).is_ok_and(|count| count > 0) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                nix::unistd::write(&*fd, &bytes[..bytes.len().min(libc::PIPE_BUF)])
            }
        }
        .map_err(io::Error::from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
