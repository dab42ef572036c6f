//! The loop of the supervisor next to a container (DECISIONS 12): the bridge between the container's program and its
//! servers.
//!
//! ```text
//!  servers ══ hub ── Action ──> this loop ──> stdin of the program, signals, exec
//!              ^── messages ────────┴──────── stdout of the program; lines that are not JSON ──> the
//!                                             container's own stdout
//! ```
//! The loop has no rights over the container: its [`keeper`] has them and executes the loop's calls. The [`starter`], a
//! child of the keeper, only starts commands.
//!
//! The loop cannot start the container's program: `saggar start` does, once. Until then the socket accepts connections,
//! and no server is notified that the agent is ready. When the program exits, the bridge notifies its servers and shuts
//! down; when the bridge shuts down, the program is ended.

mod commands;
mod control_handler;
mod keeper;
mod keeper_client;
mod keeper_wire;
mod starter;
mod starter_wire;
mod stdout_forwarder;

pub use keeper_wire::ProcessExit;

use super::channel::agent_process::{self, AgentProcess};
use super::channel::control::{ControlHandler, ControlSocket};
use super::channel::{self, AgentChannel};
use super::confine::{self, SupervisorRights};
use super::registration::register;
use super::signals;
use crate::bridge::adapter::Adapter;
use crate::bridge::core::{AgentExitStatus, AgentStart, AgentStop, Bridge, BridgeAction, BridgeConfig};
use crate::bridge::io::{ConnectionHub, UnixSocketListener};
use crate::bridge::proto::LogLevel;
use crate::bridge::proto::spool::{SavedSpool, SpoolStore};
use crate::error::{Error, Result};
use crate::launch::container::PendingExec;
use crate::launch::ids::IdBlock;
use crate::stage::watcher::CleanupItem;
use crate::sys::clock;
use crate::sys::file::{self, FileId};
use crate::sys::pidfd;
use crate::sys::scm::socket_pair;
use crate::sys::spawn;
use commands::SidecarCommands;
use keeper_client::KeeperClient;
use mio::{Events, Poll, Token};
use nix::errno::Errno;
use nix::fcntl::Flock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use serde_json::Value;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use stdout_forwarder::StdoutForwarder;

const SIGNALS: Token = Token(0);
const INIT: Token = Token(1);
const GUARD: Token = Token(2);
const FORWARDER: Token = Token(3);
const KEEPER: Token = Token(4);
const HUB: Token = Token(1 << 16);

/// Largest size of the log in bytes: it is kept in memory, and the container can cause log entries.
const LOG_LIMIT: usize = 1 << 20;

/// Descriptors that the supervisor gets from the runtime.
#[derive(Debug)]
pub struct ContainerFds {
    /// The writing end of the program's standard input.
    pub stdin: OwnedFd,
    /// The reading end of its standard output.
    pub stdout: OwnedFd,
    /// The target of the container's standard output.
    pub stdout_target: OwnedFd,
    /// The reading end of a pipe whose other end the container's init closes when it executes the program.
    pub started: OwnedFd,
    /// A pidfd of the init.
    pub init: OwnedFd,
}

/// Starts programs in the container: the only operation of the [`starter`].
pub trait ExecStarter {
    /// Starts a program in the container as a subreaper, with these arguments and standard streams, and does not wait
    /// for it.
    ///
    /// # Errors
    /// The program could not be started.
    fn exec(&mut self, argv: Vec<OsString>, streams: [BorrowedFd<'_>; 3]) -> Result<PendingExec>;

    /// Every capability in one of the commands' sets, as bits (capabilities(7)).
    fn capabilities(&self) -> u64;
}

/// The container, as far as the loop needs it: the operations of the [`keeper`], and its starter.
pub trait ContainerHandle: ExecStarter {
    /// Whether its cgroups belong to a systemd unit, which must be changed through systemd.
    fn has_systemd_unit(&self) -> bool;

    /// A pidfd of its init.
    fn init(&self) -> BorrowedFd<'_>;

    /// Kills the container's processes.
    fn kill(&mut self);

    /// Freezes or thaws all of them.
    ///
    /// # Errors
    /// There is no freezer, or the processes do not freeze.
    fn freeze(&mut self, freeze: bool) -> Result<()>;

    /// Whether they are frozen.
    fn is_frozen(&self) -> bool;

    /// Their resource usage, in the format of `saggar events --stats`.
    ///
    /// # Errors
    /// The container has no cgroup.
    fn stats(&self) -> Result<Value>;

    /// Sets the limits of `linux.resources`, as JSON, like `saggar update`: either all of them or none.
    ///
    /// # Errors
    /// The first limit that cannot be set: its file, its value, and a hint.
    fn update(&mut self, resources: &str) -> Result<()>;

    /// The state of the container (runtime.md, State).
    fn state(&self) -> Value;

    /// How its init ended, if it has; `None` when that cannot be read.
    fn exit(&self) -> Option<ProcessExit>;

    /// Sends a signal to its init.
    ///
    /// # Errors
    /// [`crate::error::Code::System`]: it has exited.
    fn signal(&self, signal: i32) -> Result<()>;
}

/// The store of the bridge's events.
#[derive(Debug)]
pub struct OpenSpool {
    /// The store.
    pub store: Box<dyn SpoolStore>,
    /// What earlier supervisors have left in it.
    pub saved: SavedSpool,
    /// Number of uuids of each kind that the bridge remembers.
    pub remembered: usize,
    /// The directory of its files.
    pub directory: OwnedFd,
    /// Excludes other supervisors, as long as this process has it open.
    pub lock: Flock<File>,
}

/// The parameters of the loop.
#[derive(Debug)]
pub struct SidecarJob {
    /// Id of the container.
    pub name: String,
    /// The adapter for the program's protocol.
    pub adapter: Box<dyn Adapter>,
    /// The listening socket of the bridge.
    pub listener: UnixSocketListener,
    /// The listening socket of the control protocol, if its path fits into an address.
    pub control: Option<UnixSocketListener>,
    /// Where the bridge's events are stored, if they are.
    pub spool: Option<OpenSpool>,
    /// The program's descriptors.
    pub fds: ContainerFds,
    /// A pidfd of the guard: after its exit no other process would end the container after this one.
    pub guard: OwnedFd,
    /// The signals of this process.
    pub signals: SignalFd,
    /// Environment of commands.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory of commands.
    pub directory: PathBuf,
    /// The id block of the user that the loop changes to if it is root.
    pub ids: Option<IdBlock>,
}

impl SidecarJob {
    /// The socket files.
    fn socket_files(&self) -> Vec<(CString, FileId)> {
        std::iter::once(&self.listener).chain(&self.control).filter_map(socket_file).collect()
    }
}

/// The path of a socket, and the identity of its file.
pub fn socket_file(listener: &UnixSocketListener) -> Option<(CString, FileId)> {
    let record = listener.record();
    let path = file::c_path(listener.path()).ok()?;
    Some((path, FileId { device: record.dev, inode: record.ino }))
}

/// Runs the bridge until the program, and with it the container, has ended. As soon as the program runs, and before any
/// data of it or of a server is read, the process forks its keeper and drops all rights.
///
/// # Errors
/// [`crate::error::Code::System`]: the container must be killed.
pub fn run(job: SidecarJob, container: &mut dyn ContainerHandle) -> Result<()> {
    if !await_program_start(&job)? {
        container.kill();
        return Ok(());
    }
    let (calls, theirs) = socket_pair()?;
    let sockets = job.socket_files();
    // The handle's own descriptor; the number is the same in the fork.
    let init = file::borrow_number(container.init().as_raw_fd());
    let kept: Vec<BorrowedFd<'_>> =
        [theirs.as_fd(), init].into_iter().chain(crate::log::descriptor()).collect();
    let (_, room) = spawn::fork_keeping(&kept, || {
        keeper::serve(container, theirs.as_fd());
        sockets.iter().for_each(|(path, is)| CleanupItem::File { path, id: *is }.remove());
        0
    })
    .map_err(|e| Error::system("start the keeper of the container", e))?;
    drop(theirs);
    let id = job.ids.as_ref().map(|ids| ids.supervisor);
    let mut it = SidecarLoop::new(job, Rc::new(KeeperClient::new(calls, room)))?;
    it.container.verify_peers();
    let writable = it.spool_directory.iter().map(AsFd::as_fd).collect();
    confine::confine_supervisor(&SupervisorRights { id, writable, ..SupervisorRights::default() })?;
    let ended = it.run();
    it.container.stop();
    ended
}

/// Waits until the program runs; false when there is nothing left to wait for.
fn await_program_start(job: &SidecarJob) -> Result<bool> {
    loop {
        let watched = [job.fds.started.as_fd(), job.fds.init.as_fd(), job.guard.as_fd(), job.signals.as_fd()];
        let mut fds = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other.map_err(|e| Error::system("wait for the start of the container", e))?,
        };
        let [started, init, guard, signal] = fds.map(|fd| fd.any().unwrap_or(true));
        // The guard exits after the init, so the init is checked after the guard.
        let over = pidfd::has_exited(job.fds.init.as_fd());
        if (guard && !over) || (signal && end_requested(&job.signals)) {
            return Ok(false);
        }
        if started || init {
            // A program that has exited already may have left output.
            return Ok(!over || file::bytes_available(job.fds.stdout.as_fd()) > 0);
        }
    }
}

/// Whether a signal requests the end.
fn end_requested(signals: &SignalFd) -> bool {
    let mut end = false;
    while let Some((signal, _)) = signals::read_next(signals) {
        end |= signals::END_REQUESTS.contains(&signal);
    }
    end
}

/// Whether the peer has shut down a socket on which it never sends.
fn is_peer_shut(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

struct SidecarLoop {
    name: String,
    channel: AgentChannel,
    container: Rc<KeeperClient>,
    /// Keeps the id of this process reserved.
    _ids: Option<IdBlock>,
    signals: SignalFd,
    _guard: OwnedFd,
    init: OwnedFd,
    /// The core was notified that the program runs.
    start_reported: bool,
    /// The program has exited.
    has_exited: bool,
    forwarder: StdoutForwarder,
    /// The program's output is not read, since its forwarded lines are not being consumed.
    reading_paused: bool,
    commands: SidecarCommands,
    control: Option<ControlSocket>,
    spool_directory: Option<OwnedFd>,
    /// Kept until this process exits.
    _spool_lock: Option<Flock<File>>,
    generation: u64,
    logged: usize,
}

impl SidecarLoop {
    fn new(job: SidecarJob, container: Rc<KeeperClient>) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let registry = poll.registry();
        let ContainerFds { stdin, stdout, stdout_target: pass, started: _, init } = job.fds;
        register(registry, job.signals.as_fd(), SIGNALS)?;
        register(registry, init.as_fd(), INIT)?;
        register(registry, job.guard.as_fd(), GUARD)?;
        register(registry, container.as_fd(), KEEPER)?;
        let commands = SidecarCommands::new(job.environment, job.directory, &container)?;
        let mut config = BridgeConfig {
            session_name: job.name.clone(),
            pid: std::process::id(),
            epoch_ms: clock::epoch_ms(),
            plain_lines: true,
            ..BridgeConfig::default()
        };
        if let Some(spool) = &job.spool {
            config.max_remembered = spool.remembered;
        }
        let mut bridge = Bridge::new(config, job.adapter);
        let (mut spool_directory, mut spool_lock) = (None, None);
        if let Some(OpenSpool { store, saved, directory, lock, .. }) = job.spool {
            bridge.enable_spool(store, saved);
            (spool_directory, spool_lock) = (Some(directory), Some(lock));
        }
        let hub = ConnectionHub::new(bridge, job.listener, registry, HUB)?;
        let agent = AgentProcess::from_fds(stdin, stdout, registry)?;
        let control = job.control.map(|listener| ControlSocket::new(listener, None, registry)).transpose()?;
        Ok(SidecarLoop {
            name: job.name,
            channel: AgentChannel::new(poll, hub, Some(agent)),
            container,
            _ids: job.ids,
            signals: job.signals,
            _guard: job.guard,
            init,
            start_reported: false,
            has_exited: false,
            forwarder: StdoutForwarder::new(pass),
            reading_paused: false,
            commands,
            control,
            spool_directory,
            _spool_lock: spool_lock,
            generation: 1,
            logged: 0,
        })
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(64);
        self.channel.tick();
        self.channel.hub.with_bridge(Bridge::start_agent);
        loop {
            while let Some(action) = self.channel.hub.next_action() {
                if self.apply_action(action) {
                    self.finish();
                    return Ok(());
                }
            }
            self.forwarder.flush_queue(self.channel.poll.registry(), FORWARDER);
            if self.reading_paused && !self.forwarder.is_full() {
                self.read_agent();
                continue;
            }
            self.serve_requests();
            if self.channel.hub.has_actions() {
                continue;
            }
            let control = self.control.as_ref().and_then(ControlSocket::poll_timeout);
            let patience = self.channel.poll_timeout().into_iter().chain(control).min();
            self.channel.wait(&mut events, patience)?;
            self.control.iter_mut().for_each(ControlSocket::tick);
            self.check_resumed();
            for event in &events {
                if self.control.as_mut().is_some_and(|control| control.on_event(event)) {
                    continue;
                }
                if event.token() == KEEPER {
                    return Err(KeeperClient::keeper_exited_error());
                }
                if self.channel.hub.owns_token(event.token()) {
                    self.channel.hub.on_event(event);
                } else {
                    self.on_event(event.token());
                }
            }
        }
    }

    /// A pause by the control socket may be ended by any process, for example `saggar resume`.
    fn check_resumed(&mut self) {
        if self.channel.hub.core().is_paused() && !self.container.is_frozen() {
            self.channel.hub.with_bridge(|bridge| bridge.set_paused(false));
        }
    }

    /// Executes an action of the core; true when the bridge is shut down.
    fn apply_action(&mut self, action: BridgeAction) -> bool {
        match action {
            BridgeAction::StartAgent(AgentStart { .. }) => self.start_agent(),
            BridgeAction::StopAgent(stop) => self.stop_agent(stop),
            BridgeAction::InterruptAgent => self.signal_init(libc::SIGINT),
            BridgeAction::AgentInput(bytes) => self.channel.send(bytes),
            // Reading resumes by itself: the stream is checked again when the core wants more.
            BridgeAction::ResumeAgent => self.read_agent(),
            BridgeAction::RunExec { exec, command } => self.start_or_report_failure(exec, command),
            BridgeAction::KillExec { exec } => self.kill_command(exec),
            BridgeAction::PlainOutput(line) => self.forwarder.push(line),
            BridgeAction::Log { level, text } => self.log(level, &text),
            BridgeAction::Shutdown => return true,
            // A container has no session, so its audit entries go to the log.
            BridgeAction::Audit(audit) => {
                let line = audit.encode_line();
                self.log(LogLevel::Info, &format!("audit: {}", String::from_utf8_lossy(line.trim_ascii())));
            }
            BridgeAction::SaveAgentSession { .. }
            | BridgeAction::RecordAgentFailure
            | BridgeAction::HostQuestionAnswered(_)
            | BridgeAction::Send { .. }
            | BridgeAction::Close { .. } => {}
            BridgeAction::PermissionRequested(id) => self.notify_question(&id, true),
            BridgeAction::PermissionClosed(id) => self.notify_question(&id, false),
        }
        false
    }

    /// The program runs already at the first start; it cannot be restarted.
    fn start_agent(&mut self) {
        if self.channel.agent.is_some() && !std::mem::replace(&mut self.start_reported, true) {
            self.channel.hub.with_bridge(Bridge::agent_started);
            // Data that was available before is not reported again, so it is read now.
            self.read_agent();
        } else {
            self.channel.report_start_failure("the program of a container is started once".to_owned());
        }
    }

    fn stop_agent(&mut self, stop: AgentStop) {
        match (stop, &mut self.channel.agent) {
            (AgentStop::CloseInput, Some(agent)) => agent.close_input(self.channel.poll.registry()),
            (AgentStop::CloseInput, None) => {}
            (AgentStop::Terminate, _) => self.signal_init(libc::SIGTERM),
            (AgentStop::Kill, _) => self.container.kill(),
        }
    }

    fn signal_init(&self, signal: i32) {
        // The exit of the program is reported separately.
        let _ = self.container.signal(signal);
    }

    fn on_event(&mut self, token: Token) {
        match token {
            SIGNALS => {
                if end_requested(&self.signals) {
                    self.shut_down();
                }
            }
            INIT => self.on_program_exited(),
            // Without a guard no process would end the container after this one, so this one ends it now.
            GUARD => {
                if !pidfd::has_exited(self.init.as_fd()) {
                    self.log(LogLevel::Warn, "the guard of the container was killed: the container ends");
                    self.container.kill();
                }
            }
            FORWARDER => self.forwarder.flush_queue(self.channel.poll.registry(), FORWARDER),
            agent_process::INPUT => self.channel.write_agent(),
            agent_process::OUTPUT => self.read_agent(),
            other => {
                let (registry, chunk) = (self.channel.poll.registry(), &mut self.channel.chunk);
                if let Some((exec, end)) = self.commands.on_event(registry, other, chunk) {
                    self.on_command_exited(exec, end.as_ref());
                }
            }
        }
    }

    /// The program has exited, and the container with it.
    fn on_program_exited(&mut self) {
        if std::mem::replace(&mut self.has_exited, true) {
            return;
        }
        let exit = match self.container.init_exit() {
            Some(ProcessExit::Exited(code)) => AgentExitStatus::Code(code),
            Some(ProcessExit::Killed(signal)) => AgentExitStatus::Signal(signal),
            None => AgentExitStatus::Unknown,
        };
        if let Some(agent) = &mut self.channel.agent {
            agent.on_exit(exit);
        }
        self.read_agent();
    }

    /// Reads the program's output while its forwarded lines are being consumed. When the program has exited and all of
    /// its output is read, the core gets the exit, notifies the servers, and returns `Shutdown`.
    fn read_agent(&mut self) {
        self.reading_paused = self.forwarder.is_full();
        if self.reading_paused {
            return;
        }
        if let Some(over) = self.channel.read_agent() {
            self.channel.hub.with_bridge(|bridge| bridge.agent_exited(&over.exit));
            self.channel.hub.with_bridge(Bridge::begin_termination);
        }
    }

    fn log(&mut self, level: LogLevel, text: &str) {
        if let Some(control) = &mut self.control {
            control.append_log(clock::epoch_ms(), level, text);
        }
        if self.logged < LOG_LIMIT {
            self.logged += text.len() + 64;
            channel::log_bridge_message(level, text);
            if self.logged >= LOG_LIMIT {
                log::warn!("this log is full: what follows is left out");
            }
        }
    }

    /// The bridge is shut down: sends its last messages and ends the container.
    fn finish(&mut self) {
        self.channel.hub.stop_listening();
        if !self.has_exited {
            self.container.kill();
        }
        // Forwarded output belongs to the orchestrator, and is written without a time limit.
        let pass = &mut self.forwarder;
        self.channel.flush_and_close(|registry| {
            pass.flush_queue(registry, FORWARDER);
            !pass.is_empty()
        });
        self.channel.hub.with_bridge(Bridge::close_spool);
    }
}
