//! The loop of the supervisor beside a container (DECISIONS 12): the bridge between the container's program and
//! its servers.
//!
//! ```text
//!   servers ══ hub ── Action ──> this loop ──> stdin of the program, signals, exec
//!               ^── messages ────────┴──────── stdout of the program; lines that are not JSON ──> the
//!                                              container's own stdout
//! ```
//! The loop has no rights over the container: its [`keeper`] has them, and does what it asks for.
//!
//! The program is nobody's that we could start: `saggar start` does, once. Until then the socket takes
//! connections, and nobody is told that the agent is ready. The program's end is the end of the bridge, as soon as
//! its servers have been told; the end of the bridge is the program's.

mod commands;
mod controlled;
mod keeper;
mod pass;
mod remote;
mod wire;

pub use wire::How;

use super::confine::{self, Rights};
use super::sandbox::register;
use super::signals;
use super::talk::control::{Control, Controlled};
use super::talk::process::{self, Process};
use super::talk::{self, Talk};
use crate::bridge::adapter::Adapter;
use crate::bridge::core::{Action, Bridge, Config, Exit, Start, Stop};
use crate::bridge::io::{Hub, Listener};
use crate::bridge::proto::LogLevel;
use crate::error::{Error, Result};
use crate::launch::container::Starting;
use crate::launch::ids::IdBlock;
use crate::launch::socket_pair;
use crate::stage::beside;
use crate::stage::watcher::Charge;
use crate::sys::file::{self, FileId};
use crate::sys::pidfd;
use commands::Commands;
use mio::{Events, Poll, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use pass::Pass;
use remote::Remote;
use serde_json::Value;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

const SIGNALS: Token = Token(0);
const INIT: Token = Token(1);
const GUARD: Token = Token(2);
const PASS: Token = Token(3);
const KEEPER: Token = Token(4);
const HUB: Token = Token(1 << 16);

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
    /// Starts a program in the container, with these arguments and standard streams, as a subreaper, and does not wait
    /// for it.
    ///
    /// # Errors
    /// What kept it from starting.
    fn exec(&mut self, argv: Vec<OsString>, streams: [BorrowedFd<'_>; 3]) -> Result<Starting>;

    /// A pidfd of its init.
    fn init(&self) -> BorrowedFd<'_>;

    /// Kills the container's processes.
    fn kill(&mut self);

    /// Stops all of them, or lets them go on.
    ///
    /// # Errors
    /// Without a freezer; when they do not stop.
    fn freeze(&mut self, freeze: bool) -> Result<()>;

    /// Whether they stand still.
    fn is_frozen(&self) -> bool;

    /// What they use, as `saggar events --stats` tells it.
    ///
    /// # Errors
    /// Without a cgroup.
    fn stats(&self) -> Result<Value>;

    /// Sets the limits of `linux.resources`, this JSON, as `saggar update` does: all of them, or none.
    ///
    /// # Errors
    /// The first that does not hold: its file, its value, and the cure.
    fn update(&mut self, resources: &str) -> Result<()>;

    /// The state of the container (runtime.md, State).
    fn state(&self) -> Value;

    /// How its init ended, which has; `None` when that cannot be seen.
    fn exit(&self) -> Option<How>;

    /// Sends its init a signal.
    ///
    /// # Errors
    /// [`crate::error::Code::System`]: it has ended.
    fn signal(&self, signal: i32) -> Result<()>;
}

/// What is to be done.
#[derive(Debug)]
pub struct Job {
    /// The container's name.
    pub name: String,
    /// What the program speaks.
    pub adapter: Box<dyn Adapter>,
    /// Where the bridge listens.
    pub listener: Listener,
    /// Where the control socket is, where there is room for it.
    pub control: Option<Listener>,
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
    /// The block of ids whose supervisor the loop becomes, where it is root.
    pub ids: Option<IdBlock>,
}

impl Job {
    /// The files of the sockets.
    fn sockets(&self) -> Vec<(CString, FileId)> {
        let listeners = std::iter::once(&self.listener).chain(&self.control);
        let file = |listener: &Listener| {
            let record = listener.record();
            let path = CString::new(listener.path().as_os_str().as_encoded_bytes()).ok()?;
            Some((path, FileId { device: record.dev, inode: record.ino }))
        };
        listeners.filter_map(file).collect()
    }
}

/// Carries the conversation until the program has ended; then so has the container. As soon as the program runs, and
/// before anything is read of it or of a server, the process parts with its keeper and gives up all rights.
///
/// # Errors
/// [`crate::error::Code::System`]: the container is to be killed.
pub fn run(job: Job, room: &mut dyn Room) -> Result<()> {
    if !await_start(&job)? {
        room.kill();
        return Ok(());
    }
    let (calls, theirs) = socket_pair()?;
    let sockets = job.sockets();
    // The room's own number of it, which stays what it is in the copy.
    let init = file::number(room.init().as_raw_fd());
    let (_, keeper) = beside::fork(&[theirs.as_fd(), init], || {
        keeper::serve(room, theirs.as_fd());
        sockets.iter().for_each(|(path, is)| Charge::File { path, is: *is }.remove());
        0
    })
    .map_err(|e| Error::system("start the keeper of the container", e))?;
    drop(theirs);
    let id = job.ids.as_ref().map(|ids| ids.supervisor);
    let mut it = Loop::new(job, Rc::new(Remote::new(calls, keeper)))?;
    it.room.judges();
    confine::enter(&Rights { id, ..Rights::default() })?;
    let ended = it.run();
    it.room.end();
    ended
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
        // The guard ends with the init too, so that is looked at after the guard.
        let over = pidfd::has_ended(job.ends.init.as_fd());
        if (guard && !over) || (signal && take_signals(&job.signals)) {
            return Ok(false);
        }
        if started || init {
            // A program that is over already may have said something.
            return Ok(!over || file::waiting(job.ends.stdout.as_fd()) > 0);
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

struct Loop {
    name: String,
    talk: Talk,
    room: Rc<Remote>,
    /// Holds the id that this process has.
    _ids: Option<IdBlock>,
    signals: SignalFd,
    _guard: OwnedFd,
    init: OwnedFd,
    /// The core was told that it runs.
    told: bool,
    /// It has ended.
    over: bool,
    pass: Pass,
    /// The program is not read, since nobody takes what is to be passed on.
    held: bool,
    commands: Commands,
    control: Option<Control>,
    generation: u64,
    logged: usize,
}

impl Loop {
    fn new(job: Job, room: Rc<Remote>) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let registry = poll.registry();
        let Ends { stdin, stdout, pass, started: _, init } = job.ends;
        register(registry, job.signals.as_fd(), SIGNALS)?;
        register(registry, init.as_fd(), INIT)?;
        register(registry, job.guard.as_fd(), GUARD)?;
        register(registry, room.as_fd(), KEEPER)?;
        let commands = Commands::new(job.environment, job.directory, &room)?;
        let config = Config {
            name: job.name.clone(),
            pid: std::process::id(),
            epoch_ms: talk::epoch_ms(),
            plain_lines: true,
            ..Config::default()
        };
        let hub = Hub::new(Bridge::new(config, job.adapter), job.listener, registry, HUB)?;
        let agent = Process::of_another(stdin, stdout, registry)?;
        let control = job.control.map(|listener| Control::new(listener, None, registry)).transpose()?;
        Ok(Loop {
            name: job.name,
            talk: Talk::new(poll, hub, Some(agent)),
            room,
            _ids: job.ids,
            signals: job.signals,
            _guard: job.guard,
            init,
            told: false,
            over: false,
            pass: Pass::new(pass),
            held: false,
            commands,
            control,
            generation: 1,
            logged: 0,
        })
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(64);
        self.talk.tick();
        self.talk.hub.bridge(Bridge::start_agent);
        loop {
            while let Some(action) = self.talk.hub.next_action() {
                if self.act(action) {
                    self.finish();
                    return Ok(());
                }
            }
            self.pass.write(self.talk.poll.registry(), PASS);
            if self.held && !self.pass.is_full() {
                self.read_agent();
                continue;
            }
            self.serve();
            if self.talk.hub.has_actions() {
                continue;
            }
            let control = self.control.as_ref().and_then(Control::patience);
            let patience = self.talk.patience().into_iter().chain(control).min();
            self.talk.wait(&mut events, patience)?;
            self.control.iter_mut().for_each(Control::tick);
            self.see_whether_it_goes_on();
            for event in &events {
                if self.control.as_mut().is_some_and(|control| control.ready(event)) {
                    continue;
                }
                if event.token() == KEEPER {
                    return Err(Remote::gone());
                }
                if self.talk.hub.owns(event.token()) {
                    self.talk.hub.ready(event);
                } else {
                    self.event(event.token());
                }
            }
        }
    }

    /// What was paused by the control socket may be resumed by anybody, `saggar resume` first of all.
    fn see_whether_it_goes_on(&mut self) {
        if self.talk.hub.state().is_paused() && !self.room.is_frozen() {
            self.talk.hub.bridge(|bridge| bridge.pause(false));
        }
    }

    /// Does what the core asks for; true when all is over.
    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::StartAgent(Start { .. }) => self.start_agent(),
            Action::StopAgent(stop) => self.stop_agent(stop),
            Action::InterruptAgent => self.signal(libc::SIGINT),
            Action::AgentInput(bytes) => self.talk.say(bytes),
            // Reading goes on by itself: the stream is looked at again when the core wants more.
            Action::PauseAgent => {}
            Action::ResumeAgent => self.read_agent(),
            Action::RunExec { exec, command, timeout: _ } => self.begin_or_tell(exec, command),
            Action::KillExec { exec } => self.end(exec),
            Action::Plain(line) => self.pass.push(line),
            Action::Log { level, text } => self.log(level, &text),
            Action::Shutdown => return true,
            // A container has no session, and so no audit but the log.
            Action::Audit(audit) => {
                let line = audit.line();
                self.log(LogLevel::Info, &format!("audit: {}", String::from_utf8_lossy(line.trim_ascii())));
            }
            Action::Learned { .. }
            | Action::AgentFailed
            | Action::HostAnswered(_)
            | Action::Unclaimed(_)
            | Action::Send { .. }
            | Action::Close { .. } => {}
            Action::PermissionAsked(id) => self.tell_question(&id, true),
            Action::PermissionClosed(id) => self.tell_question(&id, false),
        }
        false
    }

    /// The program runs already, the first time; there is no second.
    fn start_agent(&mut self) {
        if self.talk.agent.is_some() && !std::mem::replace(&mut self.told, true) {
            self.talk.hub.bridge(Bridge::agent_started);
            // What was there before is told once more.
            self.read_agent();
        } else {
            self.talk.not_started("the program of a container is started once".to_owned());
        }
    }

    fn stop_agent(&mut self, stop: Stop) {
        match (stop, &mut self.talk.agent) {
            (Stop::CloseInput, Some(agent)) => agent.close_input(self.talk.poll.registry()),
            (Stop::CloseInput, None) => {}
            (Stop::Terminate, _) => self.signal(libc::SIGTERM),
            (Stop::Kill, _) => self.room.kill(),
        }
    }

    fn signal(&self, signal: i32) {
        // One that has ended is heard of.
        let _ = self.room.signal(signal);
    }

    fn event(&mut self, token: Token) {
        match token {
            SIGNALS => {
                if take_signals(&self.signals) {
                    self.shut_down();
                }
            }
            INIT => self.exited(),
            // With nobody to end the container after us, it ends with us.
            GUARD => {
                if !pidfd::has_ended(self.init.as_fd()) {
                    self.log(LogLevel::Warn, "the guard of the container was killed: the container ends");
                    self.room.kill();
                }
            }
            PASS => self.pass.write(self.talk.poll.registry(), PASS),
            process::INPUT => self.talk.write_agent(),
            process::OUTPUT => self.read_agent(),
            other => {
                let (registry, chunk) = (self.talk.poll.registry(), &mut self.talk.chunk);
                if let Some((exec, end)) = self.commands.ready(registry, other, chunk) {
                    self.command_over(exec, end.as_ref());
                }
            }
        }
    }

    /// The program has ended, and with it the container.
    fn exited(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let exit = match self.room.exit() {
            Some(How::Exited(code)) => Exit::Code(code),
            Some(How::Killed(signal)) => Exit::Signal(signal),
            None => Exit::Unseen,
        };
        if let Some(agent) = &mut self.talk.agent {
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
        if let Some(over) = self.talk.read_agent() {
            self.talk.hub.bridge(|bridge| bridge.agent_exited(&over.exit));
            self.talk.hub.bridge(Bridge::terminate);
        }
    }

    fn log(&mut self, level: LogLevel, text: &str) {
        if let Some(control) = &mut self.control {
            control.log(talk::epoch_ms(), level, text);
        }
        if self.logged < LOG_LIMIT {
            self.logged += text.len() + 64;
            talk::log(level, text);
            if self.logged >= LOG_LIMIT {
                log::warn!("this log is full: what follows is left out");
            }
        }
    }

    /// The bridge is over: its last words go out, and the container ends.
    fn finish(&mut self) {
        self.talk.hub.stop_listening();
        if !self.over {
            self.room.kill();
        }
        // What the container said is its orchestrator's: no haste with that.
        let pass = &mut self.pass;
        self.talk.last_words(|registry| {
            pass.write(registry, PASS);
            !pass.is_empty()
        });
    }
}
