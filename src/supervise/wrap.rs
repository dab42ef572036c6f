//! The loop of `saggar wrap`: one program, its standard streams as they are (or, where they are terminals,
//! relayed to a terminal of the sandbox's own), its signals and its exit status.

use super::sandbox::{Ended, Happening, Sandbox, register};
use super::signals;
use super::status::{Event, Reason, Status, missing};
use crate::error::{Error, Result};
use crate::launch::Launched;
use crate::plan::Plan;
use crate::spec::Program;
use crate::stage::wire::ExecFlags;
use mio::{Events, Poll, Token};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

const SIGNALS: Token = Token(0);

/// What is to be run, and how.
#[derive(Debug)]
pub struct Job<'a> {
    /// The sandbox's name.
    pub id: &'a str,
    /// Its plan.
    pub plan: &'a Plan,
    /// The program.
    pub program: &'a Program,
    /// Wall-clock limit.
    pub timeout: Option<Duration>,
    /// Where events go.
    pub status: Status,
}

/// Runs the program to its end; the exit status of saggar.
///
/// # Errors
/// What kept the program from running.
pub fn run(mut job: Job<'_>, launched: Launched) -> Result<u8> {
    let outcome = Loop::new(&job, launched).and_then(|mut it| it.run(&mut job.status));
    match outcome {
        Ok((reason, ended)) => {
            let (exit_code, signal) = match ended {
                Ended::Exit(code) => (Some(code), None),
                Ended::Signal(signal) => (None, Some(signal)),
            };
            job.status.say(&Event::Exited { id: job.id, reason, exit_code, signal, message: None });
            Ok(if reason == Reason::Timeout { 124 } else { ended.exit_status() })
        }
        Err(error) => {
            let message = Some(error.to_string());
            let reason = Reason::Runtime;
            job.status.say(&Event::Exited { id: job.id, reason, exit_code: None, signal: None, message });
            Err(error)
        }
    }
}

struct Loop<'a> {
    id: &'a str,
    plan: &'a Plan,
    poll: Poll,
    signals: nix::sys::signalfd::SignalFd,
    sandbox: Sandbox<'a>,
    main: u32,
    deadline: Option<Instant>,
    pid: i32,
}

impl<'a> Loop<'a> {
    fn new(job: &Job<'a>, launched: Launched) -> Result<Self> {
        let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
        let signals = signals::open()?;
        register(poll.registry(), signals.as_fd(), SIGNALS)?;
        let mut sandbox = Sandbox::new(launched, job.plan, poll.registry())?;
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let streams: [BorrowedFd<'_>; 3] = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let main = sandbox.exec(poll.registry(), job.program, streams, ExecFlags::LAST, false)?;
        let deadline = job.timeout.map(|limit| Instant::now() + limit);
        Ok(Loop { id: job.id, plan: job.plan, poll, signals, sandbox, main, deadline, pid: 0 })
    }

    fn run(&mut self, status: &mut Status) -> Result<(Reason, Ended)> {
        let mut events = Events::with_capacity(16);
        let mut ended = None;
        loop {
            let wait = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if wait == Some(Duration::ZERO) {
                self.sandbox.kill();
                return Ok((Reason::Timeout, Ended::Signal(libc::SIGKILL)));
            }
            match self.poll.poll(&mut events, wait) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(|e| Error::system("wait for events", e))?,
            }
            for event in &events {
                if event.token() == SIGNALS {
                    self.pass_signals();
                    continue;
                }
                let happened = self.sandbox.event(self.poll.registry(), event.token());
                for happening in happened.unwrap_or_default() {
                    match happening {
                        Happening::Waiting(_, pid) => self.pid = pid,
                        Happening::Running(_) => status.say(&Event::Started {
                            id: self.id,
                            pid: self.pid,
                            degraded: missing(&self.plan.degraded),
                        }),
                        Happening::NotRun(_, error) => {
                            self.sandbox.kill();
                            return Err(error);
                        }
                        Happening::Exited(id, how) if id == self.main => ended = Some(how),
                        Happening::Gone(Some(error)) => return Err(error),
                        Happening::Gone(None) => return Ok(outcome(ended)),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Signals reach the program as if it ran bare: one from the terminal goes to its whole process group.
    fn pass_signals(&self) {
        while let Some((signal, from_terminal)) = signals::next(&self.signals) {
            self.sandbox.signal(self.main, signal, from_terminal);
            if signal == Signal::SIGTSTP {
                // The program stops by its own copy; we stop too, so that the shell that waits for us sees it.
                let _ = nix::sys::signal::raise(Signal::SIGSTOP);
            }
        }
    }
}

/// How it ended when pid 1 is gone: by the program's own end, or killed from outside.
fn outcome(ended: Option<Ended>) -> (Reason, Ended) {
    match ended {
        Some(how @ Ended::Exit(_)) => (Reason::Exit, how),
        Some(how @ Ended::Signal(_)) => (Reason::Signal, how),
        None => (Reason::Signal, Ended::Signal(libc::SIGKILL)),
    }
}
