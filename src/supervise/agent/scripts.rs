//! The scripts of an agent's folder (KC-28): `install.sh` when a session begins, `startup.sh` at each start, one after
//! the other, before the agent's program and before anybody is told that it is ready.
//!
//! ```text
//! pid 1 serves ──> install.sh ──> startup.sh ──> the agent's program ──> ready
//!                       └──────────────┴── failed, or too long: everything is killed, and the start has failed
//! ```
//! They are commands as those of a server are ([`Execs`](crate::supervise::talk::execs::Execs)): requests to pid 1,
//! born in leaves of their own, with the agent's environment, filter and limits. Nothing of them runs outside.

use super::Loop;
use crate::bridge::core::{Bridge, ExecId, Outcome, Start};
use crate::bridge::proto::LogLevel;
use crate::error::{Code, Error, Result};
use crate::supervise::status::Reason;
use crate::supervise::talk::control::Controlled;
use crate::supervise::talk::log;
use crate::supervise::worker::session;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Numbers of their commands, from this one on: between those of the bridge and those of the control socket.
const COMMANDS: u64 = 1 << 62;
/// How much of the output an error quotes: lines, and characters of each.
const QUOTED: (usize, usize) = (5, 200);
/// How many lines of the output go to the log.
const LOGGED: usize = 2000;

/// A script that is to run.
#[derive(Debug)]
pub struct Script {
    /// Its name in the agent's folder.
    pub name: &'static str,
    /// When it is killed.
    pub limit: Duration,
    /// When it has done its work, it runs no more in this session.
    pub once: bool,
}

/// The scripts of a start.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    waiting: VecDeque<Script>,
    running: Option<Running>,
    /// The agent was asked for meanwhile.
    start: Option<Start>,
    failed: Option<Error>,
    count: u64,
}

#[derive(Debug)]
struct Running {
    script: Script,
    exec: ExecId,
    until: Instant,
    late: bool,
}

impl Scripts {
    pub(super) fn new(scripts: Vec<Script>) -> Self {
        Scripts { waiting: scripts.into(), ..Scripts::default() }
    }

    /// Whether the agent has to wait for them.
    pub(super) fn are_due(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty() || self.failed.is_some()
    }

    /// How long until one has run for too long.
    pub(super) fn patience(&self) -> Option<Duration> {
        let running = self.running.as_ref().filter(|running| !running.late)?;
        Some(running.until.saturating_duration_since(Instant::now()))
    }

    /// Whether a command is one of them.
    pub(super) fn owns(&self, exec: ExecId) -> bool {
        self.running.as_ref().is_some_and(|running| running.exec == exec)
    }

    /// Why there is to be no start.
    pub(super) fn failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// The command that has run for too long, once.
    fn late(&mut self) -> Option<ExecId> {
        let running = self.running.as_mut().filter(|running| !running.late)?;
        (running.until <= Instant::now()).then(|| {
            running.late = true;
            running.exec
        })
    }
}

impl Loop<'_> {
    /// Runs the next script; after the last the agent may start.
    pub(super) fn next_script(&mut self) {
        let Some(script) = self.scripts.waiting.pop_front() else {
            return self.scripts_are_done();
        };
        let exec = ExecId(COMMANDS + self.scripts.count);
        self.scripts.count += 1;
        let begun = self.begin(exec, command(script.name));
        let until = Instant::now() + script.limit;
        self.scripts.running = Some(Running { script, exec, until, late: false });
        if let Err(error) = begun {
            self.script_did_not_run(&error);
        }
    }

    fn scripts_are_done(&mut self) {
        // What they made under protected names is treated as what the agent makes there.
        if self.scripts.count > 0 {
            self.look();
        }
        if let Some(start) = self.scripts.start.take() {
            self.talk.hub.bridge(|bridge| bridge.put_off_start(false));
            if let Err(error) = self.start_agent(start) {
                self.scripts.failed = Some(error);
            }
        }
        self.talk.hub.bridge(Bridge::start_agent);
    }

    /// The agent is asked for before it may run.
    pub(super) fn put_off(&mut self, start: Start) {
        self.scripts.start = Some(start);
        self.talk.hub.bridge(|bridge| bridge.put_off_start(true));
    }

    /// It is not asked for any more; whether it was.
    pub(super) fn forget_start(&mut self) -> bool {
        let was = self.scripts.start.take().is_some();
        if was {
            self.talk.not_started("the scripts of its folder have not run yet".to_owned());
        }
        was
    }

    /// Kills a script that has run for too long, with all that it started.
    pub(super) fn end_late_script(&mut self) {
        if let Some(exec) = self.scripts.late() {
            self.execs.kill(exec);
        }
    }

    /// A script could not even begin.
    pub(super) fn script_did_not_run(&mut self, error: &Error) {
        if let Some(Running { script, .. }) = self.scripts.running.take() {
            self.scripts.failed = Some(failure(script.name, &format!("cannot run: {error}"), &[]));
        }
    }

    /// Remembers that a script has done its work.
    fn mark(&self, script: &Script) -> Result<()> {
        match self.privileged.launcher().filter(|_| script.once) {
            Some(launcher) => session::mark(launcher),
            None => Ok(()),
        }
    }

    /// A script has ended.
    pub(super) fn script_over(&mut self, outcome: &Outcome, reason: Reason) {
        let Some(Running { script, late, .. }) = self.scripts.running.take() else { return };
        let output = String::from_utf8_lossy(&outcome.stdout);
        let lines: Vec<&str> = output.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(LOGGED)) {
            let line = format!("{}: {line}\n", script.name);
            self.talk.hub.bridge(|bridge| bridge.agent_log(line.as_bytes()));
        }
        let why = match (late, reason, outcome.exit_code) {
            (true, ..) => {
                format!("ran for more than {:?} and was killed with all that it had started", script.limit)
            }
            (_, Reason::Oom, _) => "was killed for want of memory".to_owned(),
            (_, _, 0) => {
                match self.mark(&script) {
                    Ok(()) => self.next_script(),
                    Err(error) => self.scripts.failed = Some(error),
                }
                return;
            }
            (_, _, code) => format!("ended with exit status {code}"),
        };
        self.scripts.failed = Some(failure(script.name, &why, &lines));
    }
}

/// What a shell inside does. The folder's files are the agent's in a session that goes on: one that is gone by now is
/// none. Both streams are one, in the order in which they were written to.
fn command(name: &str) -> String {
    let script = format!("\"$ASH_AGENT_DIR/{name}\"");
    format!(
        "exec 2>&1; [ -e {script} ] || exit 0; if [ -x {script} ]; then exec {script}; else exec /bin/sh {script}; fi"
    )
}

fn failure(name: &str, why: &str, output: &[&str]) -> Error {
    let plain = |line: &str| -> String {
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(QUOTED.1).collect()
    };
    let said: Vec<&str> = output.iter().copied().filter(|line| !line.trim().is_empty()).collect();
    let last = said.iter().skip(said.len().saturating_sub(QUOTED.0));
    let last = last.map(|line| plain(line)).collect::<Vec<_>>().join(" | ");
    let last =
        if last.is_empty() { "it wrote nothing".to_owned() } else { format!("its last lines: {last}") };
    let message = format!("{name} of the agent's folder {why}; {last}");
    log(LogLevel::Warn, &message);
    Error::new(Code::Invalid, message).hint(
        "it runs inside, with the agent's limits, network and files: mend it, or permit what it needs; saggar(1), SCRIPTS",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_quotes_the_last_lines_on_one() {
        let long = "x".repeat(1000);
        let output = ["first", "", "two", "three", "\x1b[31mfour", "five", &long];
        let text = failure("install.sh", "ended with exit status 3", &output).to_string();
        assert!(text.starts_with(
            "install.sh of the agent's folder ended with exit status 3; its last lines: two | three |  [31mfour | five | xxx"
        ));
        assert!(text.len() < 400 && !text.contains('\n'), "{text}");
        assert!(failure("startup.sh", "x", &["", " "]).to_string().ends_with("; it wrote nothing"));
    }
}
