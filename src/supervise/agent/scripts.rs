//! The scripts of an agent's folder (KC-28): `install.sh` when a session begins, and `startup.sh` at each start. They
//! run one after the other, before the agent's program and before any client is notified that the session is ready.
//!
//! ```text
//! pid 1 is ready ──> install.sh ──> startup.sh ──> the agent's program ──> ready
//!                         └──────────────┴── failed or timed out: every process is killed, and the start fails
//! ```
//! Like commands of a server ([`ExecTable`](crate::supervise::channel::execs::ExecTable)) they are requests to pid 1
//! and run in cgroup leaves of their own, with the agent's environment, seccomp filter and limits. No part of them runs
//! outside the sandbox.

use super::AgentLoop;
use crate::bridge::core::{AgentStart, Bridge, ExecId, ExecOutcome, LastLines};
use crate::bridge::proto::LogLevel;
use crate::error::{Code, Error, Result};
use crate::supervise::channel::control::ControlHandler;
use crate::supervise::status::ExitReason;
use crate::supervise::worker::session;
use crate::sys::clock;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// First id of their commands: above those of the bridge and below those of the control socket.
const FIRST_EXEC_ID: u64 = 1 << 62;
/// Most lines of the output that are logged.
const MAX_LOGGED_LINES: usize = 2000;

/// A script to run.
#[derive(Debug)]
pub struct Script {
    /// Its name in the agent's folder.
    pub name: &'static str,
    /// Run time after which it is killed.
    pub timeout: Duration,
    /// After a success the script is not run again in this session.
    pub once_per_session: bool,
}

/// The scripts of a start.
#[derive(Debug, Default)]
pub(super) struct ScriptQueue {
    pending: VecDeque<Script>,
    running: Option<RunningScript>,
    /// The bridge's request to start the agent, deferred until the scripts have ended.
    deferred_start: Option<AgentStart>,
    failed: Option<Error>,
    count: u64,
}

#[derive(Debug)]
struct RunningScript {
    script: Script,
    exec: ExecId,
    deadline: Instant,
    timed_out: bool,
}

impl ScriptQueue {
    pub(super) fn new(scripts: Vec<Script>) -> Self {
        ScriptQueue { pending: scripts.into(), ..ScriptQueue::default() }
    }

    /// Whether the agent has to wait for scripts.
    pub(super) fn is_pending(&self) -> bool {
        self.running.is_some() || !self.pending.is_empty() || self.failed.is_some()
    }

    /// Time until the running script times out.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let running = self.running.as_ref().filter(|running| !running.timed_out)?;
        Some(running.deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether a script has started.
    pub(super) fn has_run(&self) -> bool {
        self.count > 0
    }

    /// Whether a command is one of the scripts.
    pub(super) fn contains(&self, exec: ExecId) -> bool {
        self.running.as_ref().is_some_and(|running| running.exec == exec)
    }

    /// The error that makes the start fail.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// The script that has timed out; returned once.
    fn take_timed_out(&mut self) -> Option<ExecId> {
        let running = self.running.as_mut().filter(|running| !running.timed_out)?;
        (running.deadline <= Instant::now()).then(|| {
            running.timed_out = true;
            running.exec
        })
    }
}

impl AgentLoop<'_> {
    /// Runs the next script; after the last one starts the agent.
    pub(super) fn run_next_script(&mut self) {
        let Some(script) = self.scripts.pending.pop_front() else {
            return self.on_scripts_done();
        };
        let exec = ExecId(FIRST_EXEC_ID + self.scripts.count);
        self.scripts.count += 1;
        let begun = self.start_command(exec, script_command(script.name));
        let until = Instant::now() + script.timeout;
        self.scripts.running = Some(RunningScript { script, exec, deadline: until, timed_out: false });
        if let Err(error) = begun {
            self.on_script_start_failed(&error);
        }
    }

    fn on_scripts_done(&mut self) {
        // Files that scripts created under protected names are treated like those of the agent.
        if self.scripts.count > 0 {
            self.scan_quickly();
        }
        if let Some(start) = self.scripts.deferred_start.take() {
            self.channel.hub.with_bridge(|bridge| bridge.extend_start_timeout(false));
            if let Err(error) = self.start_agent(start) {
                self.scripts.failed = Some(error);
            }
        }
        self.channel.hub.with_bridge(Bridge::start_agent);
    }

    /// Defers a request to start the agent until the scripts have ended.
    pub(super) fn defer_start(&mut self, start: AgentStart) {
        self.scripts.deferred_start = Some(start);
        self.channel.hub.with_bridge(|bridge| bridge.extend_start_timeout(true));
    }

    /// Cancels a deferred start; true if there was one.
    pub(super) fn cancel_start(&mut self) -> bool {
        let was = self.scripts.deferred_start.take().is_some();
        if was {
            self.channel.report_start_failure("the scripts of its folder have not run yet".to_owned());
        }
        was
    }

    /// Kills a script that has timed out, with all of its descendants.
    pub(super) fn kill_timed_out_script(&mut self) {
        if let Some(exec) = self.scripts.take_timed_out() {
            self.execs.kill(exec);
        }
    }

    /// A script could not be started.
    pub(super) fn on_script_start_failed(&mut self, error: &Error) {
        if let Some(RunningScript { script, .. }) = self.scripts.running.take() {
            self.fail_script(script.name, &format!("cannot run: {error}"), &LastLines::default());
        }
    }

    /// Records that a script has succeeded.
    fn mark_done(&self, script: &Script) -> Result<()> {
        match self.privileged.launcher().filter(|_| script.once_per_session) {
            Some(launcher) => session::mark_installed(launcher),
            None => Ok(()),
        }
    }

    /// A script has exited.
    pub(super) fn on_script_exited(&mut self, outcome: &ExecOutcome, reason: ExitReason) {
        let Some(RunningScript { script, timed_out: late, .. }) = self.scripts.running.take() else { return };
        let output = String::from_utf8_lossy(&outcome.stdout);
        let lines: Vec<&str> = output.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(MAX_LOGGED_LINES)) {
            let line = format!("{}: {line}\n", script.name);
            self.channel.hub.with_bridge(|bridge| bridge.agent_stderr(line.as_bytes()));
        }
        let why = match (late, reason, outcome.exit_code) {
            (true, ..) => {
                format!("ran for more than {:?} and was killed with all that it had started", script.timeout)
            }
            (_, ExitReason::Oom, _) => "was killed for want of memory".to_owned(),
            (_, _, 0) => {
                match self.mark_done(&script) {
                    Ok(()) => self.run_next_script(),
                    Err(error) => self.scripts.failed = Some(error),
                }
                return;
            }
            (_, _, code) => format!("ended with exit status {code}"),
        };
        let mut last = LastLines::default();
        lines.iter().for_each(|line| last.push(line));
        self.fail_script(script.name, &why, &last);
    }

    /// The start fails; the log of the session says so too.
    fn fail_script(&mut self, name: &str, why: &str, last: &LastLines) {
        let message = format!("{name} of the agent's folder {why}; {last}");
        if let Some(control) = &mut self.control {
            control.append_log(clock::epoch_ms(), LogLevel::Warn, &message);
        }
        self.scripts.failed = Some(Error::new(Code::Invalid, message).hint(
            "it runs inside, with the agent's limits, network and files: mend it, or permit what it needs; saggar(1), SCRIPTS",
        ));
    }
}

/// The shell command that runs a script. In a resumed session the agent may have changed its folder: a script that no
/// longer exists is skipped. Both streams are one, in the order of the writes.
fn script_command(name: &str) -> String {
    let script = format!("\"$ASH_AGENT_DIR/{name}\"");
    format!(
        "exec 2>&1; [ -e {script} ] || exit 0; if [ -x {script} ]; then exec {script}; else exec /bin/sh {script}; fi"
    )
}
