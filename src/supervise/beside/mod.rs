//! The loop of the supervisor beside a container (DECISIONS 12): the bridge between the container's program and
//! its servers.
//!
//! ```text
//!   servers ══ hub ── Action ──> this loop ──> stdin of the program, signals, exec
//!               ^── messages ────────┴──────── stdout of the program; lines that are not JSON ──> the
//!                                              container's own stdout
//! ```
//! The program is nobody's that we could start: `saggar start` does, once. Until then the socket takes
//! connections, and nobody is told that the agent is ready. The program's end is the end of the bridge, as soon as
//! its servers have been told; the end of the bridge is the program's.

mod pass;

use super::agent::execs::Execs;
use super::agent::process::{Process, Read1};
use super::sandbox::{Ended, register};
use super::signals;
use crate::bridge::adapter::Adapter;
use crate::bridge::core::{Action, Bridge, Config, ExecId, Exit, Start, Stop};
use crate::bridge::io::{Hub, Listener};
use crate::bridge::proto::LogLevel;
use crate::error::{Error, Result};
use crate::launch::container::Init;
use crate::spec::Program;
use crate::sys::pidfd;
use mio::{Events, Poll, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::WaitStatus;
use pass::Pass;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

const SIGNALS: Token = Token(0);
const INIT: Token = Token(1);
const GUARD: Token = Token(2);
const PASS: Token = Token(3);
const HUB: Token = Token(1 << 16);
/// Tokens of the ends of commands.
const ENDS: usize = 1 << 40;

/// The size of one read.
const CHUNK: usize = 64 << 10;
/// How long the last words of the bridge may take, and how often it is looked whether they are said.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The most that is written to the log: it lies in memory, and what it holds may be the agent's.
const LOG_LIMIT: usize = 1 << 20;

/// What the supervisor was given by the runtime.
#[derive(Debug)]
pub struct Ends {
    /// The writing end of the program's standard input.
    pub stdin: OwnedFd,
    /// The reading end of its standard output.
    pub stdout: OwnedFd,
    /// Where the container's standard output goes.
    pub pass: OwnedFd,
    /// The reading end of a pipe whose other end the container's init holds until it executes the program.
    pub started: OwnedFd,
    /// A pidfd of the init.
    pub init: OwnedFd,
}

/// The container, as far as the loop reaches into it.
pub trait Room {
    /// Starts a program in the container, with these standard streams, as a subreaper.
    ///
    /// # Errors
    /// What kept it from starting.
    fn exec(&mut self, program: &Program, streams: [BorrowedFd<'_>; 3]) -> Result<Init>;

    /// Kills the container's processes.
    fn kill(&mut self);

    /// How its init ended, which has; `None` when that cannot be seen.
    fn exit(&self) -> Option<WaitStatus>;
}

/// What is to be done.
#[derive(Debug)]
pub struct Job {
    /// What the program speaks.
    pub adapter: Box<dyn Adapter>,
    /// Where the bridge listens.
    pub listener: Listener,
    /// The program's descriptors.
    pub ends: Ends,
    /// A pidfd of the guard: when it is gone, nobody would end the container after us.
    pub guard: OwnedFd,
    /// Signals to us.
    pub signals: SignalFd,
    /// Environment and working directory of commands.
    pub environment: Vec<(OsString, OsString)>,
    /// The same.
    pub directory: PathBuf,
}

/// Carries the conversation until the program has ended; then so has the container.
///
/// # Errors
/// [`crate::error::Code::System`]: the caller kills the container.
pub fn run(job: Job, room: &mut dyn Room) -> Result<()> {
    if !await_start(&job)? {
        room.kill();
        return Ok(());
    }
    Loop::new(job, room)?.run()
}

/// Waits until the program runs; false when there is nothing to wait for any more.
fn await_start(job: &Job) -> Result<bool> {
    loop {
        let watched =
            [job.ends.started.as_fd(), job.ends.init.as_fd(), job.guard.as_fd(), job.signals.as_fd()];
        let mut fds = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other.map_err(|e| Error::system("wait for the start of the container", e))?,
        };
        let [started, init, guard, signal] = fds.map(|fd| fd.any().unwrap_or(true));
        if guard {
            return Ok(false);
        }
        if signal && take_signals(&job.signals) {
            return Ok(false);
        }
        if started {
            // A program that is over already may have said something.
            return Ok(!init || crate::sys::file::waiting(job.ends.stdout.as_fd()) > 0);
        }
        if init {
            return Ok(false);
        }
    }
}

/// Whether a signal asks for the end.
fn take_signals(signals: &SignalFd) -> bool {
    let mut end = false;
    while let Some((signal, _)) = signals::next(signals) {
        end |= matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT);
    }
    end
}

struct Loop<'a> {
    poll: Poll,
    hub: Hub,
    room: &'a mut dyn Room,
    signals: SignalFd,
    _guard: OwnedFd,
    init: OwnedFd,
    /// The program, until its end is told.
    agent: Option<Process>,
    /// The core was told that it runs.
    told: bool,
    /// It has ended.
    over: bool,
    pass: Pass,
    /// The program is not read, since nobody takes what is to be passed on.
    held: bool,
    execs: Execs,
    next_exec: u32,
    running: BTreeMap<u32, OwnedFd>,
    started: Instant,
    logged: usize,
    chunk: Box<[u8]>,
}

impl<'a> Loop<'a> {
    fn new(job: Job, room: &'a mut dyn Room) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let registry = poll.registry();
        let Ends { stdin, stdout, pass, started: _, init } = job.ends;
        register(registry, job.signals.as_fd(), SIGNALS)?;
        register(registry, init.as_fd(), INIT)?;
        register(registry, job.guard.as_fd(), GUARD)?;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let config = Config {
            epoch_ms: u64::try_from(since_1970.as_millis()).unwrap_or(0),
            plain_lines: true,
            ..Config::default()
        };
        let hub = Hub::new(Bridge::new(config, job.adapter), job.listener, registry, HUB)?;
        let agent = Process::of_another(stdin, stdout, registry)?;
        Ok(Loop {
            hub,
            room,
            signals: job.signals,
            _guard: job.guard,
            init,
            agent: Some(agent),
            told: false,
            over: false,
            pass: Pass::new(pass),
            held: false,
            execs: Execs::new(job.environment, job.directory),
            next_exec: 0,
            running: BTreeMap::new(),
            started: Instant::now(),
            logged: 0,
            chunk: vec![0; CHUNK].into_boxed_slice(),
            poll,
        })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(64);
        self.hub.tick(self.now());
        self.hub.bridge(Bridge::start_agent);
        loop {
            while let Some(action) = self.hub.next_action() {
                if self.act(action) {
                    self.finish();
                    return Ok(());
                }
            }
            self.pass.write(self.poll.registry(), PASS);
            if self.held && !self.pass.is_full() {
                self.read_agent();
                continue;
            }
            let wait = self.hub.next_deadline().map(|at| at.saturating_sub(self.now()));
            match self.poll.poll(&mut events, wait) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                other => other.map_err(|e| Error::system("wait for events", e))?,
            }
            self.hub.tick(self.now());
            for event in &events {
                if self.hub.owns(event.token()) {
                    self.hub.ready(event);
                } else {
                    self.event(event.token());
                }
            }
        }
    }

    /// Does what the core asks for; true when all is over.
    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::StartAgent(Start { .. }) => self.start_agent(),
            Action::StopAgent(stop) => self.stop_agent(stop),
            Action::InterruptAgent => self.signal(libc::SIGINT),
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
                if let Err(error) = self.run_exec(exec, command) {
                    let why = error.to_string();
                    self.hub.bridge(|bridge| bridge.exec_failed(exec, &why));
                }
            }
            Action::KillExec { exec } => self.execs.kill(exec),
            Action::Plain(line) => self.pass.push(line),
            Action::Log { level, text } => self.log(level, &text),
            Action::Shutdown => return true,
            Action::Learned { .. } | Action::Unclaimed(_) | Action::Send { .. } | Action::Close { .. } => {}
        }
        false
    }

    /// The program runs already, the first time; there is no second.
    fn start_agent(&mut self) {
        if self.agent.is_some() && !std::mem::replace(&mut self.told, true) {
            self.hub.bridge(Bridge::agent_started);
            // What was there before is told once more.
            self.read_agent();
        } else {
            let exit = Exit::NotStarted("the program of a container is started once".to_owned());
            self.hub.bridge(|bridge| bridge.agent_exited(&exit));
        }
    }

    fn stop_agent(&mut self, stop: Stop) {
        match (stop, &mut self.agent) {
            (Stop::CloseInput, Some(agent)) => agent.close_input(self.poll.registry()),
            (Stop::CloseInput, None) => {}
            (Stop::Terminate, _) => self.signal(libc::SIGTERM),
            (Stop::Kill, _) => self.room.kill(),
        }
    }

    fn signal(&self, signal: i32) {
        let _ = pidfd::signal(self.init.as_fd(), signal);
    }

    fn run_exec(&mut self, exec: ExecId, command: String) -> Result<()> {
        let id = self.next_exec;
        self.next_exec = self.next_exec.wrapping_add(1);
        let (room, registry, running) = (&mut *self.room, self.poll.registry(), &mut self.running);
        let mut pid = 0;
        self.execs.run(registry, exec, command, |program, streams| {
            let started = room.exec(program, streams)?;
            pid = started.pid;
            let token = Token(ENDS + id as usize);
            if let Err(error) = register(registry, started.pidfd.as_fd(), token) {
                let _ = pidfd::signal(started.pidfd.as_fd(), libc::SIGKILL);
                let _ = pidfd::reap(started.pidfd.as_fd());
                return Err(error);
            }
            running.insert(id, started.pidfd);
            Ok(id)
        })?;
        self.execs.waiting(id, pid);
        Ok(())
    }

    fn event(&mut self, token: Token) {
        match token {
            SIGNALS => {
                if take_signals(&self.signals) {
                    self.hub.bridge(Bridge::terminate);
                }
            }
            INIT => self.exited(),
            // With nobody to end the container after us, it ends with us.
            GUARD => {
                if !self.over {
                    self.log(LogLevel::Warn, "the guard of the container was killed: the container ends");
                    self.room.kill();
                }
            }
            PASS => self.pass.write(self.poll.registry(), PASS),
            super::agent::process::INPUT => self.write_agent(),
            super::agent::process::OUTPUT => self.read_agent(),
            Token(number) if number >= ENDS => self.exec_ended(number - ENDS),
            other => {
                self.execs.ready(self.poll.registry(), other, &mut self.chunk);
            }
        }
    }

    fn exec_ended(&mut self, number: usize) {
        let Some((id, ended)) =
            u32::try_from(number).ok().and_then(|id| self.running.remove(&id).map(|pidfd| (id, pidfd)))
        else {
            return;
        };
        let fd = std::os::fd::AsRawFd::as_raw_fd(&ended);
        let _ = self.poll.registry().deregister(&mut mio::unix::SourceFd(&fd));
        let how = match pidfd::reap(ended.as_fd()) {
            Ok(WaitStatus::Signaled(_, signal, _)) => Ended::Signal(signal as i32),
            Ok(WaitStatus::Exited(_, code)) => Ended::Exit(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            _ => Ended::Exit(u8::MAX),
        };
        if let Some((exec, outcome)) = self.execs.exited(id, how, self.poll.registry(), &mut self.chunk) {
            self.hub.bridge(|bridge| bridge.exec_finished(exec, &outcome));
        }
    }

    /// The program has ended, and with it the container.
    fn exited(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let exit = match self.room.exit() {
            Some(WaitStatus::Exited(_, code)) => Exit::Code(code),
            Some(WaitStatus::Signaled(_, signal, _)) => Exit::Signal(signal as i32),
            _ => Exit::Unseen,
        };
        if let Some(agent) = &mut self.agent {
            agent.ended(exit);
        }
        self.read_agent();
    }

    /// Reads what the program says, as long as somebody takes it. When it has ended and all of it is read, the
    /// core hears of the end, tells the servers, and is told to end.
    fn read_agent(&mut self) {
        self.held = self.pass.is_full();
        if self.held {
            return;
        }
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
                        let exit = agent.exit.clone().unwrap_or(Exit::Unseen);
                        agent.close(self.poll.registry());
                        self.hub.bridge(|bridge| bridge.agent_exited(&exit));
                        self.hub.bridge(Bridge::terminate);
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

    fn write_agent(&mut self) {
        if let Some(agent) = self.agent.as_mut().filter(|agent| agent.is_connected()) {
            let written = agent.write(self.poll.registry());
            if written > 0 {
                self.hub.bridge(|bridge| bridge.agent_input_written(written));
            }
        }
    }

    fn log(&mut self, level: LogLevel, text: &str) {
        if self.logged < LOG_LIMIT {
            self.logged += text.len() + 64;
            let level = match level {
                LogLevel::Warn => log::Level::Warn,
                LogLevel::Info => log::Level::Info,
                LogLevel::Debug => log::Level::Debug,
            };
            log::log!(level, "{text}");
            if self.logged >= LOG_LIMIT {
                log::warn!("this log is full: what follows is left out");
            }
        }
    }

    /// The bridge is over: its last words go out, and the container ends.
    fn finish(&mut self) {
        self.hub.stop_listening();
        if !self.over {
            self.room.kill();
        }
        let until = Instant::now() + LAST_WORDS;
        let mut events = Events::with_capacity(64);
        // What the container said is its orchestrator's: no haste with that.
        while (!self.hub.is_drained() && Instant::now() < until) || !self.pass.is_empty() {
            self.pass.write(self.poll.registry(), PASS);
            let _ = self.poll.poll(&mut events, Some(LOOK_EVERY));
            self.hub.tick(self.now());
            for event in &events {
                if self.hub.owns(event.token()) {
                    self.hub.ready(event);
                }
            }
        }
    }
}
