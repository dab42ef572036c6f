//! A running sandbox, seen from its supervisor: programs are started in it, and it tells what became of
//! them.

use crate::error::{Error, Result};
use crate::launch::exec::{Gate, Passage};
use crate::launch::{Launched, hint, set_nonblocking};
use crate::plan::Plan;
use crate::spec::Program;
use crate::stage::wire::{Report, Request};
use crate::sys::Errno;
use crate::sys::catch::Kind;
use crate::sys::net::Family;
use crate::sys::unheard::Answer;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Tokens of this module: the control socket, and one for each program's gate.
const CONTROL: Token = Token(1 << 20);
const GATES: usize = (1 << 20) + 1;

/// What pid 1 hands over of the sandbox's network, for the relay.
#[derive(Debug)]
pub enum Handed {
    /// A socket that hears calls to a port of any address.
    Caught(Kind, u16, OwnedFd),
    /// A socket that sees how the kernel answers calls that nobody hears.
    Witness(Family, Answer, OwnedFd),
    /// The listener of pid 1's filter.
    Listener(OwnedFd),
}

/// What happened in a sandbox.
#[derive(Debug)]
pub enum Happening {
    /// pid 1 has done its steps, and serves.
    Ready,
    /// The master of the sandbox's terminal.
    Terminal(OwnedFd),
    /// The work tree, as the programs see it.
    Workspace(OwnedFd),
    /// The relay is to have this.
    Handed(Handed),
    /// A socket of the sandbox's network that was asked for, or why there is none.
    Socket(Family, Result<OwnedFd, Errno>),
    /// A socket on which the model API is offered.
    Offered(OwnedFd),
    /// A program waits at its gate; its pid on the host.
    Waiting(u32, i32),
    /// A program runs.
    Running(u32),
    /// A program could not be run, and is gone.
    NotRun(u32, Error),
    /// A program has ended; true when nothing but pid 1 is left, and that is about to end.
    Exited(u32, Ended, bool),
    /// pid 1 is gone, and everything with it; the error when its start failed.
    Gone(Option<Error>),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exit(u8),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    fn from_wait(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Ended::Signal(libc::WTERMSIG(status))
        } else {
            Ended::Exit(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
        }
    }

    /// As a shell would say it: 128+N for signal N.
    pub fn exit_status(self) -> u8 {
        match self {
            Ended::Exit(status) => status,
            Ended::Signal(signal) => 128u8.saturating_add(u8::try_from(signal).unwrap_or(127)),
        }
    }
}

struct AtGate {
    gate: Gate,
    name: OsString,
}

/// A sandbox and the programs that were started in it.
pub struct Sandbox<'a> {
    launched: Launched,
    plan: &'a Plan,
    at_gate: BTreeMap<u32, AtGate>,
    next: u32,
}

impl std::fmt::Debug for Sandbox<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("pid", &self.launched.pid).finish_non_exhaustive()
    }
}

impl<'a> Sandbox<'a> {
    /// Takes over a sandbox that was just started.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn new(launched: Launched, plan: &'a Plan, registry: &Registry) -> Result<Self> {
        set_nonblocking(launched.control.as_fd())?;
        register(registry, launched.control.as_fd(), CONTROL)?;
        Ok(Sandbox { launched, plan, at_gate: BTreeMap::new(), next: 1 })
    }

    /// pid 1 on the host.
    pub fn pid(&self) -> i32 {
        self.launched.pid
    }

    /// What was launched.
    pub(super) fn launched(&mut self) -> &mut Launched {
        &mut self.launched
    }

    /// Starts a program; its number. `hold` keeps it at its gate until [`Sandbox::let_go`].
    ///
    /// # Errors
    /// As [`Launched::exec`].
    pub fn exec(
        &mut self,
        registry: &Registry,
        program: &Program,
        streams: [BorrowedFd<'_>; 3],
        flags: u32,
        hold: bool,
    ) -> Result<u32> {
        let id = self.next;
        self.next += 1;
        let asked = self.launched.exec(id, program, streams, flags, hold);
        // A pid 1 that is gone has said why, and that is the error.
        let gate = asked.map_err(|error| self.failed_step().unwrap_or(error))?;
        register(registry, gate.as_fd(), Token(GATES + id as usize))?;
        let name = program.argv.first().cloned().unwrap_or_default();
        self.at_gate.insert(id, AtGate { gate, name });
        Ok(id)
    }

    /// The step that ended pid 1, if it has said so.
    fn failed_step(&self) -> Option<Error> {
        while let Ok(Some((report, _))) = self.launched.next_report() {
            if let Report::StepFailed { step, errno } = report {
                return Some(hint::step_failed(self.plan, step, errno));
            }
        }
        None
    }

    /// Lets a held program go on.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when it is gone.
    pub fn let_go(&mut self, id: u32) -> Result<()> {
        self.at_gate.get_mut(&id).map_or(Ok(()), |at| at.gate.open())
    }

    /// Whether a program stops at its gate now: then its pid is still its own.
    pub fn is_at_gate(&self, id: u32) -> bool {
        self.at_gate.get(&id).is_some_and(|at| at.gate.holds())
    }

    /// Asks for a socket of the sandbox's network; false when it cannot be asked now.
    pub fn ask_for_socket(&self, family: Family) -> bool {
        self.launched.send(Request::Socket(family), &[]).is_ok()
    }

    /// Sends a signal to a program, or to its process group. One that is gone is no error.
    pub fn signal(&self, id: u32, signal: Signal, group: bool) {
        let _ = self.launched.send(Request::Signal { id, signal: signal as i32, group }, &[]);
    }

    /// Ends everything in it and waits until it is gone.
    pub fn kill(&self) {
        self.launched.kill_and_reap();
    }

    /// Handles an event of this sandbox; `None` when the token is somebody else's.
    pub fn event(&mut self, registry: &Registry, token: Token) -> Option<Vec<Happening>> {
        let mut happened = Vec::new();
        if token == CONTROL {
            self.control(registry, &mut happened);
        } else {
            let id = u32::try_from(token.0.checked_sub(GATES)?).ok()?;
            self.gate(registry, id, &mut happened);
        }
        Some(happened)
    }

    fn control(&mut self, registry: &Registry, happened: &mut Vec<Happening>) {
        loop {
            match self.launched.next_report() {
                Ok(Some((Report::Ready, _))) => happened.push(Happening::Ready),
                Ok(Some((Report::Terminal, Some(master)))) => happened.push(Happening::Terminal(master)),
                Ok(Some((Report::Workspace, Some(root)))) => happened.push(Happening::Workspace(root)),
                Ok(Some((Report::Caught { kind, port }, Some(socket)))) => {
                    happened.push(Happening::Handed(Handed::Caught(kind, port, socket)));
                }
                Ok(Some((Report::Witness { family, answer }, Some(socket)))) => {
                    happened.push(Happening::Handed(Handed::Witness(family, answer, socket)));
                }
                Ok(Some((Report::Listener, Some(listener)))) => {
                    happened.push(Happening::Handed(Handed::Listener(listener)));
                }
                Ok(Some((Report::Socket(family), Some(socket)))) => {
                    happened.push(Happening::Socket(family, Ok(socket)));
                }
                Ok(Some((Report::NoSocket { family, errno }, _))) => {
                    happened.push(Happening::Socket(family, Err(Errno::from_raw(errno))));
                }
                // One that this process had no descriptor for.
                Ok(Some((Report::Socket(family), None))) => {
                    happened.push(Happening::Socket(family, Err(Errno::EMFILE)));
                }
                Ok(Some((Report::Offered, Some(socket)))) => happened.push(Happening::Offered(socket)),
                Ok(Some((
                    Report::Terminal
                    | Report::Workspace
                    | Report::Caught { .. }
                    | Report::Witness { .. }
                    | Report::Listener
                    | Report::Offered,
                    None,
                ))) => {}
                Ok(Some((Report::StepFailed { step, errno }, _))) => {
                    self.launched.kill_and_reap();
                    happened.push(Happening::Gone(Some(hint::step_failed(self.plan, step, errno))));
                    return;
                }
                Ok(Some((Report::ForkFailed { id, errno }, _))) => {
                    let why = Errno::from_raw(errno).desc();
                    happened.push(Happening::NotRun(id, Error::system("fork in the sandbox", why)));
                    self.leave_gate(registry, id);
                }
                Ok(Some((Report::Exited { id, status, alone }, _))) => {
                    // What the gate said comes first: a failed start is not an exit.
                    let failed = self.gate(registry, id, happened);
                    if !failed {
                        happened.push(Happening::Exited(id, Ended::from_wait(status), alone));
                    }
                }
                Ok(None) => {
                    // pid 1 closes its end before its namespaces are gone: wait for the last of it.
                    self.launched.kill_and_reap();
                    happened.push(Happening::Gone(None));
                    return;
                }
                Err(Errno::EAGAIN) => return,
                Err(errno) => {
                    self.launched.kill_and_reap();
                    happened.push(Happening::Gone(Some(Error::system("hear from pid 1", errno))));
                    return;
                }
            }
        }
    }

    /// Reads what a gate has to say; true when the program could not be run.
    fn gate(&mut self, registry: &Registry, id: u32, happened: &mut Vec<Happening>) -> bool {
        while let Some(at) = self.at_gate.get(&id) {
            match at.gate.passage(&at.name) {
                Passage::Nothing => return false,
                Passage::Waiting(pid) => happened.push(Happening::Waiting(id, pid)),
                Passage::Through => {
                    happened.push(Happening::Running(id));
                    self.leave_gate(registry, id);
                }
                Passage::Failed(error) => {
                    happened.push(Happening::NotRun(id, error));
                    self.leave_gate(registry, id);
                    return true;
                }
            }
        }
        false
    }

    fn leave_gate(&mut self, registry: &Registry, id: u32) {
        if let Some(at) = self.at_gate.remove(&id) {
            let _ = registry.deregister(&mut SourceFd(&at.gate.as_fd().as_raw_fd()));
        }
    }
}

/// Registers a descriptor for reading.
pub(super) fn register(registry: &Registry, fd: BorrowedFd<'_>, token: Token) -> Result<()> {
    registry
        .register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)
        .map_err(|e| Error::system("watch a descriptor", e))
}
