//! Forwards lines of the program that are not messages to the container's standard output.
//!
//! That belongs to the orchestrator, and other processes write to it, so its file description must not become
//! non-blocking. A pipe is reopened, a socket is written to with MSG_DONTWAIT, and for any other file poll(2) reports
//! when it is writable.

use crate::bridge::io::Outbox;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Queued bytes from which no more output is read from the program.
const BACKLOG_LIMIT: usize = 1 << 20;

/// The queue and its target.
#[derive(Debug)]
pub(super) struct StdoutForwarder {
    target: StdoutTarget,
    queue: Outbox,
    is_registered: bool,
}

#[derive(Debug)]
enum StdoutTarget {
    /// A file description of our own, non-blocking.
    Reopened(OwnedFd),
    Socket(OwnedFd),
    Polled(OwnedFd),
}

impl StdoutForwarder {
    pub(super) fn new(stdout: OwnedFd) -> Self {
        let kind = fstat(&stdout).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let path = format!("/proc/self/fd/{}", stdout.as_raw_fd());
        let to = match kind {
            Ok(SFlag::S_IFIFO) => match nix::fcntl::open(path.as_str(), flags, Mode::empty()) {
                Ok(own) => StdoutTarget::Reopened(own),
                Err(_) => StdoutTarget::Polled(stdout),
            },
            Ok(SFlag::S_IFSOCK) => StdoutTarget::Socket(stdout),
            _ => StdoutTarget::Polled(stdout),
        };
        StdoutForwarder { target: to, queue: Outbox::default(), is_registered: false }
    }

    /// Queues a line and its newline.
    pub(super) fn push(&mut self, mut line: Vec<u8>) {
        line.push(b'\n');
        self.queue.push(line);
    }

    /// Whether the program must wait.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= BACKLOG_LIMIT
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Writes what does not block; for the rest `token` gets an event later.
    pub(super) fn flush_queue(&mut self, registry: &Registry, token: Token) {
        if self.queue.is_empty() {
            return;
        }
        if self.queue.write_to(&mut self.target).is_err() {
            // The reader has closed its end: the lines are dropped, and the program is not affected.
            return self.queue.clear();
        }
        if !self.queue.is_empty() {
            let fd = self.target.fd().as_raw_fd();
            let mut source = SourceFd(&fd);
            // Tries even while it is registered: it may be writable by now, and each change is reported once.
            let done = if self.is_registered {
                registry.reregister(&mut source, token, Interest::WRITABLE)
            } else {
                registry.register(&mut source, token, Interest::WRITABLE)
            };
            self.is_registered |= done.is_ok();
        }
    }
}

impl StdoutTarget {
    fn fd(&self) -> &OwnedFd {
        match self {
            StdoutTarget::Reopened(fd) | StdoutTarget::Socket(fd) | StdoutTarget::Polled(fd) => fd,
        }
    }
}

impl Write for StdoutTarget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            StdoutTarget::Reopened(fd) => nix::unistd::write(&*fd, bytes),
            StdoutTarget::Socket(fd) => {
                send(fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
            }
            StdoutTarget::Polled(fd) => {
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
