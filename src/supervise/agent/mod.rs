//! The loop of `saggar agent`: the sandbox, the agent's process, and the bridge between it and its servers.
//!
//! ```text
//!   servers ══ hub (socket, connections, core) ── Action ──> this loop ──> sandbox (pid 1), process, execs
//!                       ^───────────── what happened ─────────────┘
//! ```
//! The core decides, this loop does. It ends when the core says `Shutdown`, when the sandbox is gone, or when
//! the wall-clock limit is reached.

mod console;
mod doing;
pub(super) mod execs;
pub(super) mod process;

pub use console::Show;

use super::pins::PinWatch;
use super::quarantine::Warden;
use super::sandbox::{Ended, Happening, Sandbox, register};
use super::signals;
use super::status::{Event as StatusEvent, Outcome, Reason, Status, missing, runtime};
use crate::bridge::adapter::{Adapter, Transport};
use crate::bridge::core::{Action, Bridge, Config, Exit, Start, Stop};
use crate::bridge::io::{Hub, Listener};
use crate::bridge::proto::LogLevel;
use crate::error::{Code, Error, Result};
use crate::launch::Launched;
use crate::plan::Plan;
use crate::spec::{Pin, Program};
use crate::stage::wire::ExecFlags;
use console::{Console, Progress};
use execs::Execs;
use mio::{Events, Poll, Token};
use nix::sys::signal::Signal;
use process::{Process, Read1};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};

const SIGNALS: Token = Token(0);
const PINS: Token = Token(2);
const HUB: Token = Token(1 << 16);

/// How many entries of the work tree the last look takes in: half a second on a slow disk, once for a session.
const LOOKED_AT: usize = 200_000;

/// The size of one read.
const CHUNK: usize = 64 << 10;
/// How long an agent of the adapter `bridge` may take to listen, and how often that is looked at.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long the last words of the bridge may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

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
    /// Looks for what appears under protected names.
    pub warden: Warden,
    /// The agent, without the words that its adapter adds.
    pub program: Program,
    /// What it speaks.
    pub adapter: Box<dyn Adapter>,
    /// The session's name, and the agent's own name of its conversation, when there is one.
    pub session: &'a str,
    /// See [`Config::agent_session`].
    pub agent_session: Option<String>,
    /// Where the bridge listens.
    pub listener: Listener,
    /// One turn with this prompt, shown so.
    pub prompt: Option<(String, Show)>,
    /// Gets one byte `R` once the bridge listens and the agent's program runs, whatever that does.
    pub ready: Option<File>,
    /// Wall-clock limit.
    pub timeout: Option<Duration>,
    /// Where events go.
    pub status: Status,
}

/// What the session is to remember.
pub type Remember<'a> = &'a mut dyn FnMut(&str, &str);

/// Runs the agent until its bridge is shut down; the exit status of saggar.
///
/// # Errors
/// What kept the agent from running, or the error of the only turn.
pub fn run(job: Job<'_>, launched: Launched, remember: Remember<'_>) -> Result<u8> {
    let id = job.id;
    let mut it = Loop::new(job, launched)?;
    let outcome = it.run(remember);
    it.warden.look_everywhere(id, &mut it.status, LOOKED_AT);
    let mut event = |reason, exit_code, message| {
        it.status.say(&StatusEvent::Exited { id, reason, exit_code, signal: None, message });
    };
    match outcome {
        Ok((reason, status)) => {
            event(reason, Some(status), None);
            Ok(status)
        }
        Err((reason, error)) => {
            event(reason, None, Some(error.to_string()));
            Err(error)
        }
    }
}

struct Loop<'a> {
    id: &'a str,
    plan: &'a Plan,
    pins: &'a [Pin],
    poll: Poll,
    signals: nix::sys::signalfd::SignalFd,
    sandbox: Sandbox<'a>,
    hub: Hub,
    transport: Transport,
    program: Program,
    agent: Option<Process>,
    /// When an agent that is to listen on a socket is given up.
    connect_until: Option<Instant>,
    execs: Execs,
    console: Option<Console>,
    /// The turn of the console failed.
    failed: Option<String>,
    ready: Option<File>,
    watch: Option<PinWatch>,
    warden: Warden,
    /// How many commands had ended at the last look for what appeared.
    looked_at: u64,
    started: Instant,
    deadline: Option<Instant>,
    /// The agent has run at least once: before that its failure is ours.
    has_run: bool,
    last_exit: Option<Exit>,
    chunk: Box<[u8]>,
    status: Status,
}

impl<'a> Loop<'a> {
    fn new(job: Job<'a>, launched: Launched) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let signals = signals::open()?;
        register(poll.registry(), signals.as_fd(), SIGNALS)?;
        let sandbox = Sandbox::new(launched, job.plan, poll.registry())?;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let config = Config {
            agent_session: job.agent_session,
            epoch_ms: u64::try_from(since_1970.as_millis()).unwrap_or(0),
            ..Config::default()
        };
        let transport = job.adapter.transport();
        let mut hub = Hub::new(Bridge::new(config, job.adapter), job.listener, poll.registry(), HUB)?;
        let console = match job.prompt {
            Some((prompt, show)) => {
                let (console, stream) = Console::new(&prompt, job.session, show, poll.registry())?;
                hub.adopt(stream);
                Some(console)
            }
            None => None,
        };
        let execs = Execs::new(job.program.env.clone(), job.program.cwd.clone());
        Ok(Loop {
            id: job.id,
            plan: job.plan,
            pins: job.pins,
            poll,
            signals,
            sandbox,
            hub,
            transport,
            program: job.program,
            agent: None,
            connect_until: None,
            execs,
            console,
            failed: None,
            ready: job.ready,
            watch: None,
            warden: job.warden,
            looked_at: 0,
            started: Instant::now(),
            deadline: job.timeout.map(|limit| Instant::now() + limit),
            has_run: false,
            last_exit: None,
            chunk: vec![0; CHUNK].into_boxed_slice(),
            status: job.status,
        })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn run(&mut self, remember: Remember<'_>) -> Outcome<(Reason, u8)> {
        let mut events = Events::with_capacity(64);
        self.hub.tick(self.now());
        loop {
            while let Some(action) = self.hub.next_action() {
                if self.act(action, remember).map_err(runtime)? {
                    return self.finish();
                }
            }
            self.look_for_new_names();
            let wait = self.next_wait();
            match self.poll.poll(&mut events, wait) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                other => other.map_err(|e| runtime(Error::system("wait for events", e)))?,
            }
            self.hub.tick(self.now());
            self.connect().map_err(runtime)?;
            if self.deadline.is_some_and(|at| at <= Instant::now()) {
                self.sandbox.kill();
                return Ok((Reason::Timeout, 124));
            }
            for event in &events {
                if self.hub.owns(event.token()) {
                    self.hub.ready(event);
                } else if let Some(over) = self.event(event.token())? {
                    return Ok(over);
                }
            }
        }
    }

    fn next_wait(&mut self) -> Option<Duration> {
        let hub = self.hub.next_deadline().map(|at| at.saturating_sub(self.now()));
        let limit = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let connect = self.connect_until.map(|_| LOOK_EVERY);
        let progress = self.console.as_mut().and_then(Console::tick);
        [hub, limit, connect, progress].into_iter().flatten().min()
    }

    /// Does what the core asks for; true when all is over.
    fn act(&mut self, action: Action, remember: Remember<'_>) -> Result<bool> {
        match action {
            Action::StartAgent(start) => self.start_agent(start)?,
            Action::StopAgent(stop) => self.stop_agent(stop),
            Action::InterruptAgent => {
                if let Some(agent) = &self.agent {
                    self.sandbox.signal(agent.id, Signal::SIGINT, false);
                }
            }
            Action::AgentInput(bytes) => {
                if let Some(agent) = &mut self.agent {
                    agent.push(bytes);
                }
                self.write_agent();
            }
            // Reading goes on by itself: the stream is looked at again when the core wants more.
            Action::PauseAgent => {}
            Action::ResumeAgent => self.read_agent(),
            Action::RunExec { exec, command, timeout: _ } => {
                let registry = self.poll.registry();
                let sandbox = &mut self.sandbox;
                let start = |program: &Program, streams: [BorrowedFd<'_>; 3]| {
                    sandbox.exec(registry, program, streams, ExecFlags::SUBREAPER, false)
                };
                if let Err(error) = self.execs.run(registry, exec, command, start) {
                    let why = error.to_string();
                    self.hub.bridge(|bridge| bridge.exec_failed(exec, &why));
                }
            }
            Action::KillExec { exec } => self.execs.kill(exec),
            Action::Learned { session, agent_session } => remember(&session, &agent_session),
            Action::Unclaimed(_) | Action::Plain(_) => {}
            Action::Log { level, text } => {
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
        let mut program = self.program.clone();
        program.argv.extend(start.arguments.into_iter().map(Into::into));
        let registry = self.poll.registry();
        let started = Process::streams(self.transport, registry).and_then(|(mut agent, ends)| {
            let streams = [ends.stdin.as_fd(), ends.stdout.as_fd(), ends.stderr.as_fd()];
            let flags = ExecFlags::SUBREAPER;
            agent.id = self.sandbox.exec(registry, &program, streams, flags, false)?;
            Ok(agent)
        });
        match started {
            Ok(agent) => self.agent = Some(agent),
            // Nobody was told yet that we are ready, and nobody will be (BP-06).
            Err(error) if !self.has_run => return Err(error),
            Err(error) => {
                let exit = Exit::NotStarted(error.to_string());
                self.hub.bridge(|bridge| bridge.agent_exited(&exit));
            }
        }
        Ok(())
    }

    fn stop_agent(&mut self, stop: Stop) {
        let Some(agent) = &mut self.agent else { return };
        match stop {
            Stop::CloseInput => agent.close_input(self.poll.registry()),
            Stop::Terminate => self.sandbox.signal(agent.id, Signal::SIGTERM, false),
            Stop::Kill if agent.pid != 0 => super::tree::kill(agent.pid),
            Stop::Kill => self.sandbox.signal(agent.id, Signal::SIGKILL, true),
        }
    }

    /// Handles an event of anything but the hub; the outcome when it ends all.
    fn event(&mut self, token: Token) -> Outcome<Option<(Reason, u8)>> {
        match token {
            SIGNALS => self.take_signals(),
            PINS => self.check_pins()?,
            console::CONSOLE => self.console().map_err(runtime)?,
            process::INPUT => self.write_agent(),
            process::OUTPUT => self.read_agent(),
            process::LOG => self.read_log(),
            _ => {
                if let Some(happened) = self.sandbox.event(self.poll.registry(), token) {
                    for happening in happened {
                        if let Some(over) = self.happened(happening)? {
                            return Ok(Some(over));
                        }
                    }
                } else {
                    self.execs.ready(self.poll.registry(), token, &mut self.chunk);
                }
            }
        }
        Ok(None)
    }

    fn happened(&mut self, happening: Happening) -> Outcome<Option<(Reason, u8)>> {
        match happening {
            Happening::Ready => self.stands()?,
            Happening::Terminal(_) => {}
            Happening::Waiting(id, pid) => match &mut self.agent {
                Some(agent) if agent.id == id => agent.pid = pid,
                _ => self.execs.waiting(id, pid),
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

    /// pid 1 serves: the agent is started ahead of the first query.
    fn stands(&mut self) -> Outcome<()> {
        self.watch = PinWatch::new(self.sandbox.pid(), self.pins, self.poll.registry(), PINS)
            .inspect_err(|_| self.sandbox.kill())?;
        self.hub.bridge(Bridge::start_agent);
        Ok(())
    }

    fn runs(&mut self, id: u32) -> Result<()> {
        let Some(agent) = self.agent.as_ref().filter(|agent| agent.id == id) else { return Ok(()) };
        if !std::mem::replace(&mut self.has_run, true) {
            let degraded = missing(&self.plan.degraded);
            self.status.say(&StatusEvent::Started { id: self.id, pid: agent.pid, degraded });
        }
        if let Some(mut ready) = self.ready.take() {
            // A server that went away before we were ready will be missed elsewhere.
            let _ = ready.write_all(b"R");
        }
        match self.transport {
            Transport::Stdio => self.hub.bridge(Bridge::agent_started),
            Transport::Socket => {
                self.connect_until = Some(Instant::now() + LISTENS_WITHIN);
                return self.connect();
            }
        }
        Ok(())
    }

    /// Looks whether the agent listens on its socket by now.
    fn connect(&mut self) -> Result<()> {
        let Some(until) = self.connect_until else { return Ok(()) };
        let Some(agent) = &mut self.agent else {
            self.connect_until = None;
            return Ok(());
        };
        if agent.connect(self.poll.registry())? {
            self.connect_until = None;
            self.hub.bridge(Bridge::agent_started);
        } else if until <= Instant::now() {
            self.connect_until = None;
            log(LogLevel::Warn, &format!("the agent does not listen on {AGENT_SOCKET} within 10 s"));
            self.stop_agent(Stop::Kill);
        }
        Ok(())
    }

    fn did_not_run(&mut self, id: u32, error: Error) -> Outcome<()> {
        if let Some(exec) = self.execs.not_run(id, self.poll.registry()) {
            let why = error.to_string();
            self.hub.bridge(|bridge| bridge.exec_failed(exec, &why));
            return Ok(());
        }
        if let Some(agent) = self.agent.take_if(|agent| agent.id == id) {
            agent.close(self.poll.registry());
        }
        if !self.has_run {
            self.sandbox.kill();
            return Err(runtime(error));
        }
        let exit = Exit::NotStarted(error.to_string());
        self.hub.bridge(|bridge| bridge.agent_exited(&exit));
        Ok(())
    }

    fn exited(&mut self, id: u32, how: Ended) {
        if let Some((exec, outcome)) = self.execs.exited(id, how, self.poll.registry(), &mut self.chunk) {
            return self.hub.bridge(|bridge| bridge.exec_finished(exec, &outcome));
        }
        if let Some(agent) = self.agent.as_mut().filter(|agent| agent.id == id) {
            agent.ended(match how {
                Ended::Exit(code) => Exit::Code(code.into()),
                Ended::Signal(signal) => Exit::Signal(signal),
            });
            self.read_log();
            self.read_agent();
        }
    }

    /// Reads what the agent says, as long as the core wants it. When the process is gone and all of it is
    /// read, the core hears of the end; a descendant that keeps the stream open does not hold that up.
    fn read_agent(&mut self) {
        let mut share = Process::share();
        while self.hub.state().wants_agent_output() && share > 0 {
            let Some(agent) = &mut self.agent else { return };
            match agent.read_output(self.poll.registry(), &mut self.chunk) {
                Read1::Some(count) => {
                    share = share.saturating_sub(count);
                    let bytes = &self.chunk[..count];
                    self.hub.bridge(|bridge| bridge.agent_output(bytes));
                }
                Read1::Nothing | Read1::End | Read1::Reset => {
                    if let Some(agent) = self.agent.take_if(|agent| agent.exit.is_some()) {
                        let exit = agent.exit.clone().unwrap_or(Exit::Code(0));
                        let left_input = agent.left_input();
                        agent.close(self.poll.registry());
                        if left_input {
                            self.hub.bridge(Bridge::agent_left_input);
                        }
                        self.last_exit = Some(exit.clone());
                        self.hub.bridge(|bridge| bridge.agent_exited(&exit));
                    }
                    return;
                }
            }
        }
        if share == 0
            && let Some(agent) = &self.agent
        {
            agent.look_again(self.poll.registry());
        }
    }

    fn read_log(&mut self) {
        let mut share = Process::share();
        while share > 0 {
            let Some(agent) = &mut self.agent else { return };
            match agent.read_log(self.poll.registry(), &mut self.chunk) {
                Read1::Some(count) => {
                    share = share.saturating_sub(count);
                    let bytes = &self.chunk[..count];
                    self.hub.bridge(|bridge| bridge.agent_log(bytes));
                }
                Read1::Nothing | Read1::End | Read1::Reset => return,
            }
        }
        if let Some(agent) = &self.agent {
            agent.look_again_at_log(self.poll.registry());
        }
    }

    fn write_agent(&mut self) {
        if let Some(agent) = self.agent.as_mut().filter(|agent| agent.is_connected()) {
            let written = agent.write(self.poll.registry());
            if written > 0 {
                self.hub.bridge(|bridge| bridge.agent_input_written(written));
            }
        }
    }

    fn console(&mut self) -> Result<()> {
        let Some(console) = &mut self.console else { return Ok(()) };
        match console.ready(self.poll.registry())? {
            Progress::Going => return Ok(()),
            Progress::Done => {}
            Progress::Failed(why) => self.failed = Some(why),
        }
        self.console = None;
        self.hub.bridge(Bridge::terminate);
        Ok(())
    }

    /// A polite end for every signal that asks for one; ^C in a turn of the console aborts the turn with it.
    fn take_signals(&mut self) {
        while let Some((signal, _)) = signals::next(&self.signals) {
            match signal {
                Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT => {
                    self.hub.bridge(Bridge::terminate);
                }
                Signal::SIGTSTP => {
                    let _ = nix::sys::signal::raise(Signal::SIGSTOP);
                }
                _ => {}
            }
        }
    }

    /// Looks for protected names that appeared, after each command that ended.
    fn look_for_new_names(&mut self) {
        let ended = self.hub.state().commands_ended();
        if std::mem::replace(&mut self.looked_at, ended) != ended {
            self.warden.look(self.id, &mut self.status);
        }
    }

    fn check_pins(&mut self) -> Outcome<()> {
        self.watch.as_mut().map_or(Ok(()), PinWatch::check).inspect_err(|_| self.sandbox.kill())
    }

    /// The bridge is over: its last words go out, and the sandbox ends.
    fn finish(&mut self) -> Outcome<(Reason, u8)> {
        self.hub.stop_listening();
        self.sandbox.kill();
        let until = Instant::now() + LAST_WORDS;
        let mut events = Events::with_capacity(64);
        while !self.hub.is_drained() && Instant::now() < until {
            let _ = self.poll.poll(&mut events, Some(LOOK_EVERY));
            self.hub.tick(self.now());
            for event in &events {
                if self.hub.owns(event.token()) {
                    self.hub.ready(event);
                }
            }
        }
        let Some(why) = self.failed.take() else { return Ok((Reason::Exit, 0)) };
        // The only turn failed: with the agent's own status, when it died of it.
        let status = match self.last_exit {
            Some(Exit::Code(code)) if code != 0 => u8::try_from(code).unwrap_or(1),
            Some(Exit::Signal(signal)) => Ended::Signal(signal).exit_status(),
            _ => 1,
        };
        log(LogLevel::Warn, &why);
        Ok((Reason::Exit, status))
    }
}

/// The supervisor's own log: standard error.
fn log(level: LogLevel, text: &str) {
    log::log!(
        match level {
            LogLevel::Warn => log::Level::Warn,
            LogLevel::Info => log::Level::Info,
            LogLevel::Debug => log::Level::Debug,
        },
        "{text}"
    );
}
