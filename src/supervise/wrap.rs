//! The loop of `saggar wrap`: one program, its standard streams as they are (or, where they are terminals,
//! relayed to a terminal of the sandbox's own), its signals and its exit status.
//!
//! ```text
//! starting ── the terminal's master, if one is needed ──> asked ── Running ──> running ── Gone ──> over
//! ```
//! It returns from `over` when the last output is on the host's terminal. As soon as the program is asked for, and
//! before it can have said anything, the loop parts with its launcher and gives up its rights ([`super::confine`]).

use super::api::Api;
use super::clock::{Clock, Times};
use super::confine::{self, Rights};
use super::memory::{self, MemoryGuard};
use super::network::Network;
use super::pins::{self, PinWatch};
use super::quarantine::Warden;
use super::sandbox::{Ended, Happening, Sandbox, register};
use super::signals;
use super::status::{Event, Marks, Met, Outcome, Reason, Status, missing, runtime};
use super::terminal::{Streams, Terminal, no_terminal};
use super::worker::{Looks, Seen, Workers};
use crate::cgroup::agent::usage::Usage;
use crate::egress::io::publish::Listeners;
use crate::error::{Code, Error, Result};
use crate::launch::Launched;
use crate::launch::guard::{self, Guard};
use crate::plan::Plan;
use crate::session::changes::Kept;
use crate::session::meter::Meter;
use crate::spec::{Pin, Program};
use crate::stage::launcher::Launcher;
use crate::stage::wire::ExecFlags;
use crate::state::counters::{self, Kind};
use mio::{Events, Poll, Token};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

// Those from 1 to 3 are the terminal's.
const SIGNALS: Token = Token(0);
const MEMORY: Token = Token(4);
const PINS: Token = Token(5);
const LAUNCHER: Token = Token(7);

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
    /// What the sandbox leaves on the host.
    pub guard: &'a mut Guard,
    /// The program.
    pub program: &'a Program,
    /// The ports of the host that lead inside.
    pub published: Listeners,
    /// What serves the model API to it, where something does.
    pub api: Option<Api>,
    /// Its limits of time; it is never idle.
    pub times: Times,
    /// What bounds it on disk.
    pub meter: Option<Meter>,
    /// The place of the changes of an overlay that are kept.
    pub kept: Option<&'a Kept>,
    /// The user and the group that the supervisor becomes, where it is root.
    pub supervisor: Option<u32>,
    /// Where events go.
    pub status: Status,
}

/// Runs the program to its end; the exit status of saggar, and whether there are changes in an overlay that is kept.
///
/// # Errors
/// What kept the program from running.
pub fn run(mut job: Job<'_>, launched: Launched) -> (Result<u8>, Option<bool>) {
    // The loop is dropped before anything is said: the host's terminal is as it was.
    let api = job.api.take();
    let launched_pid = launched.pid;
    let started = Loop::new(&mut job, api, launched).map_err(runtime);
    let mut end = End {
        workers: Workers {
            warden: job.warden,
            meter: job.meter,
            kept: job.kept,
            init: launched_pid,
            cgroup: None,
            session: None,
        },
        guard: job.guard,
        launcher: None,
        supervisor: job.supervisor,
        seen: None,
        counted: false,
        usage: None,
        over: None,
    };
    let outcome = started.and_then(|mut it| it.run(&mut job.status, &mut end));
    end.count();
    end.look(&mut job.status);
    let seen = end.seen.unwrap_or_default();
    let result = match outcome {
        Ok((reason, ended)) => {
            let usage = end.measure(&job.status, reason == Reason::Oom);
            let memory = || {
                (reason == Reason::Oom)
                    .then(|| usage.unwrap_or_default().out_of_memory(&name_of(job.program)))
            };
            let (limit, message) = end.over.take().unzip();
            let message = message.or_else(memory);
            if let Some(message) = &message {
                log::warn!("{message}");
            }
            let (exit_code, signal) = match ended {
                Ended::Exit(code) => (Some(code), None),
                Ended::Signal(signal) => (None, Some(signal)),
            };
            let marks = Marks { usage: usage.as_ref(), signal, disk: seen.disk_is_full };
            let (id, limit) = (job.id, limit.or_else(|| Met::of(reason, marks)));
            job.status.say(&Event::Exited { id, reason, exit_code, signal, limit, message, usage });
            Ok(if reason == Reason::Timeout { 124 } else { ended.exit_status() })
        }
        Err((reason, error)) => {
            let (message, usage) = (Some(error.to_string()), end.measure(&job.status, false));
            job.status.say(&Event::Exited {
                id: job.id,
                reason,
                exit_code: None,
                signal: None,
                limit: Met::of(reason, Marks::default()),
                message,
                usage,
            });
            Err(error)
        }
    };
    (result, seen.has_changes)
}

/// What is to be done when no program is left.
struct End<'a> {
    workers: Workers<'a>,
    guard: &'a mut Guard,
    /// Once the loop has given up its rights.
    launcher: Option<Rc<Launcher>>,
    supervisor: Option<u32>,
    /// What the last look came to.
    seen: Option<Seen>,
    counted: bool,
    /// What was used, once it was asked for: later there is no cgroup to tell.
    usage: Option<Usage>,
    /// The limit of time that was reached.
    over: Option<(Met, String)>,
}

impl End<'_> {
    /// Nothing but a pid 1 is left that the kernel is taking apart, with all its namespaces: there is time.
    fn begin(&mut self, oom: bool, status: &mut Status) {
        if self.seen.is_none() {
            self.measure(status, oom);
            self.count();
            self.look(status);
            self.guard.end();
        }
    }

    /// What was used, for whoever wants to know: a reader of events, or we ourselves when it was killed.
    fn measure(&mut self, status: &Status, oom: bool) -> Option<Usage> {
        if self.usage.is_none() && (status.is_read() || oom) {
            self.usage = self.guard.cgroup().and_then(Usage::of);
        }
        self.usage
    }

    /// Counts who ran out of memory, once, while there is a cgroup that can tell.
    fn count(&mut self) {
        if !std::mem::replace(&mut self.counted, true) {
            memory::count_rest(None, self.guard.cgroup());
        }
    }

    /// Looks for what appeared under protected names, once, when nobody can add to it.
    fn look(&mut self, status: &mut Status) {
        if self.seen.is_none() {
            let launcher = self.launcher.as_deref();
            self.seen = Some(Looks::default().everywhere(launcher, &mut self.workers, status));
        }
    }
}

struct Loop<'a> {
    id: &'a str,
    plan: &'a Plan,
    pins: &'a [Pin],
    watch: Option<PinWatch>,
    program: &'a Program,
    poll: Poll,
    signals: nix::sys::signalfd::SignalFd,
    sandbox: Sandbox<'a>,
    network: Network,
    api: Option<Api>,
    streams: Streams,
    terminal: Option<Terminal>,
    /// The program, once it was asked for.
    main: Option<u32>,
    clock: Clock,
    pid: i32,
    ended: Option<Ended>,
    /// Tells what is killed for want of memory, once the program runs.
    memory: Option<MemoryGuard>,
    /// The program was.
    oom: bool,
    /// Whether nothing but a dying pid 1 is left.
    alone: bool,
    /// What there is to return when the terminal has taken the last of the output.
    over: Option<(Reason, Ended)>,
}

impl<'a> Loop<'a> {
    fn new(job: &mut Job<'a>, api: Option<Api>, launched: Launched) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let signals = signals::open()?;
        register(poll.registry(), signals.as_fd(), SIGNALS)?;
        let sandbox = Sandbox::new(launched, job.plan, poll.registry())?;
        let published = std::mem::take(&mut job.published);
        let network = Network::of(job.plan, (sandbox.pid(), job.supervisor), published, poll.registry())?;
        api.as_ref().map_or(Ok(()), |api| api.watch(poll.registry()))?;
        // What tells of memory is opened while it can be; what it tells before the program runs is of its start.
        let own = job.guard.cgroup();
        let memory = own.and_then(|own| MemoryGuard::that_tells(own, poll.registry(), MEMORY));
        let streams = Streams::of_this_process()?;
        let mut it = Loop {
            id: job.id,
            plan: job.plan,
            pins: job.pins,
            watch: None,
            program: job.program,
            poll,
            signals,
            sandbox,
            network,
            api,
            streams,
            terminal: None,
            main: None,
            clock: Clock::new(job.times.clone()),
            pid: 0,
            ended: None,
            memory,
            oom: false,
            alone: false,
            over: None,
        };
        if !it.streams.need_terminal() {
            it.start(None)?;
        }
        Ok(it)
    }

    /// Asks for the program. Our copy of the slave ends here: when the last one inside is closed, the master
    /// has to hear of it.
    fn start(&mut self, slave: Option<OwnedFd>) -> Result<()> {
        let (streams, terminal) = self.streams.for_program(slave.as_ref())?;
        let flags = ExecFlags::LAST | terminal;
        self.main = Some(self.sandbox.exec(self.poll.registry(), self.program, streams, flags, false)?);
        Ok(())
    }

    /// Parts with the launcher, and gives up all rights: pid 1 is at work on its steps, and the program is asked for.
    fn part(&mut self, end: &mut End<'_>) -> Result<()> {
        guard::sweep_by_the_way();
        counters::hold();
        let descriptors = end.workers.descriptors();
        let work = &mut |worker, argument, fds| end.workers.work(worker, argument, fds);
        let launcher = end.guard.part(self.sandbox.launched(), descriptors, work)?;
        self.api.iter_mut().for_each(|api| api.part(&launcher));
        // Without it nobody could end a sandbox that does not end by itself.
        register(self.poll.registry(), launcher.pidfd(), LAUNCHER)?;
        end.launcher = Some(launcher);
        let reads = end.guard.cgroup().into_iter().collect();
        confine::enter(&Rights { id: end.supervisor, reads, ..Rights::default() })
    }

    fn run(&mut self, status: &mut Status, end: &mut End<'_>) -> Outcome<(Reason, Ended)> {
        let mut events = Events::with_capacity(16);
        if self.main.is_some() {
            self.part(end).inspect_err(|_| self.sandbox.kill()).map_err(runtime)?;
        }
        loop {
            self.network.tick(self.poll.registry());
            self.network.ask(&self.sandbox);
            self.network.tell_published(self.id, status, |text| log::warn!("{text}"));
            self.network.tell(self.id, status, |text| log::warn!(target: crate::log::CAUSED, "{text}"));
            self.api.iter_mut().for_each(|api| {
                api.tell(self.id, status, |text| log::warn!(target: crate::log::CAUSED, "{text}"))
            });
            let at_rest = !self.relay().map_err(runtime)?;
            if at_rest
                && let Some(over) = self.over.filter(|_| self.is_drained())
                && self.network.is_settled()
            {
                return Ok(over);
            }
            if self.alone && self.over.is_none() {
                end.begin(self.oom, status);
            }
            if let Some(over) = self.clock.over() {
                end.over = Some(over);
                self.sandbox.kill();
                // What it wrote until now is shown, as far as the host's terminal takes it at once.
                while self.relay().map_err(runtime)? {}
                return Ok((Reason::Timeout, Ended::Signal(libc::SIGKILL)));
            }
            match self.poll.poll(&mut events, self.patience(at_rest)) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(|e| runtime(Error::system("wait for events", e)))?,
            }
            for event in &events {
                if self.terminal.as_mut().is_some_and(|terminal| terminal.event(event)) {
                    continue;
                }
                if self.network.ready(event) {
                    continue;
                }
                if self.api.as_mut().is_some_and(|api| api.ready(self.poll.registry(), event.token())) {
                    continue;
                }
                if event.token() == SIGNALS {
                    self.pass_signals();
                    continue;
                }
                if event.token() == MEMORY {
                    self.memory.iter_mut().for_each(|memory| memory.hear(self.id, status));
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
                let happened = self.sandbox.event(self.poll.registry(), event.token());
                for happening in happened.into_iter().flatten() {
                    self.take(happening, status, end)?;
                }
            }
        }
    }

    fn take(&mut self, happening: Happening, status: &mut Status, end: &mut End<'_>) -> Outcome<()> {
        if self.over.is_some() {
            return Ok(());
        }
        match happening {
            Happening::Terminal(master) if self.main.is_none() => {
                let (terminal, slave) = Terminal::attach(master, &self.streams).map_err(runtime)?;
                self.terminal = Some(terminal);
                self.start(Some(slave)).map_err(runtime)?;
                self.part(end).inspect_err(|_| self.sandbox.kill()).map_err(runtime)?;
            }
            // A stream has become a terminal since the plan was made.
            Happening::Ready if self.main.is_none() => {
                self.sandbox.kill();
                return Err(runtime(no_terminal()));
            }
            Happening::Ready => self.watch_pins(end.launcher.as_deref())?,
            Happening::Waiting(_, pid) => self.pid = pid,
            Happening::Handed(handed) => self.network.take_over(handed),
            Happening::Socket(family, socket) => self.network.supply(family, socket),
            Happening::Offered(socket) => {
                if let Some(api) = &mut self.api {
                    api.offer(socket);
                }
            }
            Happening::Running(_) => {
                let degraded = missing(&self.plan.degraded);
                counters::started(Kind::Sandbox);
                status.say(&Event::Started { id: self.id, pid: self.pid, degraded });
                let started =
                    self.terminal.as_mut().map_or(Ok(()), |terminal| terminal.start(self.poll.registry()));
                started.map_err(runtime)?;
            }
            Happening::NotRun(_, error) => {
                self.sandbox.kill();
                return Err(runtime(error));
            }
            Happening::Exited(id, how, alone) if self.main == Some(id) => {
                self.ended = Some(how);
                self.alone = alone;
                self.ask_for_oom(self.pid, how, status);
            }
            Happening::Gone(Some(error)) => return Err(runtime(error)),
            Happening::Gone(None) => {
                self.clock.stop();
                if self.ended.is_none() {
                    self.ask_for_oom(self.sandbox.pid(), KILLED, status);
                }
                self.over = Some(outcome(self.ended, self.oom));
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the kernel killed this process for want of memory, and with it the program.
    fn ask_for_oom(&mut self, pid: i32, how: Ended, status: &mut Status) {
        let memory = self.memory.as_mut().filter(|_| how == KILLED);
        self.oom = memory.is_some_and(|memory| memory.has_killed(pid, self.id, status));
    }

    fn watch_pins(&mut self, launcher: Option<&Launcher>) -> Outcome<()> {
        let table = || pins::table(launcher, self.sandbox.pid());
        self.watch = PinWatch::new(table, self.pins, self.poll.registry(), PINS)
            .inspect_err(|_| self.sandbox.kill())?;
        Ok(())
    }

    /// A pin that was undone ends everything, unless all is over anyway.
    fn check_pins(&mut self) -> Outcome<()> {
        if self.over.is_some() {
            return Ok(());
        }
        self.watch.as_mut().map_or(Ok(()), PinWatch::check).inspect_err(|_| self.sandbox.kill())
    }

    /// A launcher that is gone before it was told to end was killed.
    fn check_launcher(&mut self, end: &End<'_>) -> Outcome<()> {
        if end.guard.is_ending() {
            return Ok(());
        }
        self.sandbox.kill();
        Err(runtime(Error::new(Code::System, "the launcher of the sandbox was killed")))
    }

    /// Moves what the terminals have for each other; true when there may be more at once.
    fn relay(&mut self) -> Result<bool> {
        self.terminal.as_mut().map_or(Ok(false), |terminal| terminal.pump(self.poll.registry()))
    }

    /// How long to wait for events at most.
    fn patience(&self, at_rest: bool) -> Option<Duration> {
        if !at_rest {
            return Some(Duration::ZERO);
        }
        let relay = self.terminal.as_ref().and_then(Terminal::patience);
        self.clock.left().into_iter().chain(relay).chain(self.network.patience()).min()
    }

    fn is_drained(&self) -> bool {
        self.terminal.as_ref().is_none_or(Terminal::is_drained)
    }

    /// Signals reach the program as if it ran bare: one from the terminal goes to its whole process group.
    fn pass_signals(&mut self) {
        while let Some((signal, from_terminal)) = signals::next(&self.signals) {
            match signal {
                Signal::SIGTSTP => self.stop(),
                Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM if self.is_alone() => {
                    self.give_up(signal);
                }
                _ => self.pass(signal, from_terminal),
            }
        }
    }

    fn pass(&mut self, signal: Signal, to_group: bool) {
        match (signal, &mut self.terminal) {
            (Signal::SIGWINCH, Some(terminal)) => terminal.resize(),
            (Signal::SIGCONT, Some(terminal)) => terminal.resume(),
            _ => {}
        }
        // A new size of its own terminal tells the program; without one it hears of the host's.
        if let Some(main) = self.main
            && (signal != Signal::SIGWINCH || self.terminal.is_none())
        {
            self.sandbox.signal(main, signal, to_group || signal == Signal::SIGCONT);
        }
    }

    /// The program stops, then we do, so that the shell that waits for us sees it. SIGSTOP, because the
    /// program leads a session of its own: nobody in it could continue its group, and the kernel drops a
    /// SIGTSTP for such a one (credentials(7), orphaned process groups).
    fn stop(&mut self) {
        if let Some(main) = self.main {
            self.sandbox.signal(main, Signal::SIGSTOP, true);
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.suspend();
        }
        let _ = nix::sys::signal::raise(Signal::SIGSTOP);
    }

    /// No program hears signals: it is not asked for yet, or gone and its last output stuck.
    fn is_alone(&self) -> bool {
        self.main.is_none() || self.over.is_some()
    }

    /// Ends without a program to pass the signal to.
    fn give_up(&mut self, signal: Signal) {
        self.sandbox.kill();
        self.clock.stop();
        self.terminal = None;
        self.over.get_or_insert((Reason::Signal, Ended::Signal(signal as i32)));
    }
}

/// How the kernel ends what it finds too large.
const KILLED: Ended = Ended::Signal(libc::SIGKILL);

/// The name of a program, for people.
fn name_of(program: &Program) -> String {
    let path = program.argv.first().map(Path::new);
    let name = path.and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// How it ended when pid 1 is gone: by the program's own end, or killed from outside.
fn outcome(ended: Option<Ended>, oom: bool) -> (Reason, Ended) {
    match ended {
        Some(KILLED) | None if oom => (Reason::Oom, KILLED),
        Some(how @ Ended::Exit(_)) => (Reason::Exit, how),
        Some(how @ Ended::Signal(_)) => (Reason::Signal, how),
        None => (Reason::Signal, Ended::Signal(libc::SIGKILL)),
    }
}
