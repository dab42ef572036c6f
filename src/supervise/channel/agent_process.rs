//! The agent's process: its standard streams, or the socket that it listens on, and how it ended.

use crate::bridge::adapter::AgentTransport;
use crate::bridge::core::AgentExitStatus;
use crate::bridge::io::Outbox;
use crate::error::{Error, Result};
use crate::sys::file::{self, Resolve};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::fcntl::OFlag;
use nix::sys::socket::sockopt::SocketError;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, socket};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Tokens of the agent's streams.
pub(in crate::supervise) const INPUT: Token = Token(10);
pub(in crate::supervise) const OUTPUT: Token = Token(11);
pub(in crate::supervise) const LOG: Token = Token(12);

/// Path of the socket of an agent of the adapter `bridge`, below the sandbox's root.
pub(in crate::supervise) const SOCKET: &std::ffi::CStr = c"run/agent.sock";

/// Most bytes that are read before other sources get their turn.
const READ_BUDGET: usize = 1 << 20;

/// The supervisor's side of the agent's process.
#[derive(Debug)]
pub(in crate::supervise) struct AgentProcess {
    /// The sandbox's number of the program.
    pub(in crate::supervise) id: u32,
    /// Its pid on the host, once it has passed its exec barrier.
    pub(in crate::supervise) pid: i32,
    input: Option<File>,
    output: Option<File>,
    log: Option<File>,
    outbox: Outbox,
    writable: bool,
    /// How it ended, once it has.
    pub(in crate::supervise) exit: Option<AgentExitStatus>,
    /// Number of unread bytes of its output when it exited: later bytes come from its descendants.
    unread_output: Option<usize>,
    /// It exited without reading all of its input.
    has_unread_input: bool,
}

/// The program's ends of its streams.
#[derive(Debug)]
pub(in crate::supervise) struct ChildStreams {
    pub(in crate::supervise) stdin: OwnedFd,
    pub(in crate::supervise) stdout: OwnedFd,
    pub(in crate::supervise) stderr: OwnedFd,
}

/// The result of reading a stream.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::supervise) enum ReadResult {
    /// This many bytes were read; there may be more.
    Some(usize),
    /// No data is available now.
    WouldBlock,
    /// End of the stream.
    End,
    /// End of a socket whose peer had not read all data.
    Reset,
}

impl AgentProcess {
    /// Creates the streams. With the socket transport standard output is a log like standard error, and input and
    /// output come by [`AgentProcess::set_connection`].
    pub(in crate::supervise) fn with_pipes(
        transport: AgentTransport,
        registry: &Registry,
    ) -> Result<(Self, ChildStreams)> {
        let fail = |e: nix::Error| Error::system("make the streams of the agent", e);
        let (stdin, input) = file::pipe_for_all().map_err(fail)?;
        let (output, stdout) = file::pipe_for_all().map_err(fail)?;
        let (log, stderr) = file::pipe_for_all().map_err(fail)?;
        let mut process = AgentProcess {
            id: 0,
            pid: 0,
            input: None,
            output: None,
            log: Some(register_stream(log, registry, LOG)?),
            outbox: Outbox::default(),
            writable: false,
            exit: None,
            unread_output: None,
            has_unread_input: false,
        };
        let stdout = match transport {
            AgentTransport::Stdio => {
                file::set_nonblocking(input.as_fd())?;
                process.input = Some(File::from(input));
                process.output = Some(register_stream(output, registry, OUTPUT)?);
                stdout
            }
            // Standard output goes to the same log as standard error.
            AgentTransport::Socket => {
                stderr.try_clone().map_err(|e| Error::system("copy a descriptor", e))?
            }
        };
        Ok((process, ChildStreams { stdin, stdout, stderr }))
    }

    /// A program that another process starts, with these streams and without a log of ours.
    pub(in crate::supervise) fn from_fds(
        input: OwnedFd,
        output: OwnedFd,
        registry: &Registry,
    ) -> Result<Self> {
        file::set_nonblocking(input.as_fd())?;
        Ok(AgentProcess {
            id: 0,
            pid: 0,
            input: Some(File::from(input)),
            output: Some(register_stream(output, registry, OUTPUT)?),
            log: None,
            outbox: Outbox::default(),
            writable: false,
            exit: None,
            unread_output: None,
            has_unread_input: false,
        })
    }

    /// Sets the connection to the program's socket as its input and output.
    pub(in crate::supervise) fn set_connection(
        &mut self,
        stream: OwnedFd,
        registry: &Registry,
    ) -> Result<()> {
        let writer = stream.try_clone().map_err(|e| Error::system("copy a descriptor", e))?;
        self.output = Some(register_stream(stream, registry, OUTPUT)?);
        self.input = Some(File::from(writer));
        Ok(())
    }

    /// Whether the program can be sent input.
    pub(in crate::supervise) fn is_connected(&self) -> bool {
        self.input.is_some()
    }

    /// Queues input for the program.
    pub(in crate::supervise) fn queue(&mut self, bytes: Vec<u8>) {
        self.outbox.push(bytes);
    }

    /// Writes queued input as far as the stream has room; returns the number of bytes. After a broken pipe the rest is
    /// dropped: the exit of the process is reported separately.
    pub(in crate::supervise) fn write(&mut self, registry: &Registry) -> usize {
        let Some(input) = &mut self.input else { return 0 };
        let before = self.outbox.len();
        let written = match self.outbox.write_to(input) {
            Ok(count) => count,
            Err(_) => {
                self.has_unread_input = true;
                self.outbox.clear();
                self.close_input(registry);
                return before;
            }
        };
        self.update_input_interest(registry);
        written
    }

    /// WRITABLE only while there is a backlog: every such event costs a wake-up.
    fn update_input_interest(&mut self, registry: &Registry) {
        let backlog = !self.outbox.is_empty();
        let Some(input) = self.input.as_ref().filter(|_| backlog != self.writable) else { return };
        let fd = input.as_raw_fd();
        let done = if backlog {
            registry.register(&mut SourceFd(&fd), INPUT, Interest::WRITABLE)
        } else {
            registry.deregister(&mut SourceFd(&fd))
        };
        if done.is_ok() {
            self.writable = backlog;
        }
    }

    /// Closes its input: an idle agent exits then.
    pub(in crate::supervise) fn close_input(&mut self, registry: &Registry) {
        if let Some(input) = self.input.take() {
            if self.writable {
                let _ = registry.deregister(&mut SourceFd(&input.as_raw_fd()));
                self.writable = false;
            }
            // The other direction of a socket stays open.
            let _ = nix::sys::socket::shutdown(input.as_raw_fd(), nix::sys::socket::Shutdown::Write);
        }
    }

    /// Reads some of its output.
    pub(in crate::supervise) fn read_output(&mut self, registry: &Registry, chunk: &mut [u8]) -> ReadResult {
        let most = self.unread_output.unwrap_or(usize::MAX).min(chunk.len());
        if most == 0 {
            return ReadResult::End;
        }
        let read = read_stream(&mut self.output, registry, &mut chunk[..most]);
        // On a socket, the end of the output can arrive before the report of the process's exit.
        self.has_unread_input |= read == ReadResult::Reset;
        if let (ReadResult::Some(count), Some(left)) = (&read, &mut self.unread_output) {
            *left -= count;
        }
        read
    }

    /// The program has exited. A descendant may keep its output open and write to it forever: only the bytes that are
    /// available now are still read.
    pub(in crate::supervise) fn on_exit(&mut self, exit: AgentExitStatus) {
        self.exit = Some(exit);
        let unread = |input: &File| match nix::sys::socket::getsockopt(input, SocketError) {
            // Unread data when a Unix socket is closed resets the peer (unix_release_sock in af_unix.c).
            Ok(error) => error == libc::ECONNRESET,
            Err(_) => file::bytes_available(input.as_fd()) > 0,
        };
        self.has_unread_input |= !self.outbox.is_empty() || self.input.as_ref().is_some_and(unread);
        self.unread_output =
            Some(self.output.as_ref().map_or(0, |output| file::bytes_available(output.as_fd())));
    }

    /// Whether it exited without reading all of its input.
    pub(super) fn has_unread_input(&self) -> bool {
        self.has_unread_input
    }

    /// Reads some of its log.
    pub(in crate::supervise) fn read_log(&mut self, registry: &Registry, chunk: &mut [u8]) -> ReadResult {
        read_stream(&mut self.log, registry, chunk)
    }

    /// Requests another event for its output, of which more than the read budget may be available.
    pub(in crate::supervise) fn rearm_output(&self, registry: &Registry) {
        if let Some(output) = &self.output {
            rearm(output, registry, OUTPUT);
        }
    }

    /// Requests another event for its log.
    pub(in crate::supervise) fn rearm_log(&self, registry: &Registry) {
        if let Some(log) = &self.log {
            rearm(log, registry, LOG);
        }
    }

    /// Most bytes that are read in one round.
    pub(in crate::supervise) const fn read_budget() -> usize {
        READ_BUDGET
    }

    /// Closes its streams.
    pub(in crate::supervise) fn close(mut self, registry: &Registry) {
        self.close_input(registry);
        for stream in [&mut self.output, &mut self.log] {
            if let Some(stream) = stream.take() {
                let _ = registry.deregister(&mut SourceFd(&stream.as_raw_fd()));
            }
        }
    }
}

/// Connects to the socket that a program listens on, below the program's own root; `None` when it does not listen yet.
/// `process` is its directory in /proc. The program cannot redirect this outside its root: no symbolic link is
/// followed, and only a socket is connected to.
///
/// The connection is non-blocking and fails at once if the queue is full: the queue of a program that never accepts
/// fills up, and connect(2) would block.
///
/// # Errors
/// ESRCH when the program has exited.
pub(in crate::supervise) fn connect_to_agent(process: &File) -> nix::Result<Option<OwnedFd>> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match nix::fcntl::openat(process, "root", flags, nix::sys::stat::Mode::empty()) {
        Ok(root) => Ok(connect_below(&root)),
        // proc(5) has no files of a process that has exited.
        Err(nix::Error::ENOENT) => Err(nix::Error::ESRCH),
        Err(errno) => Err(errno),
    }
}

fn connect_below(root: &OwnedFd) -> Option<OwnedFd> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let socket = file::open(root.as_fd(), SOCKET, flags, 0, Resolve::BeneathNoLinks).ok()?;
    let kind = nix::sys::stat::fstat(&socket).map(|stat| stat.st_mode & libc::S_IFMT);
    if kind != Ok(libc::S_IFSOCK) {
        return None;
    }
    try_connect(&format!("/proc/self/fd/{}", socket.as_raw_fd())).ok()
}

fn try_connect(path: &str) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// A non-blocking stream, registered for reading.
pub(in crate::supervise) fn register_stream(fd: OwnedFd, registry: &Registry, token: Token) -> Result<File> {
    file::set_nonblocking(fd.as_fd())?;
    crate::supervise::registration::register(registry, fd.as_fd(), token)?;
    Ok(File::from(fd))
}

/// Requests an event for data that is already available: mio reports each change once.
pub(in crate::supervise) fn rearm(stream: &File, registry: &Registry, token: Token) {
    let _ = registry.reregister(&mut SourceFd(&stream.as_raw_fd()), token, Interest::READABLE);
}

/// Reads a stream, and closes it at its end.
pub(in crate::supervise) fn read_stream(
    stream: &mut Option<File>,
    registry: &Registry,
    chunk: &mut [u8],
) -> ReadResult {
    let Some(file) = stream else { return ReadResult::End };
    loop {
        return match file.read(chunk) {
            Ok(count) if count > 0 => ReadResult::Some(count),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => ReadResult::WouldBlock,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            end => {
                let _ = registry.deregister(&mut SourceFd(&file.as_raw_fd()));
                *stream = None;
                match end {
                    Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => ReadResult::Reset,
                    _ => ReadResult::End,
                }
            }
        };
    }
}
