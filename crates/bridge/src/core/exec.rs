//! `exec`: shell commands next to the agent. They never wait for a turn of another connection (BP-25).

use super::action::{BridgeAction, ConnId, ExecId, ExecOutcome};
use super::connection::CommandReply;
use super::{Bridge, redact_paths};
use crate::proto::{BridgeEvent, ExecCommand};
use std::time::Duration;

/// The exit code of a command that was killed at its timeout (BP-22), as in timeout(1).
const TIMED_OUT_EXIT_CODE: i32 = 124;
/// The exit code of a command that could not be run, as in a shell.
const NOT_RUN_EXIT_CODE: i32 = 126;

/// A running `exec`.
#[derive(Debug)]
pub(super) struct RunningExec {
    /// Taken when the terminal event is sent. The run itself lasts until its end is reported.
    reply: Option<CommandReply>,
    deadline: Option<Duration>,
    timed_out: bool,
}

impl Bridge {
    pub(super) fn start_exec(&mut self, reply: CommandReply, exec: ExecCommand) {
        let id = ExecId(self.next_exec_id);
        self.next_exec_id += 1;
        let until = Some(self.now.saturating_add(exec.timeout));
        self.execs.insert(id, RunningExec { reply: Some(reply), deadline: until, timed_out: false });
        self.actions.push_back(BridgeAction::RunExec { exec: id, command: exec.command });
    }

    /// Reports that the command and all its descendants have exited. Result and `done` are sent together (BP-21).
    pub fn exec_finished(&mut self, exec: ExecId, outcome: &ExecOutcome) {
        let Some(running) = self.execs.remove(&exec) else { return };
        if let Some(reply) = running.reply {
            let exit_code = if running.timed_out { TIMED_OUT_EXIT_CODE } else { outcome.exit_code };
            let stdout = &String::from_utf8_lossy(&outcome.stdout);
            let stderr = &String::from_utf8_lossy(&outcome.stderr);
            let truncated = outcome.truncated;
            let result =
                BridgeEvent::ExecResult { exit_code, stdout, stderr, truncated }.encode(reply.id.as_ref());
            self.finish_exec(reply, result);
        }
        self.process_pending();
    }

    /// Sends the result of a command and its `done`, which waits for that of the turn if the server could mistake it for
    /// that.
    fn finish_exec(&mut self, reply: CommandReply, result: Vec<u8>) {
        let done = BridgeEvent::Done { session: "" }.encode(reply.id.as_ref());
        if result.len() + done.len() > self.config.line_limit {
            return self.fail_exec(reply, "exec: the output is longer than a line may be");
        }
        let both = [result.as_slice(), done.as_slice()].concat();
        if self.is_mistakable(&reply) {
            self.held_exec_ends.entry(reply.conn).or_default().extend(done);
            self.finish_command(reply, both, Some(result));
        } else {
            self.finish_command(reply, both, None);
        }
    }

    /// Ends a command that did not run. An `error` that the server could mistake for that of its turn becomes a result.
    pub(super) fn fail_exec(&mut self, reply: CommandReply, why: &str) {
        if !self.is_mistakable(&reply) {
            return self.fail_command(reply, why);
        }
        let result = BridgeEvent::ExecResult {
            exit_code: NOT_RUN_EXIT_CODE,
            stdout: "",
            stderr: why,
            truncated: false,
        };
        self.finish_exec(reply, result.encode(None));
    }

    /// Whether the server could take the terminal event of this `exec` for that of a turn: neither has an id
    /// ([`ExecOrder::Immediate`](super::ExecOrder)).
    fn is_mistakable(&self, reply: &CommandReply) -> bool {
        reply.id.is_none()
            && !reply.is_ordered()
            && !self.is_follower(reply.conn)
            && self.has_ordered_turn(reply.conn)
    }

    /// Whether a running command was killed at its timeout.
    pub fn exec_timed_out(&self, exec: ExecId) -> bool {
        self.execs.get(&exec).is_some_and(|running| running.timed_out)
    }

    /// Reports that the command could not be started.
    pub fn exec_failed(&mut self, exec: ExecId, why: &str) {
        let reply = self.execs.remove(&exec).and_then(|running| running.reply);
        if let Some(reply) = reply {
            self.fail_exec(reply, &format!("exec: {}", redact_paths(why)));
        }
        self.process_pending();
    }

    /// Kills the commands of a closed connection.
    pub(super) fn kill_execs_of(&mut self, conn: ConnId) {
        self.kill_matching_execs(|reply| reply.conn == conn);
        for running in self.execs.values_mut() {
            running.reply.take_if(|reply| reply.conn == conn);
        }
    }

    /// Kills the running commands whose reply matches.
    pub(super) fn kill_matching_execs(&mut self, matches: impl Fn(&CommandReply) -> bool) {
        for (exec, running) in &mut self.execs {
            if running.reply.as_ref().is_some_and(&matches) {
                running.deadline = None;
                self.actions.push_back(BridgeAction::KillExec { exec: *exec });
            }
        }
    }

    /// Ends every running command with an error, without waiting for it.
    pub(super) fn fail_execs(&mut self, text: &str) {
        let replies: Vec<CommandReply> =
            self.execs.values_mut().filter_map(|running| running.reply.take()).collect();
        for reply in replies {
            self.fail_command(reply, text);
        }
    }

    /// Whether the connection runs an `exec` without an id, for which its later commands wait.
    pub(super) fn runs_ordered_exec(&self, conn: ConnId) -> bool {
        let replies = self.execs.values().filter_map(|running| running.reply.as_ref());
        replies.into_iter().any(|reply| reply.conn == conn && reply.is_ordered())
    }

    pub(super) fn exec_deadline(&self) -> Option<Duration> {
        self.execs.values().filter_map(|running| running.deadline).min()
    }

    /// Kills commands whose timeout has expired.
    pub(super) fn tick_execs(&mut self) {
        for (exec, running) in &mut self.execs {
            if running.deadline.take_if(|until| *until <= self.now).is_some() {
                running.timed_out = true;
                self.actions.push_back(BridgeAction::KillExec { exec: *exec });
            }
        }
    }
}
