//! A running sandbox, seen from its supervisor: starts programs in it, and reports its events.

use super::directory_modes::DirectoryModes;
use super::registration::register;
use crate::error::{Error, Result, status};
use crate::launch::agent::exec::{BarrierEvent, ExecBarrier};
use crate::launch::agent::{LaunchedSandbox, hint};
use crate::plan::agent::AgentPlan;
use crate::plan::agent::step::SandboxService;
use crate::spec::ProgramSpec;
use crate::stage::agent::wire::{InitReport, InitRequest};
use crate::sys::Errno;
use crate::sys::file::set_nonblocking;
use crate::sys::net::IpFamily;
use crate::sys::redirect::SocketProtocol;
use crate::sys::reject_sniffer::RejectKind;
use crate::sys::seccomp::listener::SyscallNotification;
use mio::unix::SourceFd;
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Tokens of this module: the control socket of pid 1, the listener of its filter, the worker of a call about which that
/// has notified, and one for the exec barrier of each program.
const CONTROL: Token = Token(1 << 20);
const LISTENER: Token = Token((1 << 20) + 1);
const MODE_WORKER: Token = Token((1 << 20) + 2);
const FIRST_BARRIER: usize = (1 << 20) + 3;

/// A descriptor that pid 1 transfers to the relay.
#[derive(Debug)]
pub enum TransferredFd {
    /// A socket that accepts redirected connections to a port of any address.
    CapturedListener(SocketProtocol, u16, OwnedFd),
    /// A socket that sees the kernel's rejections of connections that no socket accepts.
    RejectSniffer(IpFamily, RejectKind, OwnedFd),
    /// The seccomp listener of pid 1.
    SeccompListener(OwnedFd),
}

/// An event of a sandbox.
#[derive(Debug)]
pub enum SandboxEvent {
    /// pid 1 has finished its setup and accepts requests.
    Ready,
    /// The master of the sandbox's terminal.
    Terminal(OwnedFd),
    /// The work tree, as the programs see it.
    Workspace(OwnedFd),
    /// A descriptor for the relay.
    Transferred(TransferredFd),
    /// A requested socket of the sandbox's network, or the error why there is none.
    Socket(IpFamily, Result<OwnedFd, Errno>),
    /// A socket on which a service is offered.
    ServiceSocket(SandboxService, OwnedFd),
    /// A program has stopped at its exec barrier; its pid on the host.
    AtBarrier(u32, i32),
    /// A program runs.
    Running(u32),
    /// A program could not be started, and has exited.
    StartFailed(u32, Error),
    /// A program has exited; true when only pid 1 is left, and is about to exit.
    Exited(u32, ProgramExit, bool),
    /// pid 1 has exited, and every process with it; the error if its setup failed.
    SandboxExited(Option<Error>),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramExit {
    /// Its exit status.
    Exit(u8),
    /// The number of the signal that killed it.
    Signal(i32),
}

impl ProgramExit {
    fn from_wait_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            ProgramExit::Signal(libc::WTERMSIG(status))
        } else {
            ProgramExit::Exit(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
        }
    }

    /// The exit status as a shell reports it: 128+N for signal N.
    pub fn exit_status(self) -> u8 {
        match self {
            ProgramExit::Exit(status) => status,
            ProgramExit::Signal(signal) => status::of_signal(signal),
        }
    }
}

struct BlockedProgram {
    barrier: ExecBarrier,
    name: OsString,
}

/// A sandbox and the programs that were started in it.
pub struct RunningSandbox<'a> {
    launched: LaunchedSandbox,
    plan: &'a AgentPlan,
    at_barrier: BTreeMap<u32, BlockedProgram>,
    directory_modes: DirectoryModes,
    /// While programs are held: those that are to be released together.
    early: Option<Vec<u32>>,
    next: u32,
}

impl std::fmt::Debug for RunningSandbox<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("pid", &self.launched.pid).finish_non_exhaustive()
    }
}

impl<'a> RunningSandbox<'a> {
    /// Takes over a sandbox that was just started.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn new(launched: LaunchedSandbox, plan: &'a AgentPlan, registry: &Registry) -> Result<Self> {
        set_nonblocking(launched.control.as_fd())?;
        register(registry, launched.control.as_fd(), CONTROL)?;
        Ok(RunningSandbox {
            launched,
            plan,
            at_barrier: BTreeMap::new(),
            directory_modes: DirectoryModes::default(),
            early: None,
            next: 1,
        })
    }

    /// Pid of pid 1 on the host.
    pub fn pid(&self) -> i32 {
        self.launched.pid
    }

    /// The launched sandbox.
    pub(super) fn launched(&mut self) -> &mut LaunchedSandbox {
        &mut self.launched
    }

    /// Starts a program; returns its number. With `hold_at_barrier` it stops at its exec barrier until
    /// [`RunningSandbox::release`].
    ///
    /// # Errors
    /// As [`LaunchedSandbox::exec`].
    pub fn exec(
        &mut self,
        registry: &Registry,
        program: &ProgramSpec,
        streams: [BorrowedFd<'_>; 3],
        flags: u32,
        hold_at_barrier: bool,
    ) -> Result<u32> {
        let id = self.next;
        self.next += 1;
        let hold = hold_at_barrier || self.early.is_some();
        let asked = self.launched.exec(id, program, streams, flags, hold);
        // If pid 1 has exited, the error is the one that it reported before.
        let gate = asked.map_err(|error| self.failed_step().unwrap_or(error))?;
        register(registry, gate.as_fd(), Token(FIRST_BARRIER + id as usize))?;
        let name = program.argv.first().cloned().unwrap_or_default();
        self.at_barrier.insert(id, BlockedProgram { barrier: gate, name });
        if !hold_at_barrier {
            self.early.iter_mut().for_each(|early| early.push(id));
        }
        Ok(id)
    }

    /// Holds the programs that are started from now on at their exec barriers, until [`RunningSandbox::release_early`].
    /// pid 1 starts what was requested during its setup as soon as that is done, and the supervisor has its own part to
    /// do then: to watch the protected paths, and to listen on the ports of rules that were set meanwhile.
    pub fn hold_early(&mut self) {
        self.early = Some(Vec::new());
    }

    /// Releases the programs that were held.
    pub fn release_early(&mut self) {
        for id in self.early.take().into_iter().flatten() {
            // The exit of a program is reported separately.
            let _ = self.release(id);
        }
    }

    /// The error of the setup step that ended pid 1, if it has reported one.
    fn failed_step(&self) -> Option<Error> {
        while let Ok(Some((report, _))) = self.launched.next_report() {
            if let InitReport::StepFailed { step, errno } = report {
                return Some(hint::step_failed(self.plan, step, errno));
            }
        }
        None
    }

    /// Releases a program from its exec barrier, or with the others if programs are held.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when the program has exited.
    pub fn release(&mut self, id: u32) -> Result<()> {
        if let Some(early) = &mut self.early {
            early.push(id);
            return Ok(());
        }
        self.at_barrier.get_mut(&id).map_or(Ok(()), |at| at.barrier.release())
    }

    /// Whether a program is stopped at its exec barrier now: then its pid has not been reused.
    pub fn is_at_barrier(&self, id: u32) -> bool {
        self.at_barrier.get(&id).is_some_and(|at| at.barrier.is_waiting())
    }

    /// Requests a socket of the sandbox's network; false when the request cannot be sent now.
    pub fn request_socket(&self, family: IpFamily) -> bool {
        self.launched.send(InitRequest::Socket(family), &[]).is_ok()
    }

    /// Sends a signal to a program, or to its process group. It is not an error if the program has exited.
    pub fn signal(&self, id: u32, signal: i32, group: bool) {
        let _ = self.launched.send(InitRequest::Signal { id, signal, group }, &[]);
    }

    /// Kills every process of the sandbox and waits for its end.
    pub fn kill(&self) {
        self.launched.kill_and_reap();
    }

    /// Handles an event of this sandbox; `None` when the token belongs to another module.
    pub fn on_event(&mut self, registry: &Registry, token: Token) -> Option<Vec<SandboxEvent>> {
        let mut happened = Vec::new();
        if token == CONTROL {
            self.read_control(registry, &mut happened);
        } else if token == LISTENER || token == MODE_WORKER {
            self.directory_modes.on_worker_event(registry);
            self.set_directory_modes(registry);
        } else {
            let id = u32::try_from(token.0.checked_sub(FIRST_BARRIER)?).ok()?;
            self.read_barrier(registry, id, &mut happened);
        }
        Some(happened)
    }

    fn read_control(&mut self, registry: &Registry, happened: &mut Vec<SandboxEvent>) {
        loop {
            match self.launched.next_report() {
                Ok(Some((InitReport::Ready, _))) => happened.push(SandboxEvent::Ready),
                Ok(Some((InitReport::Terminal, Some(master)))) => {
                    happened.push(SandboxEvent::Terminal(master))
                }
                Ok(Some((InitReport::Workspace, Some(root)))) => happened.push(SandboxEvent::Workspace(root)),
                Ok(Some((InitReport::CapturedListener { protocol: kind, port }, Some(socket)))) => {
                    happened
                        .push(SandboxEvent::Transferred(TransferredFd::CapturedListener(kind, port, socket)));
                }
                Ok(Some((InitReport::RejectSniffer { family, kind: answer }, Some(socket)))) => {
                    happened.push(SandboxEvent::Transferred(TransferredFd::RejectSniffer(
                        family, answer, socket,
                    )));
                }
                Ok(Some((InitReport::Listener, Some(listener)))) => {
                    if let Some(listener) = self.take_listener(listener, registry) {
                        happened.push(SandboxEvent::Transferred(TransferredFd::SeccompListener(listener)));
                    }
                }
                Ok(Some((InitReport::Socket(family), Some(socket)))) => {
                    happened.push(SandboxEvent::Socket(family, Ok(socket)));
                }
                Ok(Some((InitReport::SocketFailed { family, errno }, _))) => {
                    happened.push(SandboxEvent::Socket(family, Err(Errno::from_raw(errno))));
                }
                // pid 1 sent a socket, and this process had no free descriptor to receive it.
                Ok(Some((InitReport::Socket(family), None))) => {
                    happened.push(SandboxEvent::Socket(family, Err(Errno::EMFILE)));
                }
                Ok(Some((InitReport::ServiceListener(service), Some(socket)))) => {
                    happened.push(SandboxEvent::ServiceSocket(service, socket));
                }
                Ok(Some((
                    InitReport::Terminal
                    | InitReport::Workspace
                    | InitReport::CapturedListener { .. }
                    | InitReport::RejectSniffer { .. }
                    | InitReport::Listener
                    | InitReport::ServiceListener(_),
                    None,
                ))) => {}
                Ok(Some((InitReport::StepFailed { step, errno }, _))) => {
                    self.launched.kill_and_reap();
                    happened
                        .push(SandboxEvent::SandboxExited(Some(hint::step_failed(self.plan, step, errno))));
                    return;
                }
                Ok(Some((InitReport::ForkFailed { id, errno }, _))) => {
                    let why = Errno::from_raw(errno).desc();
                    happened.push(SandboxEvent::StartFailed(id, Error::system("fork in the sandbox", why)));
                    self.remove_barrier(registry, id);
                }
                Ok(Some((InitReport::Exited { id, status, is_last_process: alone }, _))) => {
                    // Read the barrier first: a failed start is not an exit.
                    let failed = self.read_barrier(registry, id, happened);
                    if !failed {
                        happened.push(SandboxEvent::Exited(id, ProgramExit::from_wait_status(status), alone));
                    }
                }
                Ok(None) => {
                    // pid 1 closes its end before its namespaces are removed: wait until that is done.
                    self.launched.kill_and_reap();
                    happened.push(SandboxEvent::SandboxExited(None));
                    return;
                }
                Err(Errno::EAGAIN) => return,
                Err(errno) => {
                    self.launched.kill_and_reap();
                    happened
                        .push(SandboxEvent::SandboxExited(Some(Error::system("receive from pid 1", errno))));
                    return;
                }
            }
        }
    }

    /// Takes the listener of pid 1's filter; returns it if the relay gets it. Where this process has no descriptor left to
    /// watch it, it is closed, and the calls that it is for fail.
    fn take_listener(&mut self, listener: OwnedFd, registry: &Registry) -> Option<OwnedFd> {
        if self.plan.egress.is_none() {
            let _ = self.directory_modes.watch(listener, registry, LISTENER);
            return None;
        }
        if let Ok(duplicate) = listener.try_clone() {
            self.directory_modes.set_duplicate(duplicate);
        }
        Some(listener)
    }

    /// Has calls answered that set the mode of a directory, and that the relay has passed on; `None` when there is no relay.
    pub fn answer_mode_requests(&mut self, registry: &Registry, calls: Option<Vec<SyscallNotification>>) {
        match calls {
            Some(calls) if calls.is_empty() => {}
            Some(calls) => {
                calls.into_iter().for_each(|call| self.directory_modes.add_forwarded(call));
                self.set_directory_modes(registry);
            }
            None => self.directory_modes.stop_forwarding(),
        }
    }

    fn set_directory_modes(&mut self, registry: &Registry) {
        self.directory_modes.start_next(self.launched.launcher.as_deref(), registry, MODE_WORKER);
    }

    /// Reads the messages of an exec barrier; true when the program could not be started.
    fn read_barrier(&mut self, registry: &Registry, id: u32, happened: &mut Vec<SandboxEvent>) -> bool {
        while let Some(at) = self.at_barrier.get(&id) {
            match at.barrier.poll_event(&at.name) {
                BarrierEvent::Pending => return false,
                BarrierEvent::Waiting(pid) => happened.push(SandboxEvent::AtBarrier(id, pid)),
                BarrierEvent::Executed => {
                    happened.push(SandboxEvent::Running(id));
                    self.remove_barrier(registry, id);
                }
                BarrierEvent::Failed(error) => {
                    happened.push(SandboxEvent::StartFailed(id, error));
                    self.remove_barrier(registry, id);
                    return true;
                }
            }
        }
        false
    }

    fn remove_barrier(&mut self, registry: &Registry, id: u32) {
        if let Some(at) = self.at_barrier.remove(&id) {
            let _ = registry.deregister(&mut SourceFd(&at.barrier.as_fd().as_raw_fd()));
        }
    }
}
