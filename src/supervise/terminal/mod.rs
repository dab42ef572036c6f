//! The terminal of `saggar wrap`: the host's one outside, one of the sandbox's own inside, and bytes relayed
//! between the two. The host's terminal is never inside (CVE-2017-5226 and its kin).
//!
//! ```text
//! attached ── start() ──> relaying ── hang_up() ──> hung up
//! (host untouched)        (host raw)                (inner terminal closed: SIGHUP by the kernel)
//! ```
//!
//! Which streams are terminals decides what the keyboard does:
//! - input is one: keys go inside, always;
//! - input is none (`producer | saggar wrap -- less`): keys go inside while a program there has changed the
//!   modes of its terminal (a pager, an editor, a password prompt), and else stay with the shell's job, whose
//!   ^C reaches us as a signal and the program through us.

mod flow;
mod host;

use super::sandbox::register;
use crate::error::{Code, Error, Result};
use crate::launch::set_nonblocking;
use crate::stage::wire::ExecFlags;
use crate::sys::{Errno, pty};
use flow::{Flow, Step};
use host::{Host, rewatch};
use mio::event::Event;
use mio::{Registry, Token};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const KEYBOARD: Token = Token(1);
const SCREEN: Token = Token(2);
const MASTER: Token = Token(3);

/// Steps of one [`Terminal::pump`]: an endless output must not keep signals and limits waiting.
const STEPS: usize = 32;

/// When to look again after a key that came while we were in the background. A shell prints the job that it
/// brings to the foreground before it hands the terminal over, and says nothing to a job that was running: a
/// key between the two would wait for the next one.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The caller's standard streams, and which of them are terminals.
#[derive(Debug)]
pub struct Streams {
    fds: [OwnedFd; 3],
    terminals: [bool; 3],
}

impl Streams {
    /// Looks at the standard streams of this process.
    ///
    /// # Errors
    /// [`Code::System`] when there are no descriptors left.
    pub fn of_this_process() -> Result<Self> {
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let terminals = [stdin.is_terminal(), stdout.is_terminal(), stderr.is_terminal()];
        let own = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|e| Error::system("duplicate a standard stream", e))
        };
        Ok(Streams { fds: [own(stdin.as_fd())?, own(stdout.as_fd())?, own(stderr.as_fd())?], terminals })
    }

    /// Whether the program needs a terminal of the sandbox's own.
    pub fn need_terminal(&self) -> bool {
        self.terminals.contains(&true)
    }

    /// What the program gets: the slave in place of each terminal, the rest as it is; and the flag that makes
    /// the first of those its controlling terminal.
    ///
    /// # Errors
    /// [`Code::System`] when there is a terminal and no slave: the host's own is never given away.
    pub fn for_program<'a>(&'a self, slave: Option<&'a OwnedFd>) -> Result<([BorrowedFd<'a>; 3], u32)> {
        let mut streams = self.fds.each_ref().map(AsFd::as_fd);
        let Some(first) = self.terminals.iter().position(|is| *is) else { return Ok((streams, 0)) };
        let slave = slave.ok_or_else(no_terminal)?;
        for (stream, _) in streams.iter_mut().zip(self.terminals).filter(|(_, is)| *is) {
            *stream = slave.as_fd();
        }
        Ok((streams, ExecFlags::controlling_terminal(first)))
    }
}

/// The sandbox is up, and did not send what its plan should have made.
pub(super) fn no_terminal() -> Error {
    Error::new(Code::System, "give the program a terminal: the sandbox has made none")
}

/// The relay between the host's terminal and the sandbox's.
#[derive(Debug)]
pub struct Terminal {
    host: Host,
    /// `None` once hung up.
    master: Option<OwnedFd>,
    master_writable: bool,
    /// Keys go inside whatever the program does.
    input: bool,
    started: bool,
    /// A key was left to others; when to see whether it was for us.
    look_again: Option<Instant>,
    inward: Flow,
    outward: Flow,
}

impl Terminal {
    /// Makes the sandbox's terminal like the host's, in modes and size, and opens its slave for the program.
    /// The host's is only looked at.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn attach(master: OwnedFd, streams: &Streams) -> Result<(Self, OwnedFd)> {
        let [stdin, stdout, stderr] = streams.fds.each_ref().map(AsFd::as_fd);
        let [input, output, _] = streams.terminals;
        let screen = match streams.terminals {
            [_, true, _] => stdout,
            [_, _, true] => stderr,
            _ => stdin,
        };
        let keyboard = if input { stdin } else { screen };
        let host = Host::open(keyboard, screen, input && !output, (KEYBOARD, SCREEN))?;
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
            input,
            started: false,
            look_again: None,
            inward: Flow::new(),
            outward: Flow::new(),
        };
        terminal.resize();
        Ok((terminal, slave))
    }

    /// The program runs: from here on the host's terminal is in use.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn start(&mut self, registry: &Registry) -> Result<()> {
        self.started = true;
        self.host.watch(registry)?;
        self.master.as_ref().map_or(Ok(()), |master| register(registry, master.as_fd(), MASTER))
    }

    /// Gives the sandbox's terminal the size of the host's; the kernel tells the programs in it (SIGWINCH).
    pub fn resize(&self) {
        if let (Some(master), Ok(size)) = (&self.master, self.host.size()) {
            let _ = pty::set_window_size(master.as_fd(), &size);
        }
    }

    /// Before we stop (SIGTSTP): the terminal is the shell's.
    pub fn suspend(&mut self) {
        self.host.suspend();
    }

    /// After SIGCONT. The next [`Terminal::pump`] takes the terminal again, if we are in the foreground.
    pub fn resume(&mut self) {
        if self.started {
            self.host.resume();
        }
        self.resize();
    }

    /// Handles an event; false when the token is somebody else's. Bytes move in [`Terminal::pump`].
    pub fn event(&mut self, event: &Event) -> bool {
        match event.token() {
            KEYBOARD | SCREEN => {
                // Also heard while nothing is read or written.
                if event.is_read_closed() {
                    self.hang_up();
                }
                self.look_again = Some(Instant::now() + LOOK_AGAIN);
                true
            }
            MASTER => true,
            _ => false,
        }
    }

    /// Moves bytes both ways, as many as may be now; true when it should be called again at once.
    ///
    /// # Errors
    /// [`Code::System`] when a descriptor cannot be watched.
    pub fn pump(&mut self, registry: &Registry) -> Result<bool> {
        if !self.started {
            return Ok(false);
        }
        let wanted = self.master.is_some() && (self.input || self.modes_changed());
        let keys = self.host.settle(wanted);
        if keys || !wanted || self.patience() == Some(Duration::ZERO) {
            self.look_again = None;
        }
        let mut moved = false;
        for _ in 0..STEPS {
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
            rewatch(registry, master.as_fd(), MASTER, backlog)?;
        }
        Ok(moved)
    }

    /// How long [`Terminal::pump`] may be left alone when nothing happens.
    pub fn patience(&self) -> Option<Duration> {
        self.look_again.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether nothing of the output waits here. With [`Terminal::pump`] at rest and the sandbox gone, it has
    /// all been written: what the kernel holds is handed over before a read says EAGAIN or EIO.
    pub fn is_drained(&self) -> bool {
        self.outward.is_empty()
    }

    fn step_outward(&mut self) -> bool {
        let Some(master) = &self.master else { return false };
        let host = &self.host;
        match self.outward.step(|buffer| nix::unistd::read(master, buffer), |bytes| host.write(bytes)) {
            Step::Moved => true,
            Step::Refused(Errno::EIO) => {
                self.hang_up();
                false
            }
            // A screen that cannot be written to (input alone is a terminal, opened read-only).
            Step::Refused(_) => true,
            // Ended says that no program has it open now; one may open /dev/tty again.
            Step::Starved | Step::Stalled | Step::Ended => false,
        }
    }

    fn step_inward(&mut self) -> bool {
        let Some(master) = &self.master else { return false };
        let host = &self.host;
        match self.inward.step(|buffer| host.read(buffer), |bytes| nix::unistd::write(master, bytes)) {
            Step::Moved => true,
            Step::Ended => {
                self.hang_up();
                false
            }
            Step::Starved | Step::Stalled | Step::Refused(_) => false,
        }
    }

    /// The host's terminal is gone. Closing the master passes that on in full: the kernel sends SIGHUP to the
    /// session's leader and the foreground group inside, and reads and writes there fail as they would bare.
    fn hang_up(&mut self) {
        self.master = None;
        self.inward.clear();
        self.outward.clear();
    }

    /// Whether a program inside has taken its terminal's line editing or echo over. A master answers for its
    /// slave.
    fn modes_changed(&self) -> bool {
        let line = |modes: &Termios| modes.local_flags & (LocalFlags::ICANON | LocalFlags::ECHO);
        let now = self.master.as_ref().and_then(|master| tcgetattr(master).ok());
        now.is_some_and(|now| self.host.modes().is_some_and(|found| line(found) != line(&now)))
    }
}
