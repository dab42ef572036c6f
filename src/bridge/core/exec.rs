//! `exec`: shell commands beside the agent. They never wait for a turn of another connection (BP-25).

use super::action::{Action, ConnId, ExecId, Outcome};
use super::conn::Reply;
use super::{Bridge, scrub};
use crate::bridge::proto::{Event, Exec};
use std::time::Duration;

/// The exit code of a command that ran into its timeout (BP-22), as timeout(1) has it.
const TIMED_OUT: i32 = 124;

/// An `exec` that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// Taken when the terminal event is out; the run itself lasts until it is reported.
    reply: Option<Reply>,
    until: Option<Duration>,
    timed_out: bool,
}

impl Bridge {
    pub(super) fn begin_exec(&mut self, reply: Reply, exec: Exec) {
        let id = ExecId(self.next_exec);
        self.next_exec += 1;
        let until = Some(self.now.saturating_add(exec.timeout));
        self.execs.insert(id, Running { reply: Some(reply), until, timed_out: false });
        self.actions.push_back(Action::RunExec { exec: id, command: exec.command, timeout: exec.timeout });
    }

    /// The command and all it started are gone: its result and its `done` leave as one (BP-21).
    pub fn exec_finished(&mut self, exec: ExecId, outcome: &Outcome) {
        let Some(running) = self.execs.remove(&exec) else { return };
        if let Some(reply) = running.reply {
            let exit_code = if running.timed_out { TIMED_OUT } else { outcome.exit_code };
            let stdout = &String::from_utf8_lossy(&outcome.stdout);
            let stderr = &String::from_utf8_lossy(&outcome.stderr);
            let (id, truncated) = (reply.id.clone(), outcome.truncated);
            let mut bytes = Event::ExecResult { exit_code, stdout, stderr, truncated }.encode(id.as_ref());
            Event::Done { session: "" }.append(id.as_ref(), &mut bytes);
            if bytes.len() > self.config.line_limit {
                self.fail(reply, "exec: the output is longer than a line may be");
            } else {
                self.close_command(reply, bytes, None);
            }
        }
        self.settle();
    }

    /// Whether a command that runs was killed at its timeout.
    pub fn exec_timed_out(&self, exec: ExecId) -> bool {
        self.execs.get(&exec).is_some_and(|running| running.timed_out)
    }

    /// The command could not be run at all.
    pub fn exec_failed(&mut self, exec: ExecId, why: &str) {
        let reply = self.execs.remove(&exec).and_then(|running| running.reply);
        if let Some(reply) = reply {
            self.fail(reply, &format!("exec: {}", scrub(why)));
        }
        self.settle();
    }

    /// Kills what a connection that is gone had running: nobody waits for it.
    pub(super) fn kill_execs_of(&mut self, conn: ConnId) {
        self.kill_execs(|reply| reply.conn == conn);
        for running in self.execs.values_mut() {
            running.reply.take_if(|reply| reply.conn == conn);
        }
    }

    /// Kills what runs for these replies.
    pub(super) fn kill_execs(&mut self, of: impl Fn(&Reply) -> bool) {
        for (exec, running) in &mut self.execs {
            if running.reply.as_ref().is_some_and(&of) {
                running.until = None;
                self.actions.push_back(Action::KillExec { exec: *exec });
            }
        }
    }

    /// Ends every command that still runs, without waiting for it.
    pub(super) fn fail_execs(&mut self, text: &str) {
        let replies: Vec<Reply> =
            self.execs.values_mut().filter_map(|running| running.reply.take()).collect();
        for reply in replies {
            self.fail(reply, text);
        }
    }

    /// Whether a command of the connection runs that those behind it wait for.
    pub(super) fn runs_ordered_exec(&self, conn: ConnId) -> bool {
        let replies = self.execs.values().filter_map(|running| running.reply.as_ref());
        replies.into_iter().any(|reply| reply.conn == conn && reply.ordered())
    }

    pub(super) fn exec_deadline(&self) -> Option<Duration> {
        self.execs.values().filter_map(|running| running.until).min()
    }

    /// Kills what ran into its timeout.
    pub(super) fn tick_execs(&mut self) {
        for (exec, running) in &mut self.execs {
            if running.until.take_if(|until| *until <= self.now).is_some() {
                running.timed_out = true;
                self.actions.push_back(Action::KillExec { exec: *exec });
            }
        }
    }
}
