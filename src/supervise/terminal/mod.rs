//! The terminal of `saggar wrap`: bytes are relayed between the host's terminal outside and a terminal of the sandbox's
//! own inside. The host's terminal is never inside the sandbox (CVE-2017-5226 and similar).
//!
//! ```text
//! attached ── start() ──> relaying ── hang_up() ──> hung up
//! (host untouched)        (host raw)                (inner terminal closed: SIGHUP by the kernel)
//! ```
//!
//! Which streams are terminals determines where keys go:
//! - input is a terminal: keys are always forwarded to the sandbox;
//! - input is not (`producer | saggar wrap -- less`): keys are forwarded while a program inside has changed the modes
//!   of its terminal (a pager, an editor, a password prompt). Otherwise they stay with the shell's job, whose ^C
//!   reaches saggar as a signal, which is forwarded to the program.

mod flow;
mod host;

use super::registration::register;
use crate::error::{Code, Error, Result};
use crate::stage::agent::wire::ExecFlags;
use crate::sys::file::set_nonblocking;
use crate::sys::{Errno, pty};
use flow::{FlowStep, TerminalFlow};
use host::{HostTerminal, reregister};
use mio::event::Event;
use mio::{Registry, Token};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const KEYBOARD: Token = Token(1);
const SCREEN: Token = Token(2);
const MASTER: Token = Token(3);

/// Most steps of one [`Terminal::pump`], so that endless output does not delay signals and limits.
const MAX_STEPS: usize = 32;

/// Delay until the terminal is checked again after a key arrived in the background. A shell prints the job that it
/// brings to the foreground before it hands over the terminal, and sends no signal to a running job: a key in between
/// would wait for the next key.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The caller's standard streams, and which of them are terminals.
#[derive(Debug)]
pub struct CallerStreams {
    fds: [OwnedFd; 3],
    terminals: [bool; 3],
}

impl CallerStreams {
    /// The standard streams of this process.
    ///
    /// # Errors
    /// [`Code::System`] when no descriptors are left.
    pub fn of_this_process() -> Result<Self> {
        let (stdin, out, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let terminals = [stdin.is_terminal(), out.is_terminal(), stderr.is_terminal()];
        let own = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|e| Error::system("duplicate a standard stream", e))
        };
        Ok(CallerStreams { fds: [own(stdin.as_fd())?, own(out.as_fd())?, own(stderr.as_fd())?], terminals })
    }

    /// Whether the program needs a terminal of the sandbox's own.
    pub fn need_terminal(&self) -> bool {
        self.terminals.contains(&true)
    }

    /// The program's streams: the slave in place of each terminal, the others unchanged; and the flag that makes the
    /// first terminal among them its controlling terminal.
    ///
    /// # Errors
    /// [`Code::System`] when there is a terminal and no slave: the program never gets the host's own.
    pub fn for_program<'a>(&'a self, slave: Option<&'a OwnedFd>) -> Result<([BorrowedFd<'a>; 3], u32)> {
        let mut streams = self.fds.each_ref().map(AsFd::as_fd);
        let Some(first) = self.terminals.iter().position(|is| *is) else { return Ok((streams, 0)) };
        let slave = slave.ok_or_else(no_terminal_error)?;
        for (stream, _) in streams.iter_mut().zip(self.terminals).filter(|(_, is)| *is) {
            *stream = slave.as_fd();
        }
        Ok((streams, ExecFlags::controlling_terminal(first)))
    }
}

/// The sandbox is ready, and has not sent the terminal of its plan.
pub(super) fn no_terminal_error() -> Error {
    Error::new(Code::System, "give the program a terminal: the sandbox has made none")
}

/// The relay between the host's terminal and the sandbox's.
#[derive(Debug)]
pub struct Terminal {
    host: HostTerminal,
    /// `None` after a hang-up.
    master: Option<OwnedFd>,
    master_writable: bool,
    /// Keys are always forwarded to the sandbox.
    forwards_keys: bool,
    is_started: bool,
    /// When to check again whether a key that was not read is for the sandbox.
    retry_at: Option<Instant>,
    inward: TerminalFlow,
    outward: TerminalFlow,
}

impl Terminal {
    /// Copies the modes and the size of the host's terminal to the sandbox's, and opens its slave for the program. The
    /// host's terminal is not changed.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn attach(master: OwnedFd, streams: &CallerStreams) -> Result<(Self, OwnedFd)> {
        let [stdin, out, stderr] = streams.fds.each_ref().map(AsFd::as_fd);
        let [input, output, _] = streams.terminals;
        let screen = match streams.terminals {
            [_, true, _] => out,
            [_, _, true] => stderr,
            _ => stdin,
        };
        let keyboard = if input { stdin } else { screen };
        let host = HostTerminal::open(keyboard, screen, input && !output, (KEYBOARD, SCREEN))?;
        let slave = pty::open_slave(master.as_fd())
            .map_err(|e| Error::system("open the terminal of the sandbox", e))?;
        if let Some(modes) = host.modes() {
            tcsetattr(&slave, SetArg::TCSANOW, modes)
                .map_err(|e| Error::system("set the modes of the sandbox's terminal", e))?;
        }
        set_nonblocking(master.as_fd())?;
        let terminal = Terminal {
            host,
            master: Some(master),
            master_writable: false,
            forwards_keys: input,
            is_started: false,
            retry_at: None,
            inward: TerminalFlow::new(),
            outward: TerminalFlow::new(),
        };
        terminal.resize();
        Ok((terminal, slave))
    }

    /// Starts the relay, once the program runs: the host's terminal is in use from here on.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn start(&mut self, registry: &Registry) -> Result<()> {
        self.is_started = true;
        self.host.register(registry)?;
        self.master.as_ref().map_or(Ok(()), |master| register(registry, master.as_fd(), MASTER))
    }

    /// Copies the size of the host's terminal to the sandbox's; the kernel notifies the programs in it (SIGWINCH).
    pub fn resize(&self) {
        if let (Some(master), Ok(size)) = (&self.master, self.host.size()) {
            let _ = pty::set_window_size(master.as_fd(), &size);
        }
    }

    /// Call before a stop (SIGTSTP): returns the terminal to the shell.
    pub fn suspend(&mut self) {
        self.host.suspend();
    }

    /// Call after SIGCONT. The next [`Terminal::pump`] takes the terminal again if this process is in the foreground.
    pub fn resume(&mut self) {
        if self.is_started {
            self.host.resume();
        }
        self.resize();
    }

    /// Handles an event; false when the token belongs to another module. [`Terminal::pump`] moves the bytes.
    pub fn on_event(&mut self, event: &Event) -> bool {
        match event.token() {
            KEYBOARD | SCREEN => {
                // Reported even while no data is read or written.
                if event.is_read_closed() {
                    self.hang_up();
                }
                self.retry_at = Some(Instant::now() + RETRY_DELAY);
                true
            }
            MASTER => true,
            _ => false,
        }
    }

    /// Moves bytes in both directions, up to [`MAX_STEPS`] steps; true when it should be called again at once.
    ///
    /// # Errors
    /// [`Code::System`] when a descriptor cannot be registered.
    pub fn pump(&mut self, registry: &Registry) -> Result<bool> {
        if !self.is_started {
            return Ok(false);
        }
        let wanted = self.master.is_some() && (self.forwards_keys || self.modes_changed());
        let keys = self.host.acquire_if(wanted);
        if keys || !wanted || self.poll_timeout() == Some(Duration::ZERO) {
            self.retry_at = None;
        }
        let mut moved = false;
        for _ in 0..MAX_STEPS {
            let out = self.step_outward();
            let inward = keys && self.step_inward();
            moved |= out | inward;
            if !(out | inward) {
                break;
            }
        }
        self.host.watch_writable(registry, !self.outward.is_empty())?;
        let backlog = !self.inward.is_empty();
        if let Some(master) = &self.master
            && std::mem::replace(&mut self.master_writable, backlog) != backlog
        {
            reregister(registry, master.as_fd(), MASTER, backlog)?;
        }
        Ok(moved)
    }

    /// Longest time until [`Terminal::pump`] must be called without an event.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether no output is buffered here. If [`Terminal::pump`] is at rest and the sandbox has ended, all output has
    /// been written: the kernel returns its buffered output before a read returns EAGAIN or EIO.
    pub fn is_drained(&self) -> bool {
        self.outward.is_empty()
    }

    fn step_outward(&mut self) -> bool {
        let Some(master) = &self.master else { return false };
        let host = &self.host;
        match self.outward.step(|buffer| nix::unistd::read(master, buffer), |bytes| host.write(bytes)) {
            FlowStep::Moved => true,
            FlowStep::SinkFailed(Errno::EIO) => {
                self.hang_up();
                false
            }
            // A screen that cannot be written to (only input is a terminal, opened read-only).
            FlowStep::SinkFailed(_) => true,
            // SourceClosed means that no program has it open now; one may open /dev/tty again.
            FlowStep::SourceEmpty | FlowStep::SinkFull | FlowStep::SourceClosed => false,
        }
    }

    fn step_inward(&mut self) -> bool {
        let Some(master) = &self.master else { return false };
        let host = &self.host;
        match self.inward.step(|buffer| host.read(buffer), |bytes| nix::unistd::write(master, bytes)) {
            FlowStep::Moved => true,
            FlowStep::SourceClosed => {
                self.hang_up();
                false
            }
            FlowStep::SourceEmpty | FlowStep::SinkFull | FlowStep::SinkFailed(_) => false,
        }
    }

    /// Handles a hang-up of the host's terminal by closing the master: the kernel sends SIGHUP to the session leader
    /// and the foreground group inside, and reads and writes there fail as they would without saggar.
    fn hang_up(&mut self) {
        self.master = None;
        self.inward.clear();
        self.outward.clear();
    }

    /// Whether a program inside has changed line editing or echo of its terminal. A master returns the modes of its
    /// slave.
    fn modes_changed(&self) -> bool {
        let line = |modes: &Termios| modes.local_flags & (LocalFlags::ICANON | LocalFlags::ECHO);
        let now = self.master.as_ref().and_then(|master| tcgetattr(master).ok());
        now.is_some_and(|now| self.host.modes().is_some_and(|found| line(found) != line(&now)))
    }
}
