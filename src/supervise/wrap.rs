//! The loop of `saggar wrap`: one program, its standard streams, its signals and its exit status. Standard streams are
//! inherited, or relayed to a terminal of the sandbox's own if they are terminals.
//!
//! ```text
//! starting ── master of the terminal, if needed ──> requested ── Running ──> running ── SandboxExited ──> over
//! ```
//! The loop returns when the last output has been written to the host's terminal. As soon as it has requested the
//! program, and before the program can have written anything, the loop hands over to its launcher and drops its rights
//! ([`super::confine`]).

use super::confine::{self, SupervisorRights};
use super::limit_reports::{self, LimitReports};
use super::memory::{self, MemoryGuard};
use super::network::SandboxNetwork;
use super::parent_watch::{self, ParentWatch};
use super::pin_watch::{self, PinWatch};
use super::quarantine_monitor::QuarantineMonitor;
use super::registration::register;
use super::sandbox::{ProgramExit, RunningSandbox, SandboxEvent};
use super::service_process::ServiceProcesses;
use super::signals;
use super::status::{
    ExceededLimit, ExitEvidence, ExitReason, StatusEvent, StatusWriter, SupervisionResult,
    missing_protections, runtime_error,
};
use super::terminal::{CallerStreams, Terminal, no_terminal_error};
use super::time_limits::{LimitClock, TimeLimits};
use super::worker::{ScanClient, ScanResult, WorkerContext};
use crate::cgroup::SandboxCgroups;
use crate::cgroup::agent::usage::SandboxUsage;
use crate::egress::io::publish::PublishedListeners;
use crate::error::{Code, Error, Result, status};
use crate::launch::agent::LaunchedSandbox;
use crate::launch::agent::cleanup::{self, CleanupGuard};
use crate::plan::agent::AgentPlan;
use crate::session::disk_usage::DiskUsage;
use crate::session::retained_changes::RetainedChanges;
use crate::spec::policy::EffectivePolicy;
use crate::spec::{PinnedPath, ProgramSpec};
use crate::stage::agent::launcher::{self, Launcher};
use crate::stage::agent::wire::ExecFlags;
use crate::state::counters::{self, StartKind};
use mio::{Events, Poll, Token};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

// Tokens 1 to 3 are those of the terminal.
const SIGNALS: Token = Token(0);
const MEMORY: Token = Token(4);
const PINS: Token = Token(5);
const LAUNCHER: Token = Token(7);

/// The parameters of [`run`].
#[derive(Debug)]
pub struct WrapJob<'a> {
    /// Id of the sandbox.
    pub id: &'a str,
    /// Its plan.
    pub plan: &'a AgentPlan,
    /// Its protected paths.
    pub pins: &'a [PinnedPath],
    /// Scans for files under protected names.
    pub quarantine_monitor: QuarantineMonitor,
    /// Host resources to clean up at the end.
    pub guard: &'a mut CleanupGuard,
    /// The program.
    pub program: &'a ProgramSpec,
    /// The listening sockets of published ports.
    pub published: PublishedListeners,
    /// The processes that serve sockets of the sandbox.
    pub services: ServiceProcesses,
    /// Its time limits; it is never idle.
    pub time_limits: TimeLimits,
    /// Its policy.
    pub policy: &'a EffectivePolicy,
    /// The mechanism that limits its disk usage, if there is a limit.
    pub disk_usage: Option<DiskUsage>,
    /// Where retained changes of an overlay are stored.
    pub retained_changes: Option<&'a RetainedChanges>,
    /// The user and group id that the supervisor changes to if it is root.
    pub supervisor: Option<u32>,
    /// Where events are written.
    pub status: StatusWriter,
    /// The process with which the sandbox ends, if there is one.
    pub parent: Option<ParentWatch>,
}

/// Runs the program to its end. Returns the exit status of saggar, and whether a retained overlay has changes.
///
/// # Errors
/// Why the program could not be run.
pub fn run(mut job: WrapJob<'_>, launched: LaunchedSandbox) -> (Result<u8>, Option<bool>) {
    // The loop is dropped before any message is printed: that restores the host's terminal.
    let services = std::mem::take(&mut job.services);
    let launched_pid = launched.pid;
    let started = WrapLoop::new(&mut job, services, launched).map_err(runtime_error);
    let mut end = WrapCleanup {
        workers: WorkerContext {
            quarantine_monitor: job.quarantine_monitor,
            disk_usage: job.disk_usage,
            retained_changes: job.retained_changes,
            init: launched_pid,
            program_ids: job.plan.program_ids(),
            cgroup: None,
            session: None,
        },
        guard: job.guard,
        launcher: None,
        supervisor: job.supervisor,
        scan_result: None,
        oom_kills_counted: false,
        usage: None,
        exceeded_limit: None,
        policy: job.policy,
        limit_reports: LimitReports::new(),
    };
    let outcome = started.and_then(|mut it| it.run(&mut job.status, &mut end));
    end.count_oom_kills();
    end.scan(&mut job.status);
    let seen = end.scan_result.unwrap_or_default();
    let result = match outcome {
        Ok((reason, ended)) => {
            let usage = end.measure();
            let memory = || {
                (reason == ExitReason::Oom)
                    .then(|| usage.unwrap_or_default().describe_oom_kill(&program_name(job.program)))
            };
            let (limit, message) = end.exceeded_limit.take().unzip();
            let message = message.or_else(memory);
            if let Some(message) = &message {
                log::warn!("{message}");
            }
            let (exit_code, signal) = match ended {
                ProgramExit::Exit(code) => (Some(code), None),
                ProgramExit::Signal(signal) => (None, Some(signal)),
            };
            let marks = ExitEvidence { usage: usage.as_ref(), signal, disk_is_full: seen.disk_is_full };
            let (id, limit) = (job.id, limit.or_else(|| ExceededLimit::from_evidence(reason, marks)));
            end.limit_reports.finish(id, (limit, usage.as_ref(), 0), job.policy, &mut job.status);
            job.status.write(&StatusEvent::Exited { id, reason, exit_code, signal, limit, message, usage });
            Ok(if reason == ExitReason::Timeout { status::TIME_LIMIT } else { ended.exit_status() })
        }
        Err((reason, error)) => {
            let (message, usage) = (Some(error.to_string()), end.measure());
            job.status.write(&StatusEvent::Exited {
                id: job.id,
                reason,
                exit_code: None,
                signal: None,
                limit: ExceededLimit::from_evidence(reason, ExitEvidence::default()),
                message,
                usage,
            });
            Err(error)
        }
    };
    (result, seen.has_changes)
}

/// The clean-up after the last program.
struct WrapCleanup<'a> {
    workers: WorkerContext<'a>,
    guard: &'a mut CleanupGuard,
    /// The launcher, once the loop has dropped its rights.
    launcher: Option<Rc<Launcher>>,
    supervisor: Option<u32>,
    /// The result of the last scan.
    scan_result: Option<ScanResult>,
    oom_kills_counted: bool,
    /// Resource usage, once it was measured: the cgroup is removed later.
    usage: Option<SandboxUsage>,
    /// The time limit that was exceeded.
    exceeded_limit: Option<(ExceededLimit, String)>,
    policy: &'a EffectivePolicy,
    limit_reports: LimitReports,
}

impl WrapCleanup<'_> {
    /// Does work while the kernel tears down the namespaces of pid 1, so that it costs no time.
    fn begin_cleanup(&mut self, status: &mut StatusWriter) {
        if self.scan_result.is_none() {
            self.measure();
            self.count_oom_kills();
            self.scan(status);
            self.guard.begin_cleanup();
        }
    }

    /// Resource usage, at the end.
    fn measure(&mut self) -> Option<SandboxUsage> {
        if self.usage.is_none() {
            self.usage = self.guard.cgroups().usage();
        }
        self.usage
    }

    /// Counts OOM kills, once, while the cgroup exists.
    fn count_oom_kills(&mut self) {
        if !std::mem::replace(&mut self.oom_kills_counted, true) {
            memory::count_unreported_kills(None, self.guard.cgroups());
        }
    }

    /// Scans for files under protected names, once, when no program can add one.
    fn scan(&mut self, status: &mut StatusWriter) {
        if self.scan_result.is_none() {
            let launcher = self.launcher.as_deref();
            self.scan_result =
                Some(ScanClient::default().scan_everything(launcher, &mut self.workers, status));
        }
    }
}

struct WrapLoop<'a> {
    id: &'a str,
    plan: &'a AgentPlan,
    pins: &'a [PinnedPath],
    pin_watch: Option<PinWatch>,
    program: &'a ProgramSpec,
    poll: Poll,
    signals: nix::sys::signalfd::SignalFd,
    sandbox: RunningSandbox<'a>,
    network: SandboxNetwork,
    services: ServiceProcesses,
    streams: CallerStreams,
    terminal: Option<Terminal>,
    /// The program's number, once it was requested.
    program_id: Option<u32>,
    clock: LimitClock,
    pid: i32,
    ended: Option<ProgramExit>,
    /// Reports OOM kills, once the program runs.
    memory: Option<MemoryGuard>,
    cgroups: SandboxCgroups,
    /// The OOM killer killed the program.
    oom_killed: bool,
    /// Whether only a dying pid 1 is left.
    only_init_left: bool,
    /// The result to return when the terminal has taken the last output.
    result: Option<(ExitReason, ProgramExit)>,
    /// Kept open for its events.
    _parent: Option<ParentWatch>,
}

impl<'a> WrapLoop<'a> {
    fn new(job: &mut WrapJob<'a>, services: ServiceProcesses, launched: LaunchedSandbox) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let signals = signals::open()?;
        register(poll.registry(), signals.as_fd(), SIGNALS)?;
        let parent = job.parent.take();
        if let Some(parent) = &parent {
            register(poll.registry(), parent.as_fd(), parent_watch::TOKEN)?;
        }
        let sandbox = RunningSandbox::new(launched, job.plan, poll.registry())?;
        let published = std::mem::take(&mut job.published);
        let network =
            SandboxNetwork::start(job.plan, (sandbox.pid(), job.supervisor), published, poll.registry())?;
        services.register(poll.registry())?;
        // The memory watch is opened while this process may; kills before the program runs belong to its start.
        let cgroups = job.guard.cgroups().clone();
        let memory =
            cgroups.unified.as_deref().and_then(|own| MemoryGuard::observing(own, poll.registry(), MEMORY));
        let streams = CallerStreams::of_this_process()?;
        let mut it = WrapLoop {
            id: job.id,
            plan: job.plan,
            pins: job.pins,
            pin_watch: None,
            program: job.program,
            poll,
            signals,
            sandbox,
            network,
            services,
            streams,
            terminal: None,
            program_id: None,
            clock: LimitClock::new(job.time_limits.clone()),
            pid: 0,
            ended: None,
            memory,
            cgroups,
            oom_killed: false,
            only_init_left: false,
            result: None,
            _parent: parent,
        };
        if !it.streams.need_terminal() {
            it.start(None)?;
        }
        Ok(it)
    }

    /// Requests the program. Closes our copy of the slave: the master must get a hang-up when the last copy inside is
    /// closed.
    fn start(&mut self, slave: Option<OwnedFd>) -> Result<()> {
        let (streams, terminal) = self.streams.for_program(slave.as_ref())?;
        let flags = ExecFlags::MAIN | terminal;
        self.program_id =
            Some(self.sandbox.exec(self.poll.registry(), self.program, streams, flags, false)?);
        Ok(())
    }

    /// Hands over to the launcher and drops all rights, while pid 1 works on its setup and the request is pending.
    fn drop_privileges(&mut self, end: &mut WrapCleanup<'_>) -> Result<()> {
        cleanup::sweep_best_effort();
        counters::map_page();
        let descriptors = end.workers.descriptors();
        let launcher = end.guard.spawn_launcher(self.sandbox.launched(), &descriptors, &mut end.workers)?;
        self.services.use_launcher(&launcher);
        // Without the launcher no process could end a sandbox that does not end by itself.
        register(self.poll.registry(), launcher.pidfd(), LAUNCHER)?;
        end.launcher = Some(launcher);
        let reads = end.guard.cgroups().clone();
        confine::confine_supervisor(&SupervisorRights {
            id: end.supervisor,
            bounding_set: Some(launcher::RIGHTS.capabilities),
            readable: reads.directories().collect(),
            ..SupervisorRights::default()
        })?;
        end.guard.await_watcher();
        Ok(())
    }

    fn run(
        &mut self,
        status: &mut StatusWriter,
        end: &mut WrapCleanup<'_>,
    ) -> SupervisionResult<(ExitReason, ProgramExit)> {
        let mut events = Events::with_capacity(16);
        end.limit_reports.watch(&self.cgroups, self.poll.registry());
        if self.program_id.is_some() {
            self.drop_privileges(end).inspect_err(|_| self.sandbox.kill()).map_err(runtime_error)?;
        }
        loop {
            self.network.tick(self.poll.registry());
            self.network.pass_requests(&mut self.sandbox, self.poll.registry());
            self.network.report_published(self.id, status, |text| log::warn!("{text}"));
            self.network.report(
                self.id,
                status,
                |text| log::warn!(target: crate::log::SANDBOX_CAUSED, "{text}"),
            );
            self.services.report_errors(
                self.id,
                status,
                |text| log::warn!(target: crate::log::SANDBOX_CAUSED, "{text}"),
            );
            let at_rest = !self.relay().map_err(runtime_error)?;
            if at_rest
                && let Some(over) = self.result.filter(|_| self.is_drained())
                && self.network.is_drained()
            {
                self.network.report_missing_rules(|line| log::warn!("{line}"));
                return Ok(over);
            }
            if self.only_init_left && self.result.is_none() {
                end.begin_cleanup(status);
            }
            if let Some(over) = self.clock.exceeded() {
                end.exceeded_limit = Some(over);
                self.sandbox.kill();
                // Shows pending output, as far as the host's terminal takes it without blocking.
                while self.relay().map_err(runtime_error)? {}
                return Ok((ExitReason::Timeout, ProgramExit::Signal(libc::SIGKILL)));
            }
            match self.poll.poll(&mut events, self.poll_timeout(at_rest)) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(|e| runtime_error(Error::system("wait for events", e)))?,
            }
            for event in &events {
                if self.terminal.as_mut().is_some_and(|terminal| terminal.on_event(event)) {
                    continue;
                }
                if self.network.on_event(event) {
                    continue;
                }
                if self.services.on_event(self.poll.registry(), event.token()) {
                    continue;
                }
                if event.token() == SIGNALS {
                    self.forward_signals();
                    continue;
                }
                if event.token() == parent_watch::TOKEN {
                    self.sandbox.kill();
                    return Ok((ExitReason::Signal, ProgramExit::Signal(libc::SIGKILL)));
                }
                if event.token() == MEMORY {
                    self.memory.iter_mut().for_each(|memory| memory.check(self.id, status));
                    continue;
                }
                if event.token() == limit_reports::TOKEN {
                    end.limit_reports.check_pids(self.id, end.policy, self.poll.registry(), status);
                    continue;
                }
                if event.token() == PINS {
                    self.check_pins()?;
                    continue;
                }
                if event.token() == LAUNCHER {
                    self.check_launcher(end)?;
                    continue;
                }
                let happened = self.sandbox.on_event(self.poll.registry(), event.token());
                for happening in happened.into_iter().flatten() {
                    self.on_sandbox_event(happening, status, end)?;
                }
            }
        }
    }

    fn on_sandbox_event(
        &mut self,
        event: SandboxEvent,
        status: &mut StatusWriter,
        end: &mut WrapCleanup<'_>,
    ) -> SupervisionResult<()> {
        if self.result.is_some() {
            return Ok(());
        }
        match event {
            SandboxEvent::Terminal(master) if self.program_id.is_none() => {
                let (terminal, slave) = Terminal::attach(master, &self.streams).map_err(runtime_error)?;
                self.terminal = Some(terminal);
                self.start(Some(slave)).map_err(runtime_error)?;
                self.drop_privileges(end).inspect_err(|_| self.sandbox.kill()).map_err(runtime_error)?;
            }
            // A stream has become a terminal since the plan was made.
            SandboxEvent::Ready if self.program_id.is_none() => {
                self.sandbox.kill();
                return Err(runtime_error(no_terminal_error()));
            }
            SandboxEvent::Ready => self.watch_pins(end.launcher.as_deref())?,
            SandboxEvent::AtBarrier(_, pid) => self.pid = pid,
            SandboxEvent::Transferred(handed) => self.network.send_transferred(handed),
            SandboxEvent::Socket(family, socket) => self.network.send_socket(family, socket),
            SandboxEvent::ServiceSocket(service, socket) => self.services.add_socket(service, socket),
            SandboxEvent::Running(_) => {
                let degraded = missing_protections(&self.plan.degraded);
                counters::count_start(StartKind::Sandbox);
                status.write(&StatusEvent::Started { id: self.id, pid: self.pid, degraded });
                let started =
                    self.terminal.as_mut().map_or(Ok(()), |terminal| terminal.start(self.poll.registry()));
                started.map_err(runtime_error)?;
            }
            SandboxEvent::StartFailed(_, error) => {
                self.sandbox.kill();
                return Err(runtime_error(error));
            }
            SandboxEvent::Exited(id, how, alone) if self.program_id == Some(id) => {
                self.ended = Some(how);
                self.only_init_left = alone;
                self.check_oom_kill(self.pid, how, status);
            }
            SandboxEvent::SandboxExited(Some(error)) => return Err(runtime_error(error)),
            SandboxEvent::SandboxExited(None) => {
                self.clock.stop();
                if self.ended.is_none() {
                    self.check_oom_kill(self.sandbox.pid(), KILLED_BY_KERNEL, status);
                }
                self.result = Some(final_exit(self.ended, self.oom_killed));
            }
            _ => {}
        }
        Ok(())
    }

    /// Records whether the OOM killer killed this process, and with it the program.
    fn check_oom_kill(&mut self, pid: i32, how: ProgramExit, status: &mut StatusWriter) {
        self.oom_killed = how == KILLED_BY_KERNEL
            && match &mut self.memory {
                Some(memory) => memory.was_oom_killed(pid, self.id, status),
                None => self.cgroups.oom_kills() > 0,
            };
    }

    fn watch_pins(&mut self, launcher: Option<&Launcher>) -> SupervisionResult<()> {
        let table = || pin_watch::open_mount_table(launcher, self.sandbox.pid());
        self.pin_watch = PinWatch::new(table, self.pins, self.poll.registry(), PINS)
            .inspect_err(|_| self.sandbox.kill())?;
        Ok(())
    }

    /// An undone pin ends the sandbox, unless it is ending anyway.
    fn check_pins(&mut self) -> SupervisionResult<()> {
        if self.result.is_some() {
            return Ok(());
        }
        self.pin_watch.as_mut().map_or(Ok(()), PinWatch::check).inspect_err(|_| self.sandbox.kill())
    }

    /// A launcher that exits before it is asked to was killed.
    fn check_launcher(&mut self, end: &WrapCleanup<'_>) -> SupervisionResult<()> {
        if end.guard.is_cleaning_up() {
            return Ok(());
        }
        self.sandbox.kill();
        Err(runtime_error(Error::new(Code::System, "the launcher of the sandbox was killed")))
    }

    /// Copies data between the terminals; true when there may be more at once.
    fn relay(&mut self) -> Result<bool> {
        self.terminal.as_mut().map_or(Ok(false), |terminal| terminal.pump(self.poll.registry()))
    }

    /// Longest wait for events.
    fn poll_timeout(&self, at_rest: bool) -> Option<Duration> {
        if !at_rest {
            return Some(Duration::ZERO);
        }
        let relay = self.terminal.as_ref().and_then(Terminal::poll_timeout);
        self.clock.poll_timeout().into_iter().chain(relay).chain(self.network.poll_timeout()).min()
    }

    fn is_drained(&self) -> bool {
        self.terminal.as_ref().is_none_or(Terminal::is_drained)
    }

    /// Forwards signals as if the program ran without saggar: one from the terminal goes to its whole process group.
    fn forward_signals(&mut self) {
        while let Some((signal, from_terminal)) = signals::read_next(&self.signals) {
            match signal {
                libc::SIGTSTP => self.stop_with_program(),
                _ if self.has_no_program() && signals::kills_by_default(signal) => {
                    self.end_without_program(signal);
                }
                _ => self.forward_signal(signal, from_terminal),
            }
        }
    }

    fn forward_signal(&mut self, signal: i32, to_group: bool) {
        match (signal, &mut self.terminal) {
            (libc::SIGWINCH, Some(terminal)) => terminal.resize(),
            (libc::SIGCONT, Some(terminal)) => terminal.resume(),
            _ => {}
        }
        // A resize of its own terminal notifies the program; without one it gets the SIGWINCH of the host's.
        if let Some(main) = self.program_id
            && (signal != libc::SIGWINCH || self.terminal.is_none())
        {
            self.sandbox.signal(main, signal, to_group || signal == libc::SIGCONT);
        }
    }

    /// Stops the program, then this process, so that the shell that waits for it sees the stop. SIGSTOP, because the
    /// program leads a session of its own: no process in it could continue its group, and the kernel drops a SIGTSTP
    /// for an orphaned process group (credentials(7)).
    fn stop_with_program(&mut self) {
        if let Some(main) = self.program_id {
            self.sandbox.signal(main, libc::SIGSTOP, true);
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.suspend();
        }
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
    }

    /// No program can get signals: it has not been requested yet, or it has exited and its last output is stuck.
    fn has_no_program(&self) -> bool {
        self.program_id.is_none() || self.result.is_some()
    }

    /// Ends without a program to forward the signal to.
    fn end_without_program(&mut self, signal: i32) {
        self.sandbox.kill();
        self.clock.stop();
        self.terminal = None;
        self.result.get_or_insert((ExitReason::Signal, ProgramExit::Signal(signal)));
    }
}

/// How the OOM killer ends a process.
const KILLED_BY_KERNEL: ProgramExit = ProgramExit::Signal(libc::SIGKILL);

/// The name of a program in messages.
fn program_name(program: &ProgramSpec) -> String {
    let path = program.argv.first().map(Path::new);
    let name = path.and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The exit after pid 1 has exited: the program's own, or SIGKILL from outside.
fn final_exit(ended: Option<ProgramExit>, oom: bool) -> (ExitReason, ProgramExit) {
    match ended {
        Some(KILLED_BY_KERNEL) | None if oom => (ExitReason::Oom, KILLED_BY_KERNEL),
        Some(how @ ProgramExit::Exit(_)) => (ExitReason::Exit, how),
        Some(how @ ProgramExit::Signal(_)) => (ExitReason::Signal, how),
        None => (ExitReason::Signal, ProgramExit::Signal(libc::SIGKILL)),
    }
}
