//! The loop of `saggar agent`: the sandbox, the agent's process, and the bridge between the agent and its servers.
//!
//! ```text
//!  servers ══ hub (socket, connections, core) ── Action ──> this loop ──> sandbox (pid 1), process, execs
//!                      ^────────────────── events ────────────┘
//! ```
//! The core decides and the loop executes its actions. The loop ends when the core returns `Shutdown`, when the sandbox
//! has ended, or when the wall-clock limit is reached.

pub(crate) mod client;
mod console;
mod control_handler;
mod current_policy;
mod exit;
mod key_reader;
mod message_text;
mod permission_prompt;
mod privilege_drop;
mod progress_line;
mod scripts;
mod session_state;
mod snapshot;
mod stderr_relay;

pub use super::channel::control::SessionLog;
pub use client::TurnOutcome;
pub use console::ConsoleFormat;
pub(crate) use console::print_progress;
pub use exit::run;
pub(crate) use message_text::{ConversationPart, MessageText};
pub(crate) use permission_prompt::ask_user;
pub use privilege_drop::{LauncherResources, SessionRemoval};
pub use scripts::Script;

use super::channel::agent_process::{self, AgentProcess, ReadResult};
use super::channel::control::{ControlHandler, ControlSocket};
use super::channel::execs::ExecTable;
use super::channel::file_calls::FileCalls;
use super::channel::{AgentChannel, log_bridge_message};
use super::limit_reports::{self, LimitReports};
use super::memory::MemoryGuard;
use super::network::{self, SandboxNetwork};
use super::parent_watch::{self, ParentWatch};
use super::pin_watch::PinWatch;
use super::privileged_operations::PrivilegedOperations;
use super::registration::register;
use super::sandbox::{RunningSandbox, SandboxEvent};
use super::service_process::ServiceProcesses;
use super::signals;
use super::status::{
    ExceededLimit, ExitReason, StatusEvent, StatusWriter, SupervisionResult, missing_protections,
    runtime_error,
};
use super::time_limits::{LimitClock, TimeLimits};
use super::worker::{ScanClient, agent_socket};
use crate::bridge::adapter::{Adapter, AgentTransport};
use crate::bridge::core::{
    AgentExitStatus, AgentStart, AgentStop, Bridge, BridgeAction, BridgeConfig, DisconnectPolicy, ExecOrder,
};
use crate::bridge::io::{ConnectionHub, UnixSocketListener};
use crate::bridge::proto::LogLevel;
use crate::bridge::proto::spool::{SavedSpool, SpoolStore};
use crate::cgroup::SandboxCgroups;
use crate::cgroup::agent::exec::ExecCgroups;
use crate::egress::io::publish::PublishedListeners;
use crate::error::{Code, Error, Result, status};
use crate::host::kmsg::KernelLog;
use crate::launch::agent::LaunchedSandbox;
use crate::plan::agent::AgentPlan;
use crate::session::record::{RecordWriter, StateReason};
use crate::spec::policy::EffectivePolicy;
use crate::spec::{PinnedPath, ProgramSpec};
use crate::stage::agent::wire::ExecFlags;
use crate::state::counters::{self, StartKind};
use crate::sys::clock;
use console::{AgentConsole, TurnProgress};
use control_handler::FreezeState;
use current_policy::CurrentPolicy;
use mio::{Events, Poll, Token};
use nix::sys::signal::Signal;
use scripts::ScriptQueue;
use session_state::EndRequest;
use snapshot::SnapshotInProgress;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

const SIGNALS: Token = Token(0);
const PINS: Token = Token(2);
const MEMORY: Token = Token(4);
const SNAPSHOT: Token = Token(5);
/// Token of the wait for the agent's socket.
const CONNECTION: Token = Token(8);
const HUB: Token = Token(1 << 16);

/// How long an agent of the adapter `bridge` may take until it listens on its socket.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Path inside the sandbox of the socket of an agent that implements the bridge protocol itself.
pub const AGENT_SOCKET: &str = "/run/agent.sock";

/// The parameters of an agent run.
#[derive(Debug)]
pub struct AgentJob<'a> {
    /// Id of the sandbox.
    pub id: &'a str,
    /// Its plan.
    pub plan: &'a AgentPlan,
    /// Its protected paths.
    pub pins: &'a [PinnedPath],
    /// The agent's program, without the arguments that its adapter adds.
    pub program: ProgramSpec,
    /// The policy: answers to permission requests, and limits.
    pub policy: EffectivePolicy,
    /// The audit log of the answers to permission requests. See
    /// [`Session::open_audit_log`](crate::session::Session::open_audit_log).
    pub audit: File,
    /// Most message uuids that the bridge remembers, in each direction.
    pub remembered_uuids: usize,
    /// Scripts that run before the agent.
    pub scripts: Vec<Script>,
    /// Where the bridge's events are stored, if they are, with the events of an earlier run.
    pub spool: Option<(Box<dyn SpoolStore>, SavedSpool)>,
    /// The listening sockets of published ports.
    pub published: PublishedListeners,
    /// The adapter for the agent's protocol.
    pub adapter: Box<dyn Adapter>,
    /// Name of the session.
    pub session: &'a str,
    /// The agent's own id of its conversation, if there is one. See [`BridgeConfig::agent_session`].
    pub agent_session: Option<String>,
    /// The listening socket of the bridge.
    pub listener: UnixSocketListener,
    /// The listening socket of the control protocol.
    pub control: UnixSocketListener,
    /// Runs one turn with this prompt, with output in this format.
    pub prompt: Option<(String, ConsoleFormat)>,
    /// Gets one byte `R` once the bridge listens and the agent's program has started.
    pub ready: Option<File>,
    /// Its cgroup, if it has one.
    pub cgroups: SandboxCgroups,
    /// The processes that serve sockets of the sandbox.
    pub services: ServiceProcesses,
    /// Its time limits.
    pub time_limits: TimeLimits,
    /// Where events are written.
    pub status: StatusWriter,
    /// Writes the session's record.
    pub record_writer: &'a mut RecordWriter,
    /// The session's log on disk.
    pub logs: SessionLog,
    /// No terminal waits for the end: a turn outlives its connection, and a time limit pauses the session if possible
    /// (DECISIONS 13, 20).
    pub detached: bool,
    /// The process with which the sandbox ends, if there is one.
    pub parent: Option<ParentWatch>,
    /// A server started this process in place of its own bridge (DECISIONS 36): it knows no ids of commands, and reads the
    /// agent's standard error from that of saggar.
    pub is_child_of_server: bool,
}

struct AgentLoop<'a> {
    id: &'a str,
    session: &'a str,
    control: Option<ControlSocket>,
    freeze: FreezeState,
    snapshot: Option<SnapshotInProgress>,
    /// The work tree as the programs see it, once pid 1 has sent it.
    workspace: Option<OwnedFd>,
    files: FileCalls,
    policy_state: CurrentPolicy,
    scripts: ScriptQueue,
    plan: &'a AgentPlan,
    pins: &'a [PinnedPath],
    channel: AgentChannel,
    signals: nix::sys::signalfd::SignalFd,
    sandbox: RunningSandbox<'a>,
    privileged: PrivilegedOperations,
    network: SandboxNetwork,
    services: ServiceProcesses,
    transport: AgentTransport,
    program: ProgramSpec,
    /// The pending connection to the agent's socket, and its deadline.
    connecting: Option<(OwnedFd, Instant)>,
    execs: ExecTable,
    console: Option<AgentConsole>,
    /// The turn of the console failed.
    failed_turn: Option<String>,
    ready: Option<File>,
    audit: File,
    pin_watch: Option<PinWatch>,
    scans: ScanClient,
    /// Number of ended commands at the last scan for files under protected names.
    commands_ended_at_scan: u64,
    clock: LimitClock,
    /// The time limit that was exceeded.
    exceeded_limit: Option<(ExceededLimit, String)>,
    /// The agent has run at least once: before that a failure counts as a failure of the start.
    agent_has_run: bool,
    last_exit: Option<AgentExitStatus>,
    /// The last exit was a failure: the agent was not told to end, or to end its turn.
    has_crashed: bool,
    cgroups: SandboxCgroups,
    record_writer: &'a mut RecordWriter,
    detached: bool,
    parent: Option<ParentWatch>,
    relays_stderr: bool,
    /// The request to end, if there was one.
    end_request: Option<EndRequest>,
    /// The time limit for which the sandbox is frozen.
    paused_for: Option<StateReason>,
    /// The kernel's log of OOM kills, until [`Self::memory`] takes it.
    kernel_log: Option<KernelLog>,
    /// Watches the memory, once the agent runs.
    memory: Option<MemoryGuard>,
    /// Reports the limits that programs meet.
    limit_reports: LimitReports,
    status: StatusWriter,
}

impl<'a> AgentLoop<'a> {
    /// If the relay is root it changes to the id `supervisor`.
    fn new(job: AgentJob<'a>, launched: LaunchedSandbox, supervisor: Option<u32>) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let signals = signals::open()?;
        register(poll.registry(), signals.as_fd(), SIGNALS)?;
        if let Some(parent) = &job.parent {
            register(poll.registry(), parent.as_fd(), parent_watch::TOKEN)?;
        }
        let mut sandbox = RunningSandbox::new(launched, job.plan, poll.registry())?;
        sandbox.hold_early();
        job.services.register(poll.registry())?;
        let config = BridgeConfig {
            session_name: job.session.to_owned(),
            pid: std::process::id(),
            max_remembered: job.remembered_uuids,
            agent_idle: job.policy.limits.agent_idle.as_ref().map(|limit| limit.value.duration()),
            permissions: job.policy.permissions.clone(),
            agent_session: job.agent_session,
            disconnect: if job.detached { DisconnectPolicy::Detach } else { DisconnectPolicy::Abort },
            epoch_ms: clock::epoch_ms(),
            exec_order: if job.is_child_of_server { ExecOrder::Immediate } else { ExecOrder::Queued },
            ..BridgeConfig::default()
        };
        let transport = job.adapter.transport();
        let mut bridge = Bridge::new(config, job.adapter);
        if let Some((store, left)) = job.spool {
            bridge.enable_spool(store, left);
        }
        let mut hub = ConnectionHub::new(bridge, job.listener, poll.registry(), HUB)?;
        let console = match job.prompt {
            Some((prompt, show)) => {
                let (console, stream) = AgentConsole::new(&prompt, job.session, show, poll.registry())?;
                hub.add_connection(stream);
                Some(console)
            }
            None => None,
        };
        let leaves = job.cgroups.unified.as_deref().and_then(ExecCgroups::open);
        let execs = ExecTable::new(job.program.env.clone(), job.program.cwd.clone(), leaves)?;
        let control = ControlSocket::new(job.control, Some(job.logs), poll.registry())?;
        let of = (sandbox.pid(), supervisor);
        let mut network = SandboxNetwork::start(job.plan, of, job.published, poll.registry())?;
        network.enable_questions();
        network.allow_hosts(&job.record_writer.record().consented);
        Ok(AgentLoop {
            id: job.id,
            session: job.session,
            control: Some(control),
            freeze: FreezeState::default(),
            snapshot: None,
            workspace: None,
            files: FileCalls::default(),
            policy_state: CurrentPolicy::new(job.policy),
            scripts: ScriptQueue::new(job.scripts),
            plan: job.plan,
            pins: job.pins,
            channel: AgentChannel::new(poll, hub, None),
            signals,
            sandbox,
            privileged: PrivilegedOperations::default(),
            network,
            services: job.services,
            transport,
            program: job.program,
            connecting: None,
            execs,
            console,
            failed_turn: None,
            ready: job.ready,
            audit: job.audit,
            pin_watch: None,
            scans: ScanClient::default(),
            commands_ended_at_scan: 0,
            clock: LimitClock::new(job.time_limits),
            exceeded_limit: None,
            agent_has_run: false,
            last_exit: None,
            has_crashed: false,
            cgroups: job.cgroups,
            record_writer: job.record_writer,
            detached: job.detached,
            parent: job.parent,
            relays_stderr: job.is_child_of_server,
            end_request: None,
            paused_for: None,
            kernel_log: None,
            memory: None,
            limit_reports: LimitReports::new(),
            status: job.status,
        })
    }

    fn run(&mut self) -> SupervisionResult<(ExitReason, u8)> {
        let mut events = Events::with_capacity(64);
        self.channel.tick();
        loop {
            while let Some(action) = self.channel.hub.next_action() {
                if self.apply_action(action).map_err(runtime_error)? {
                    return self.finish();
                }
            }
            let ended = self.channel.hub.core().commands_ended();
            let has_ended = std::mem::replace(&mut self.commands_ended_at_scan, ended) != ended;
            let is_busy = self.is_working() || self.is_frozen();
            self.clock.set_busy(is_busy, has_ended);
            self.hold_agent_if_frozen();
            if has_ended {
                self.scan_quickly();
            }
            // The state is recorded before any client is notified.
            self.record_state();
            self.serve_requests();
            self.kill_timed_out_script();
            self.service_network();
            if let Some(error) = self.scripts.take_failure() {
                self.sandbox.kill();
                return Err(runtime_error(error));
            }
            self.forward_events();
            if self.channel.hub.has_actions() {
                continue;
            }
            self.sync_record();
            let wait = self.poll_timeout();
            self.channel.wait(&mut events, wait).map_err(runtime_error)?;
            self.kill_unresponsive_agent();
            if self.memory.as_ref().is_some_and(|memory| memory.poll_timeout() == Some(Duration::ZERO)) {
                self.check_memory();
            }
            if let Some((limit, why)) = self.clock.exceeded()
                && !self.survives_limit(limit)
            {
                log_bridge_message(LogLevel::Warn, &why);
                self.pause_on_limit(limit);
                self.exceeded_limit = Some((limit, why));
                self.sandbox.kill();
                return Ok((ExitReason::Timeout, status::TIME_LIMIT));
            }
            self.advance_snapshot();
            self.control.iter_mut().for_each(ControlSocket::tick);
            for event in &events {
                if self.control.as_mut().is_some_and(|control| control.on_event(event)) {
                    continue;
                }
                if self.network.on_event(event) {
                    continue;
                }
                if self.services.on_event(self.channel.poll.registry(), event.token()) {
                    continue;
                }
                if self.channel.hub.owns_token(event.token()) {
                    self.channel.hub.on_event(event);
                } else if let Some(over) = self.on_event(event.token())? {
                    return Ok(over);
                }
            }
        }
    }

    /// Does the periodic work of the network, asks about hosts, and reports denials.
    fn service_network(&mut self) {
        self.network.tick(self.channel.poll.registry());
        self.network.pass_requests(&mut self.sandbox, self.channel.poll.registry());
        for question in self.network.take_questions() {
            self.channel.hub.with_bridge(|bridge| network::ask_permission(bridge, &question));
        }
        let (control, detached) = (&mut self.control, self.detached);
        self.network.report_published(self.id, &mut self.status, |text| {
            if let Some(control) = control {
                control.append_log(clock::epoch_ms(), LogLevel::Info, text);
            }
            if !detached {
                log_bridge_message(LogLevel::Info, text);
            }
        });
        let mut say = |text: &str| {
            if let Some(control) = control {
                control.append_log(clock::epoch_ms(), LogLevel::Warn, text);
            }
            if !detached {
                log_bridge_message(LogLevel::Warn, text);
            }
        };
        self.network.report(self.id, &mut self.status, &mut say);
        self.services.report_errors(self.id, &mut self.status, &mut say);
    }

    /// Forwards status events to the subscribers of the control socket.
    fn forward_events(&mut self) {
        let Some(control) = &mut self.control else { return };
        for event in self.status.take_events() {
            control.publish_event(&event);
        }
        self.status.set_queueing(control.has_subscribers());
    }

    fn poll_timeout(&mut self) -> Option<Duration> {
        let hub = self.channel.poll_timeout();
        let limit = self.clock.poll_timeout();
        let connect =
            self.connecting.as_ref().map(|(_, until)| until.saturating_duration_since(Instant::now()));
        let progress = self.console.as_mut().and_then(AgentConsole::tick);
        let control = self.control.as_ref().and_then(ControlSocket::poll_timeout);
        let memory = self.memory.as_ref().and_then(MemoryGuard::poll_timeout);
        let scripts = self.scripts.poll_timeout();
        let snapshot = self.snapshot.as_ref().and_then(SnapshotInProgress::poll_timeout);
        let (network, execs) = (self.network.poll_timeout(), self.execs.remove_leaves());
        let waits = [hub, limit, connect, progress, control, memory, scripts, snapshot, network, execs];
        waits.into_iter().flatten().min()
    }

    /// Executes an action of the core; true when the bridge is shut down.
    fn apply_action(&mut self, action: BridgeAction) -> Result<bool> {
        match action {
            BridgeAction::StartAgent(start) => self.start_agent(start)?,
            BridgeAction::StopAgent(stop) => self.stop_agent(stop),
            BridgeAction::InterruptAgent => {
                if let Some(agent) = &self.channel.agent {
                    self.sandbox.signal(agent.id, libc::SIGINT, false);
                }
            }
            BridgeAction::AgentInput(bytes) => self.channel.send(bytes),
            // Reading resumes by itself: the stream is checked again when the core wants more.
            BridgeAction::ResumeAgent => self.read_agent(),
            BridgeAction::RunExec { exec, command } => self.start_or_report_failure(exec, command),
            BridgeAction::KillExec { exec } => self.kill_command(exec),
            BridgeAction::SaveAgentSession { session, agent_session } => {
                self.save_agent_session(&session, &agent_session)
            }
            BridgeAction::RecordAgentFailure => self.record_state(),
            BridgeAction::Audit(audit) => {
                if let Err(error) = self.audit.write_all(&audit.encode_line()) {
                    log_bridge_message(LogLevel::Warn, &format!("a decision is not in the audit: {error}"));
                }
            }
            BridgeAction::PlainOutput(_) => {}
            BridgeAction::HostQuestionAnswered(answer) => self.record_consent(answer),
            BridgeAction::PermissionRequested(id) => self.notify_question(&id, true),
            BridgeAction::PermissionClosed(id) => self.notify_question(&id, false),
            BridgeAction::Log { level, text } => {
                if let Some(control) = &mut self.control {
                    control.append_log(clock::epoch_ms(), level, &text);
                }
                // In a detached session both logs are the same.
                if self.detached {
                    return Ok(false);
                }
                if let Some(console) = &mut self.console {
                    console.clear_progress();
                }
                log_bridge_message(level, &text);
            }
            BridgeAction::Shutdown => return Ok(true),
            BridgeAction::Send { .. } | BridgeAction::Close { .. } => {}
        }
        Ok(false)
    }

    fn start_agent(&mut self, start: AgentStart) -> Result<()> {
        if self.scripts.is_pending() {
            self.defer_start(start);
            return Ok(());
        }
        let mut program = self.program.clone();
        program.argv.extend(start.arguments.into_iter().map(Into::into));
        let registry = self.channel.poll.registry();
        let started = AgentProcess::with_pipes(self.transport, registry).and_then(|(mut agent, ends)| {
            let streams = [ends.stdin.as_fd(), ends.stdout.as_fd(), ends.stderr.as_fd()];
            let flags = ExecFlags::SUBREAPER;
            agent.id = self.sandbox.exec(registry, &program, streams, flags, false)?;
            Ok(agent)
        });
        match started {
            Ok(agent) => self.channel.agent = Some(agent),
            // No client was notified yet that the session is ready, and none will be (BP-06).
            Err(error) if !self.agent_has_run => return Err(error),
            Err(error) => self.channel.report_start_failure(error.to_string()),
        }
        Ok(())
    }

    /// A frozen agent cannot exit in order, so it is not ended while it is idle.
    fn hold_agent_if_frozen(&mut self) {
        let holds = self.is_frozen() || self.snapshot.is_some();
        if self.channel.hub.core().is_agent_held() != holds {
            self.channel.hub.with_bridge(|bridge| bridge.hold_agent(holds));
        }
    }

    fn stop_agent(&mut self, stop: AgentStop) {
        if self.cancel_start() {
            return;
        }
        let Some(agent) = &mut self.channel.agent else { return };
        match stop {
            AgentStop::CloseInput => agent.close_input(self.channel.poll.registry()),
            AgentStop::Terminate => self.sandbox.signal(agent.id, libc::SIGTERM, false),
            AgentStop::Kill if agent.pid != 0 => self.privileged.kill_tree(agent.pid),
            AgentStop::Kill => self.sandbox.signal(agent.id, libc::SIGKILL, true),
        }
    }

    /// Handles an event of any source but the hub; the result when it ends the loop.
    fn on_event(&mut self, token: Token) -> SupervisionResult<Option<(ExitReason, u8)>> {
        match token {
            SIGNALS => self.read_signals(),
            parent_watch::TOKEN => self.on_parent_exit(),
            PINS => self.check_pins()?,
            control_handler::FREEZER_TOKEN => self.on_freezer_event(),
            MEMORY => self.check_memory(),
            limit_reports::TOKEN => self.check_pids(),
            SNAPSHOT => self.read_snapshot_output(),
            CONNECTION => self.on_connected().map_err(runtime_error)?,
            privilege_drop::LAUNCHER_TOKEN => self.check_launcher()?,
            console::CONSOLE_TOKEN => self.on_console_ready().map_err(runtime_error)?,
            agent_process::INPUT => self.channel.write_agent(),
            agent_process::OUTPUT => self.read_agent(),
            agent_process::LOG => self.read_agent_log(),
            _ => {
                if let Some(happened) = self.sandbox.on_event(self.channel.poll.registry(), token) {
                    for happening in happened {
                        if let Some(over) = self.on_sandbox_event(happening)? {
                            return Ok(Some(over));
                        }
                    }
                } else if let Some((ticket, answer)) =
                    self.files.on_event(self.channel.poll.registry(), token)
                {
                    self.respond(ticket, answer);
                } else {
                    self.execs.on_event(self.channel.poll.registry(), token, &mut self.channel.chunk);
                }
            }
        }
        Ok(None)
    }

    fn on_sandbox_event(&mut self, event: SandboxEvent) -> SupervisionResult<Option<(ExitReason, u8)>> {
        match event {
            SandboxEvent::Ready => self.on_sandbox_ready()?,
            SandboxEvent::Terminal(_) => {}
            SandboxEvent::Workspace(root) => self.workspace = Some(root),
            SandboxEvent::Socket(family, socket) => {
                self.network.send_socket(family, socket);
            }
            SandboxEvent::Transferred(handed) => self.network.send_transferred(handed),
            SandboxEvent::ServiceSocket(service, socket) => self.services.add_socket(service, socket),
            SandboxEvent::AtBarrier(id, pid) => match &mut self.channel.agent {
                Some(agent) if agent.id == id => agent.pid = pid,
                _ => self.on_exec_at_barrier(id, pid),
            },
            SandboxEvent::Running(id) => self.on_program_running(id).map_err(runtime_error)?,
            SandboxEvent::StartFailed(id, error) => return self.on_start_failed(id, error).map(|()| None),
            SandboxEvent::Exited(id, how, _) => self.on_program_exited(id, how),
            SandboxEvent::SandboxExited(Some(error)) => return Err(runtime_error(error)),
            SandboxEvent::SandboxExited(None) => {
                return Err(runtime_error(Error::new(Code::System, "the sandbox was killed from outside")));
            }
        }
        Ok(None)
    }

    /// pid 1 is ready: runs the folder's scripts, then starts the agent ahead of the first query.
    fn on_sandbox_ready(&mut self) -> SupervisionResult<()> {
        let table = || self.privileged.open_mount_table(self.sandbox.pid());
        self.pin_watch = PinWatch::new(table, self.pins, self.channel.poll.registry(), PINS)
            .inspect_err(|_| self.sandbox.kill())?;
        self.network
            .finish_setup(self.privileged.launcher())
            .inspect_err(|_| self.sandbox.kill())
            .map_err(runtime_error)?;
        self.sandbox.release_early();
        self.run_next_script();
        Ok(())
    }

    fn on_program_running(&mut self, id: u32) -> Result<()> {
        let Some(agent) = self.channel.agent.as_ref().filter(|agent| agent.id == id) else {
            self.on_exec_started(id);
            return Ok(());
        };
        if !std::mem::replace(&mut self.agent_has_run, true) {
            let degraded = missing_protections(&self.plan.degraded);
            counters::count_start(StartKind::Sandbox);
            self.status.write(&StatusEvent::Started { id: self.id, pid: agent.pid, degraded });
            let registry = self.channel.poll.registry();
            let kernel = self.kernel_log.take();
            self.memory = self
                .cgroups
                .unified
                .as_deref()
                .and_then(|own| MemoryGuard::new(own, kernel, registry, MEMORY));
        }
        self.record_state();
        if let Some(mut ready) = self.ready.take() {
            // A server that has closed the pipe detects the failure otherwise.
            let _ = ready.write_all(b"R");
        }
        match self.transport {
            AgentTransport::Stdio => self.channel.hub.with_bridge(Bridge::agent_started),
            AgentTransport::Socket => {
                return self.start_connecting();
            }
        }
        Ok(())
    }

    /// Starts to wait until the agent listens on its socket.
    fn start_connecting(&mut self) -> Result<()> {
        let (Some(agent), Some(launcher)) = (&self.channel.agent, self.privileged.launcher()) else {
            return Ok(());
        };
        let begun = agent_socket::start_connecting(launcher, agent.pid)?;
        register(self.channel.poll.registry(), begun.as_fd(), CONNECTION)?;
        self.connecting = Some((begun, Instant::now() + LISTEN_TIMEOUT));
        Ok(())
    }

    /// The agent listens on its socket now.
    fn on_connected(&mut self) -> Result<()> {
        let Some((begun, _)) = self.connecting.take() else { return Ok(()) };
        if let (Some(stream), Some(agent)) =
            (agent_socket::receive_connection(begun.as_fd()), &mut self.channel.agent)
        {
            agent.set_connection(stream, self.channel.poll.registry())?;
            self.channel.hub.with_bridge(Bridge::agent_started);
        }
        Ok(())
    }

    /// Kills an agent that does not listen in time.
    fn kill_unresponsive_agent(&mut self) {
        if self.connecting.take_if(|(_, until)| *until <= Instant::now()).is_some() {
            log_bridge_message(
                LogLevel::Warn,
                &format!("the agent does not listen on {AGENT_SOCKET} within 10 s"),
            );
            self.stop_agent(AgentStop::Kill);
        }
    }

    fn read_agent(&mut self) {
        if let Some(over) = self.channel.read_agent() {
            if over.unread_input {
                self.channel.hub.with_bridge(Bridge::agent_left_unread_input);
            }
            let bridge = self.channel.hub.core();
            let is_expected = bridge.is_aborting() || bridge.has_ended_idle_agent();
            self.has_crashed = over.exit != AgentExitStatus::Code(0) && !is_expected;
            self.channel.hub.with_bridge(|bridge| bridge.agent_exited(&over.exit));
            self.last_exit = Some(over.exit);
        }
    }

    fn read_agent_log(&mut self) {
        let mut share = AgentProcess::read_budget();
        while share > 0 {
            let Some(agent) = &mut self.channel.agent else { return };
            match agent.read_log(self.channel.poll.registry(), &mut self.channel.chunk) {
                ReadResult::Some(count) => {
                    share = share.saturating_sub(count);
                    let bytes = &self.channel.chunk[..count];
                    if self.relays_stderr {
                        stderr_relay::write(bytes);
                    }
                    self.channel.hub.with_bridge(|bridge| bridge.agent_stderr(bytes));
                }
                ReadResult::WouldBlock | ReadResult::End | ReadResult::Reset => return,
            }
        }
        if let Some(agent) = &self.channel.agent {
            agent.rearm_log(self.channel.poll.registry());
        }
    }

    fn on_console_ready(&mut self) -> Result<()> {
        let Some(console) = &mut self.console else { return Ok(()) };
        match console.ready(self.channel.poll.registry())? {
            TurnProgress::Running => return Ok(()),
            TurnProgress::Done => {}
            TurnProgress::Failed(why) => self.failed_turn = Some(why),
        }
        self.console = None;
        self.end_request = Some(EndRequest::Done);
        self.channel.hub.with_bridge(Bridge::begin_termination);
        Ok(())
    }

    /// Shuts down in order on every signal that asks for an end, and passes all others on to the agent, which gets them from
    /// no other process.
    fn read_signals(&mut self) {
        while let Some((signal, _)) = signals::read_next(&self.signals) {
            match signal {
                _ if signals::END_REQUESTS.contains(&signal) => {
                    self.end_request = Some(EndRequest::Signal);
                    self.shut_down();
                }
                libc::SIGTSTP => {
                    let _ = nix::sys::signal::raise(Signal::SIGSTOP);
                }
                _ => {
                    if let Some(agent) = &self.channel.agent {
                        self.sandbox.signal(agent.id, signal, false);
                    }
                }
            }
        }
    }

    /// The process that `--die-with-parent` names has exited: as with a signal.
    fn on_parent_exit(&mut self) {
        if self.parent.take().is_some() {
            self.end_request = Some(EndRequest::Signal);
            self.shut_down();
        }
    }

    fn check_pins(&mut self) -> SupervisionResult<()> {
        self.pin_watch.as_mut().map_or(Ok(()), PinWatch::check).inspect_err(|_| self.sandbox.kill())
    }
}
