//! The loop of `saggar agent`: the sandbox, the agent's process, and the bridge between it and its servers.
//!
//! ```text
//!   servers ══ hub (socket, connections, core) ── Action ──> this loop ──> sandbox (pid 1), process, execs
//!                       ^───────────── what happened ─────────────┘
//! ```
//! The core decides, this loop does. It ends when the core says `Shutdown`, when the sandbox is gone, or when
//! the wall-clock limit is reached.

mod client;
mod console;
mod controlled;
mod doing;
mod ends;
mod kept;
mod keys;
mod limited;
mod part;
mod question;
mod scripts;
mod snapshot;

pub use super::talk::control::Logs;
pub use client::{Turned, turn};
pub use console::Show;
pub use ends::run;
pub use part::Entrusted;
pub use scripts::Script;

use super::api::Api;
use super::clock::{Clock, Times};
use super::memory::MemoryGuard;
use super::network::{self, Network};
use super::pins::PinWatch;
use super::privileged::Privileged;
use super::sandbox::{Happening, Sandbox, register};
use super::signals;
use super::status::{Event as StatusEvent, Met, Outcome, Reason, Status, missing, runtime};
use super::talk::control::{Control, Controlled};
use super::talk::execs::Execs;
use super::talk::files::FileCalls;
use super::talk::process::{self, Process, Read1};
use super::talk::{self, Talk, log};
use super::worker::{Looks, agent_socket};
use crate::bridge::adapter::{Adapter, Transport};
use crate::bridge::core::{Action, Bridge, Config, Disconnect, Exit, Start, Stop};
use crate::bridge::io::{Hub, Listener};
use crate::bridge::proto::LogLevel;
use crate::bridge::proto::spool::{Left, Store};
use crate::cgroup::agent::leaf::Leaves;
use crate::egress::io::publish::Listeners;
use crate::error::{Code, Error, Result};
use crate::host::kmsg::KernelLog;
use crate::launch::Launched;
use crate::plan::Plan;
use crate::session::record::{Keeper, Why};
use crate::spec::policy::Effective;
use crate::spec::{Pin, Program};
use crate::stage::wire::ExecFlags;
use crate::state::counters::{self, Kind};
use console::{Console, Progress};
use controlled::Stillness;
use kept::Asked;
use limited::Limited;
use mio::{Events, Poll, Token};
use nix::sys::signal::Signal;
use scripts::Scripts;
use snapshot::Taking;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SIGNALS: Token = Token(0);
const PINS: Token = Token(2);
const MEMORY: Token = Token(4);
const SNAPSHOT: Token = Token(5);
/// The agent listens on its socket.
const CONNECTION: Token = Token(8);
const HUB: Token = Token(1 << 16);

/// How long an agent of the adapter `bridge` may take to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// The inner path of the socket of an agent that speaks the bridge protocol itself.
pub const AGENT_SOCKET: &str = "/run/agent.sock";

/// What is to be run, and how.
#[derive(Debug)]
pub struct Job<'a> {
    /// The sandbox's name.
    pub id: &'a str,
    /// Its plan.
    pub plan: &'a Plan,
    /// Its protected paths.
    pub pins: &'a [Pin],
    /// The agent, without the words that its adapter adds.
    pub program: Program,
    /// What holds: what is said to its questions, and its limits.
    pub policy: Effective,
    /// Where what is said to its questions is written down.
    /// See [`Session::audit`](crate::session::Session::audit).
    pub audit: File,
    /// How many uuids the bridge remembers, each way.
    pub remembered: usize,
    /// What runs before it.
    pub scripts: Vec<Script>,
    /// Where its events are kept, where they are; with what an earlier run left.
    pub spool: Option<(Box<dyn Store>, Left)>,
    /// The ports of the host that lead inside.
    pub published: Listeners,
    /// What it speaks.
    pub adapter: Box<dyn Adapter>,
    /// The session's name, and the agent's own name of its conversation, when there is one.
    pub session: &'a str,
    /// See [`Config::agent_session`].
    pub agent_session: Option<String>,
    /// Where the bridge listens.
    pub listener: Listener,
    /// Where the control socket is.
    pub control: Listener,
    /// One turn with this prompt, shown so.
    pub prompt: Option<(String, Show)>,
    /// Gets one byte `R` once the bridge listens and the agent's program runs, whatever that does.
    pub ready: Option<File>,
    /// Its cgroup, where it has one.
    pub cgroup: Option<PathBuf>,
    /// What serves the model API to it, where something does.
    pub api: Option<Api>,
    /// Its limits of time.
    pub times: Times,
    /// Where events go.
    pub status: Status,
    /// The session's record.
    pub keeper: &'a mut Keeper,
    /// The session's log, where the entries are kept on disk.
    pub logs: Option<Logs>,
    /// Nobody waits for its end: a turn outlives its connection, and a limit of time pauses the session where it can
    /// (DECISIONS 13, 20).
    pub detached: bool,
}

struct Loop<'a> {
    id: &'a str,
    session: &'a str,
    control: Option<Control>,
    still: Stillness,
    snapshot: Option<Taking>,
    /// The work tree as the programs see it, once it is known.
    workspace: Option<OwnedFd>,
    files: FileCalls,
    limited: Limited,
    scripts: Scripts,
    plan: &'a Plan,
    pins: &'a [Pin],
    talk: Talk,
    signals: nix::sys::signalfd::SignalFd,
    sandbox: Sandbox<'a>,
    privileged: Privileged,
    network: Network,
    api: Option<Api>,
    transport: Transport,
    program: Program,
    /// Waits for an agent that is to listen on a socket, until then.
    connecting: Option<(OwnedFd, Instant)>,
    execs: Execs,
    console: Option<Console>,
    /// The turn of the console failed.
    failed: Option<String>,
    ready: Option<File>,
    audit: File,
    watch: Option<PinWatch>,
    looks: Looks,
    /// How many commands had ended at the last look for what appeared under protected names.
    commands_ended: u64,
    clock: Clock,
    /// The limit of time that was reached.
    over: Option<(Met, String)>,
    /// The agent has run at least once: before that its failure is ours.
    has_run: bool,
    last_exit: Option<Exit>,
    cgroup: Option<PathBuf>,
    keeper: &'a mut Keeper,
    detached: bool,
    /// Why it ends, when somebody asked for that.
    asked: Option<Asked>,
    /// A limit of time has frozen it.
    paused_by: Option<Why>,
    /// Where the kernel says whom it kills, until there is who sees to the memory.
    kernel: Option<KernelLog>,
    /// Sees to the memory, once the agent runs.
    memory: Option<MemoryGuard>,
    status: Status,
}

impl<'a> Loop<'a> {
    /// Its relay takes the id `supervisor` where it is root.
    fn new(job: Job<'a>, launched: Launched, supervisor: Option<u32>) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let signals = signals::open()?;
        register(poll.registry(), signals.as_fd(), SIGNALS)?;
        let sandbox = Sandbox::new(launched, job.plan, poll.registry())?;
        job.api.as_ref().map_or(Ok(()), |api| api.watch(poll.registry()))?;
        let config = Config {
            name: job.session.to_owned(),
            pid: std::process::id(),
            remembered: job.remembered,
            permissions: job.policy.permissions.clone(),
            agent_session: job.agent_session,
            disconnect: if job.detached { Disconnect::Detach } else { Disconnect::Abort },
            epoch_ms: talk::epoch_ms(),
            ..Config::default()
        };
        let transport = job.adapter.transport();
        let mut bridge = Bridge::new(config, job.adapter);
        if let Some((store, left)) = job.spool {
            bridge.keep_events(store, left);
        }
        let mut hub = Hub::new(bridge, job.listener, poll.registry(), HUB)?;
        let console = match job.prompt {
            Some((prompt, show)) => {
                let (console, stream) = Console::new(&prompt, job.session, show, poll.registry())?;
                hub.adopt(stream);
                Some(console)
            }
            None => None,
        };
        let leaves = job.cgroup.as_deref().and_then(Leaves::of);
        let execs = Execs::new(job.program.env.clone(), job.program.cwd.clone(), leaves)?;
        let control = Control::new(job.control, job.logs, poll.registry())?;
        let of = (sandbox.pid(), supervisor);
        let mut network = Network::of(job.plan, of, job.published, poll.registry())?;
        network.may_ask();
        network.consent(&job.keeper.record().consented);
        Ok(Loop {
            id: job.id,
            session: job.session,
            control: Some(control),
            still: Stillness::default(),
            snapshot: None,
            workspace: None,
            files: FileCalls::default(),
            limited: Limited::new(job.policy),
            scripts: Scripts::new(job.scripts),
            plan: job.plan,
            pins: job.pins,
            talk: Talk::new(poll, hub, None),
            signals,
            sandbox,
            privileged: Privileged::default(),
            network,
            api: job.api,
            transport,
            program: job.program,
            connecting: None,
            execs,
            console,
            failed: None,
            ready: job.ready,
            audit: job.audit,
            watch: None,
            looks: Looks::default(),
            commands_ended: 0,
            clock: Clock::new(job.times),
            over: None,
            has_run: false,
            last_exit: None,
            cgroup: job.cgroup,
            keeper: job.keeper,
            detached: job.detached,
            asked: None,
            paused_by: None,
            kernel: None,
            memory: None,
            status: job.status,
        })
    }

    fn run(&mut self) -> Outcome<(Reason, u8)> {
        let mut events = Events::with_capacity(64);
        self.talk.tick();
        loop {
            while let Some(action) = self.talk.hub.next_action() {
                if self.act(action).map_err(runtime)? {
                    return self.finish();
                }
            }
            let ended = self.talk.hub.state().commands_ended();
            let has_ended = std::mem::replace(&mut self.commands_ended, ended) != ended;
            let works = self.talk.hub.state().is_busy()
                || self.is_frozen()
                || self.scripts.are_due()
                || self.snapshot.is_some();
            self.clock.works(works, has_ended);
            if has_ended {
                self.look();
            }
            // Written down before anybody is told.
            self.keep();
            self.serve();
            self.end_late_script();
            self.tend_network();
            if let Some(error) = self.scripts.failure() {
                self.sandbox.kill();
                return Err(runtime(error));
            }
            self.tell_events();
            if self.talk.hub.has_actions() {
                continue;
            }
            self.settle();
            let wait = self.next_wait();
            self.talk.wait(&mut events, wait).map_err(runtime)?;
            self.end_deaf_agent();
            if self.memory.as_ref().is_some_and(|memory| memory.patience() == Some(Duration::ZERO)) {
                self.look_at_memory();
            }
            if let Some((limit, why)) = self.clock.over()
                && !self.outlasts(limit)
            {
                log(LogLevel::Warn, &why);
                self.put_away(limit);
                self.over = Some((limit, why));
                self.sandbox.kill();
                return Ok((Reason::Timeout, 124));
            }
            self.tend_snapshot();
            self.control.iter_mut().for_each(Control::tick);
            for event in &events {
                if self.control.as_mut().is_some_and(|control| control.ready(event)) {
                    continue;
                }
                if self.network.ready(event) {
                    continue;
                }
                if self.api.as_mut().is_some_and(|api| api.ready(self.talk.poll.registry(), event.token())) {
                    continue;
                }
                if self.talk.hub.owns(event.token()) {
                    self.talk.hub.ready(event);
                } else if let Some(over) = self.event(event.token())? {
                    return Ok(over);
                }
            }
        }
    }

    /// Does what is due of the network, has hosts asked about, and tells what was refused.
    fn tend_network(&mut self) {
        self.network.tick(self.talk.poll.registry());
        self.network.ask(&self.sandbox);
        for question in self.network.questions() {
            self.talk.hub.bridge(|bridge| network::ask(bridge, &question));
        }
        let (control, detached) = (&mut self.control, self.detached);
        self.network.tell_published(self.id, &mut self.status, |text| {
            if let Some(control) = control {
                control.log(talk::epoch_ms(), LogLevel::Info, text);
            }
            if !detached {
                log(LogLevel::Info, text);
            }
        });
        let mut say = |text: &str| {
            if let Some(control) = control {
                control.log(talk::epoch_ms(), LogLevel::Warn, text);
            }
            if !detached {
                log(LogLevel::Warn, text);
            }
        };
        self.network.tell(self.id, &mut self.status, &mut say);
        if let Some(api) = &mut self.api {
            api.tell(self.id, &mut self.status, &mut say);
        }
    }

    /// Passes status events on to whoever hears them by the control socket.
    fn tell_events(&mut self) {
        let Some(control) = &mut self.control else { return };
        for event in self.status.heard() {
            control.event(&event);
        }
        self.status.listen(control.has_listeners());
    }

    fn next_wait(&mut self) -> Option<Duration> {
        let hub = self.talk.patience();
        let limit = self.clock.left();
        let connect =
            self.connecting.as_ref().map(|(_, until)| until.saturating_duration_since(Instant::now()));
        let progress = self.console.as_mut().and_then(Console::tick);
        let control = self.control.as_ref().and_then(Control::patience);
        let memory = self.memory.as_ref().and_then(MemoryGuard::patience);
        let scripts = self.scripts.patience();
        let snapshot = self.snapshot.as_ref().and_then(Taking::patience);
        let (network, execs) = (self.network.patience(), self.execs.sweep());
        let waits = [hub, limit, connect, progress, control, memory, scripts, snapshot, network, execs];
        waits.into_iter().flatten().min()
    }

    /// Does what the core asks for; true when all is over.
    fn act(&mut self, action: Action) -> Result<bool> {
        match action {
            Action::StartAgent(start) => self.start_agent(start)?,
            Action::StopAgent(stop) => self.stop_agent(stop),
            Action::InterruptAgent => {
                if let Some(agent) = &self.talk.agent {
                    self.sandbox.signal(agent.id, Signal::SIGINT, false);
                }
            }
            Action::AgentInput(bytes) => self.talk.say(bytes),
            // Reading goes on by itself: the stream is looked at again when the core wants more.
            Action::PauseAgent => {}
            Action::ResumeAgent => self.read_agent(),
            Action::RunExec { exec, command, timeout: _ } => self.begin_or_tell(exec, command),
            Action::KillExec { exec } => self.end(exec),
            Action::Learned { session, agent_session } => self.remember(&session, &agent_session),
            Action::AgentFailed => self.keep(),
            Action::Audit(audit) => {
                if let Err(error) = self.audit.write_all(&audit.line()) {
                    log(LogLevel::Warn, &format!("a decision is not in the audit: {error}"));
                }
            }
            Action::Unclaimed(_) | Action::Plain(_) => {}
            Action::HostAnswered(answer) => self.take_consent(answer),
            Action::PermissionAsked(id) => self.tell_question(&id, true),
            Action::PermissionClosed(id) => self.tell_question(&id, false),
            Action::Log { level, text } => {
                if let Some(control) = &mut self.control {
                    control.log(talk::epoch_ms(), level, &text);
                }
                // Its words are where the control socket's are.
                if self.detached {
                    return Ok(false);
                }
                if let Some(console) = &mut self.console {
                    console.clear();
                }
                log(level, &text);
            }
            Action::Shutdown => return Ok(true),
            Action::Send { .. } | Action::Close { .. } => {}
        }
        Ok(false)
    }

    fn start_agent(&mut self, start: Start) -> Result<()> {
        if self.scripts.are_due() {
            self.put_off(start);
            return Ok(());
        }
        let mut program = self.program.clone();
        program.argv.extend(start.arguments.into_iter().map(Into::into));
        let registry = self.talk.poll.registry();
        let started = Process::streams(self.transport, registry).and_then(|(mut agent, ends)| {
            let streams = [ends.stdin.as_fd(), ends.stdout.as_fd(), ends.stderr.as_fd()];
            let flags = ExecFlags::SUBREAPER;
            agent.id = self.sandbox.exec(registry, &program, streams, flags, false)?;
            Ok(agent)
        });
        match started {
            Ok(agent) => self.talk.agent = Some(agent),
            // Nobody was told yet that we are ready, and nobody will be (BP-06).
            Err(error) if !self.has_run => return Err(error),
            Err(error) => self.talk.not_started(error.to_string()),
        }
        Ok(())
    }

    fn stop_agent(&mut self, stop: Stop) {
        if self.forget_start() {
            return;
        }
        let Some(agent) = &mut self.talk.agent else { return };
        match stop {
            Stop::CloseInput => agent.close_input(self.talk.poll.registry()),
            Stop::Terminate => self.sandbox.signal(agent.id, Signal::SIGTERM, false),
            Stop::Kill if agent.pid != 0 => self.privileged.kill_tree(agent.pid),
            Stop::Kill => self.sandbox.signal(agent.id, Signal::SIGKILL, true),
        }
    }

    /// Handles an event of anything but the hub; the outcome when it ends all.
    fn event(&mut self, token: Token) -> Outcome<Option<(Reason, u8)>> {
        match token {
            SIGNALS => self.take_signals(),
            PINS => self.check_pins()?,
            controlled::FREEZER => self.freezer_changed(),
            MEMORY => self.look_at_memory(),
            SNAPSHOT => self.read_snapshot(),
            CONNECTION => self.connected().map_err(runtime)?,
            part::LAUNCHER => self.check_launcher()?,
            console::CONSOLE => self.console().map_err(runtime)?,
            process::INPUT => self.talk.write_agent(),
            process::OUTPUT => self.read_agent(),
            process::LOG => self.read_log(),
            _ => {
                if let Some(happened) = self.sandbox.event(self.talk.poll.registry(), token) {
                    for happening in happened {
                        if let Some(over) = self.happened(happening)? {
                            return Ok(Some(over));
                        }
                    }
                } else if let Some((ticket, answer)) = self.files.ready(self.talk.poll.registry(), token) {
                    self.answer(ticket, answer);
                } else {
                    self.execs.ready(self.talk.poll.registry(), token, &mut self.talk.chunk);
                }
            }
        }
        Ok(None)
    }

    fn happened(&mut self, happening: Happening) -> Outcome<Option<(Reason, u8)>> {
        match happening {
            Happening::Ready => self.stands()?,
            Happening::Terminal(_) => {}
            Happening::Workspace(root) => self.workspace = Some(root),
            Happening::Socket(family, socket) => {
                self.network.supply(family, socket);
            }
            Happening::Handed(handed) => self.network.take_over(handed),
            Happening::Offered(socket) => {
                if let Some(api) = &mut self.api {
                    api.offer(socket);
                }
            }
            Happening::Waiting(id, pid) => match &mut self.talk.agent {
                Some(agent) if agent.id == id => agent.pid = pid,
                _ => self.exec_waits(id, pid),
            },
            Happening::Running(id) => self.runs(id).map_err(runtime)?,
            Happening::NotRun(id, error) => return self.did_not_run(id, error).map(|()| None),
            Happening::Exited(id, how, _) => self.exited(id, how),
            Happening::Gone(Some(error)) => return Err(runtime(error)),
            Happening::Gone(None) => {
                return Err(runtime(Error::new(Code::System, "the sandbox was killed from outside")));
            }
        }
        Ok(None)
    }

    /// pid 1 serves: the scripts of the folder run, and then the agent is started ahead of the first query.
    fn stands(&mut self) -> Outcome<()> {
        let table = || self.privileged.mounts(self.sandbox.pid());
        self.watch = PinWatch::new(table, self.pins, self.talk.poll.registry(), PINS)
            .inspect_err(|_| self.sandbox.kill())?;
        self.next_script();
        Ok(())
    }

    fn runs(&mut self, id: u32) -> Result<()> {
        let Some(agent) = self.talk.agent.as_ref().filter(|agent| agent.id == id) else {
            self.exec_runs(id);
            return Ok(());
        };
        if !std::mem::replace(&mut self.has_run, true) {
            let degraded = missing(&self.plan.degraded);
            counters::started(Kind::Sandbox);
            self.status.say(&StatusEvent::Started { id: self.id, pid: agent.pid, degraded });
            let registry = self.talk.poll.registry();
            let kernel = self.kernel.take();
            self.memory =
                self.cgroup.as_deref().and_then(|own| MemoryGuard::new(own, kernel, registry, MEMORY));
        }
        self.keep();
        if let Some(mut ready) = self.ready.take() {
            // A server that went away before we were ready will be missed elsewhere.
            let _ = ready.write_all(b"R");
        }
        match self.transport {
            Transport::Stdio => self.talk.hub.bridge(Bridge::agent_started),
            Transport::Socket => {
                return self.begin_to_connect();
            }
        }
        Ok(())
    }

    /// Begins to wait until the agent listens on its socket.
    fn begin_to_connect(&mut self) -> Result<()> {
        let (Some(agent), Some(launcher)) = (&self.talk.agent, self.privileged.launcher()) else {
            return Ok(());
        };
        let begun = agent_socket::begin(launcher, agent.pid)?;
        register(self.talk.poll.registry(), begun.as_fd(), CONNECTION)?;
        self.connecting = Some((begun, Instant::now() + LISTENS_WITHIN));
        Ok(())
    }

    /// The agent listens on its socket by now.
    fn connected(&mut self) -> Result<()> {
        let Some((begun, _)) = self.connecting.take() else { return Ok(()) };
        if let (Some(stream), Some(agent)) = (agent_socket::take(begun.as_fd()), &mut self.talk.agent) {
            agent.take_connection(stream, self.talk.poll.registry())?;
            self.talk.hub.bridge(Bridge::agent_started);
        }
        Ok(())
    }

    /// Gives up an agent that does not listen in time.
    fn end_deaf_agent(&mut self) {
        if self.connecting.take_if(|(_, until)| *until <= Instant::now()).is_some() {
            log(LogLevel::Warn, &format!("the agent does not listen on {AGENT_SOCKET} within 10 s"));
            self.stop_agent(Stop::Kill);
        }
    }

    fn read_agent(&mut self) {
        if let Some(over) = self.talk.read_agent() {
            if over.left_input {
                self.talk.hub.bridge(Bridge::agent_left_input);
            }
            self.talk.hub.bridge(|bridge| bridge.agent_exited(&over.exit));
            self.last_exit = Some(over.exit);
        }
    }

    fn read_log(&mut self) {
        let mut share = Process::share();
        while share > 0 {
            let Some(agent) = &mut self.talk.agent else { return };
            match agent.read_log(self.talk.poll.registry(), &mut self.talk.chunk) {
                Read1::Some(count) => {
                    share = share.saturating_sub(count);
                    let bytes = &self.talk.chunk[..count];
                    self.talk.hub.bridge(|bridge| bridge.agent_log(bytes));
                }
                Read1::Nothing | Read1::End | Read1::Reset => return,
            }
        }
        if let Some(agent) = &self.talk.agent {
            agent.look_again_at_log(self.talk.poll.registry());
        }
    }

    fn console(&mut self) -> Result<()> {
        let Some(console) = &mut self.console else { return Ok(()) };
        match console.ready(self.talk.poll.registry())? {
            Progress::Going => return Ok(()),
            Progress::Done => {}
            Progress::Failed(why) => self.failed = Some(why),
        }
        self.console = None;
        self.asked = Some(Asked::Done);
        self.talk.hub.bridge(Bridge::terminate);
        Ok(())
    }

    /// A polite end for every signal that asks for one; ^C in a turn of the console aborts the turn with it.
    fn take_signals(&mut self) {
        while let Some((signal, _)) = signals::next(&self.signals) {
            match signal {
                Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT => {
                    self.asked = Some(Asked::Signal);
                    self.shut_down();
                }
                Signal::SIGTSTP => {
                    let _ = nix::sys::signal::raise(Signal::SIGSTOP);
                }
                _ => {}
            }
        }
    }

    fn check_pins(&mut self) -> Outcome<()> {
        self.watch.as_mut().map_or(Ok(()), PinWatch::check).inspect_err(|_| self.sandbox.kill())
    }
}
