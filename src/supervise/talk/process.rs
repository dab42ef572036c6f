//! The agent's process: its standard streams, or the socket that it listens on, and how it ended.

use crate::bridge::adapter::Transport;
use crate::bridge::core::Exit;
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

/// Where an agent of the adapter `bridge` listens, below the sandbox's root.
pub(in crate::supervise) const SOCKET: &std::ffi::CStr = c"run/agent.sock";

/// The most that is read before others get their turn.
const SHARE: usize = 1 << 20;

/// The supervisor's side of the agent's process.
#[derive(Debug)]
pub(in crate::supervise) struct Process {
    /// The sandbox's number for it.
    pub(in crate::supervise) id: u32,
    /// Its pid on the host, once it has passed its gate.
    pub(in crate::supervise) pid: i32,
    input: Option<File>,
    output: Option<File>,
    log: Option<File>,
    outbox: Outbox,
    writable: bool,
    /// How it ended, once it has.
    pub(in crate::supervise) exit: Option<Exit>,
    /// How much of its output it had left to be read when it ended: what comes after is its children's.
    left: Option<usize>,
    /// It is known not to have read all that was written to it.
    left_input: bool,
}

/// The program's own ends of its streams.
#[derive(Debug)]
pub(in crate::supervise) struct Ends {
    pub(in crate::supervise) stdin: OwnedFd,
    pub(in crate::supervise) stdout: OwnedFd,
    pub(in crate::supervise) stderr: OwnedFd,
}

/// What reading a stream came to.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::supervise) enum Read1 {
    /// So many bytes; there may be more.
    Some(usize),
    /// Nothing now.
    Nothing,
    /// The end.
    End,
    /// The end of a socket whose other side had not read all.
    Reset,
}

impl Process {
    /// Makes the streams. On the socket transport standard output is a log like standard error, and input and
    /// output come by [`Process::take_connection`].
    pub(in crate::supervise) fn streams(transport: Transport, registry: &Registry) -> Result<(Self, Ends)> {
        let fail = |e: nix::Error| Error::system("make the streams of the agent", e);
        let (stdin, input) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let (output, stdout) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let (log, stderr) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let mut process = Process {
            id: 0,
            pid: 0,
            input: None,
            output: None,
            log: Some(watched(log, registry, LOG)?),
            outbox: Outbox::default(),
            writable: false,
            exit: None,
            left: None,
            left_input: false,
        };
        let stdout = match transport {
            Transport::Stdio => {
                crate::launch::set_nonblocking(input.as_fd())?;
                process.input = Some(File::from(input));
                process.output = Some(watched(output, registry, OUTPUT)?);
                stdout
            }
            // What it prints goes where its errors go.
            Transport::Socket => stderr.try_clone().map_err(|e| Error::system("copy a descriptor", e))?,
        };
        Ok((process, Ends { stdin, stdout, stderr }))
    }

    /// A program that somebody else starts, with these streams and a log that is not ours.
    pub(in crate::supervise) fn of_another(
        input: OwnedFd,
        output: OwnedFd,
        registry: &Registry,
    ) -> Result<Self> {
        crate::launch::set_nonblocking(input.as_fd())?;
        Ok(Process {
            id: 0,
            pid: 0,
            input: Some(File::from(input)),
            output: Some(watched(output, registry, OUTPUT)?),
            log: None,
            outbox: Outbox::default(),
            writable: false,
            exit: None,
            left: None,
            left_input: false,
        })
    }

    /// Takes a connection to the socket that the program listens on for its input and output.
    pub(in crate::supervise) fn take_connection(
        &mut self,
        stream: OwnedFd,
        registry: &Registry,
    ) -> Result<()> {
        let writer = stream.try_clone().map_err(|e| Error::system("copy a descriptor", e))?;
        self.output = Some(watched(stream, registry, OUTPUT)?);
        self.input = Some(File::from(writer));
        Ok(())
    }

    /// Whether there is a way to speak to it.
    pub(in crate::supervise) fn is_connected(&self) -> bool {
        self.input.is_some()
    }

    /// Queues bytes for it.
    pub(in crate::supervise) fn push(&mut self, bytes: Vec<u8>) {
        self.outbox.push(bytes);
    }

    /// Writes what is queued, as far as it goes; how many bytes went. A pipe that broke swallows the rest: the
    /// end of the process is told elsewhere.
    pub(in crate::supervise) fn write(&mut self, registry: &Registry) -> usize {
        let Some(input) = &mut self.input else { return 0 };
        let before = self.outbox.len();
        let written = match self.outbox.write_to(input) {
            Ok(count) => count,
            Err(_) => {
                self.left_input = true;
                self.outbox.clear();
                self.close_input(registry);
                return before;
            }
        };
        self.watch_input(registry);
        written
    }

    /// WRITABLE only while there is a backlog: every such event costs a wake-up.
    fn watch_input(&mut self, registry: &Registry) {
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

    /// Closes its input: an agent that is idle exits.
    pub(in crate::supervise) fn close_input(&mut self, registry: &Registry) {
        if let Some(input) = self.input.take() {
            if self.writable {
                let _ = registry.deregister(&mut SourceFd(&input.as_raw_fd()));
                self.writable = false;
            }
            // On a socket the other direction is still open.
            let _ = nix::sys::socket::shutdown(input.as_raw_fd(), nix::sys::socket::Shutdown::Write);
        }
    }

    /// Reads some of its output.
    pub(in crate::supervise) fn read_output(&mut self, registry: &Registry, chunk: &mut [u8]) -> Read1 {
        let most = self.left.unwrap_or(usize::MAX).min(chunk.len());
        if most == 0 {
            return Read1::End;
        }
        let read = read(&mut self.output, registry, &mut chunk[..most]);
        // On a socket the end of what is said can come before word of the end of the process.
        self.left_input |= read == Read1::Reset;
        if let (Read1::Some(count), Some(left)) = (&read, &mut self.left) {
            *left -= count;
        }
        read
    }

    /// It has ended. A child of its own may hold its output open, and write to it for ever: only what waits
    /// there now is still heard.
    pub(in crate::supervise) fn ended(&mut self, exit: Exit) {
        self.exit = Some(exit);
        let unread = |input: &File| match nix::sys::socket::getsockopt(input, SocketError) {
            // What is unread when a unix socket closes resets the other side (unix_release_sock in af_unix.c).
            Ok(error) => error == libc::ECONNRESET,
            Err(_) => file::waiting(input.as_fd()) > 0,
        };
        self.left_input |= !self.outbox.is_empty() || self.input.as_ref().is_some_and(unread);
        self.left = Some(self.output.as_ref().map_or(0, |output| file::waiting(output.as_fd())));
    }

    /// Whether it ended without having read all that was written to it.
    pub(super) fn left_input(&self) -> bool {
        self.left_input
    }

    /// Reads some of its log.
    pub(in crate::supervise) fn read_log(&mut self, registry: &Registry, chunk: &mut [u8]) -> Read1 {
        read(&mut self.log, registry, chunk)
    }

    /// There may be more output than its share.
    pub(in crate::supervise) fn look_again(&self, registry: &Registry) {
        if let Some(output) = &self.output {
            look_again(output, registry, OUTPUT);
        }
    }

    /// The same of its log.
    pub(in crate::supervise) fn look_again_at_log(&self, registry: &Registry) {
        if let Some(log) = &self.log {
            look_again(log, registry, LOG);
        }
    }

    /// How much is read in one round.
    pub(in crate::supervise) const fn share() -> usize {
        SHARE
    }

    /// Forgets its streams.
    pub(in crate::supervise) fn close(mut self, registry: &Registry) {
        self.close_input(registry);
        for stream in [&mut self.output, &mut self.log] {
            if let Some(stream) = stream.take() {
                let _ = registry.deregister(&mut SourceFd(&stream.as_raw_fd()));
            }
        }
    }
}

/// Connects to a socket, or does not, at once: the queue of one that never accepts fills up, and connect(2)
/// would wait for room in it.
/// Connects to the socket that a program listens on, in its own root; nothing when it does not listen yet. `process` is
/// its directory in /proc. Nothing that the program puts there can lead out: no link is followed, and only a socket is connected to.
///
/// # Errors
/// ESRCH when the program has ended.
pub(in crate::supervise) fn connect(process: &File) -> nix::Result<Option<OwnedFd>> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match nix::fcntl::openat(process, "root", flags, nix::sys::stat::Mode::empty()) {
        Ok(root) => Ok(connect_in(&root)),
        // proc(5) has no file of a process that is gone.
        Err(nix::Error::ENOENT) => Err(nix::Error::ESRCH),
        Err(errno) => Err(errno),
    }
}

fn connect_in(root: &OwnedFd) -> Option<OwnedFd> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let socket = file::open(root.as_fd(), SOCKET, flags, 0, Resolve::BeneathNoLinks).ok()?;
    let kind = nix::sys::stat::fstat(&socket).map(|stat| stat.st_mode & libc::S_IFMT);
    if kind != Ok(libc::S_IFSOCK) {
        return None;
    }
    connect_now(&format!("/proc/self/fd/{}", socket.as_raw_fd())).ok()
}

fn connect_now(path: &str) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// A non-blocking stream that the loop reads.
pub(in crate::supervise) fn watched(fd: OwnedFd, registry: &Registry, token: Token) -> Result<File> {
    crate::launch::set_nonblocking(fd.as_fd())?;
    crate::supervise::sandbox::register(registry, fd.as_fd(), token)?;
    Ok(File::from(fd))
}

/// Asks the loop to tell of bytes that are there already: mio tells of each change once.
pub(in crate::supervise) fn look_again(stream: &File, registry: &Registry, token: Token) {
    let _ = registry.reregister(&mut SourceFd(&stream.as_raw_fd()), token, Interest::READABLE);
}

/// Reads a stream that is gone at its end.
pub(in crate::supervise) fn read(stream: &mut Option<File>, registry: &Registry, chunk: &mut [u8]) -> Read1 {
    let Some(file) = stream else { return Read1::End };
    loop {
        return match file.read(chunk) {
            Ok(count) if count > 0 => Read1::Some(count),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Read1::Nothing,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            end => {
                let _ = registry.deregister(&mut SourceFd(&file.as_raw_fd()));
                *stream = None;
                match end {
                    Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => Read1::Reset,
                    _ => Read1::End,
                }
            }
        };
    }
}
