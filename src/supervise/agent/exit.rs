//! The exits of the agent, of commands next to it, and of the sandbox, and their reports.

use super::privilege_drop::{LauncherResources, LauncherSide, SessionRemoval};
use super::{AgentJob, AgentLoop, EndRequest};
use crate::bridge::core::{AgentExitStatus, Bridge};
use crate::bridge::proto::LogLevel;
use crate::error::{Error, Result};
use crate::launch::agent::LaunchedSandbox;
use crate::supervise::channel::control::ControlHandler;
use crate::supervise::channel::execs::FinishedExec;
use crate::supervise::channel::log_bridge_message;
use crate::supervise::memory::{self, MemoryGuard};
use crate::supervise::sandbox::ProgramExit;
use crate::supervise::status::{
    ExceededLimit, ExitEvidence, ExitReason, StatusEvent, SupervisionResult, runtime_error,
};
use mio::Events;
use nix::unistd::geteuid;

/// Runs the agent until its bridge is shut down. Returns the exit status of saggar, or the error that kept the agent
/// from running or that the only turn had; and whether a retained overlay has changes.
pub fn run(
    job: AgentJob<'_>,
    resources: LauncherResources<'_>,
    launched: LaunchedSandbox,
) -> (Result<u8>, Option<bool>) {
    let id = job.id;
    let begun = LauncherSide::new(resources, &job, launched.pid);
    let begun = begun.and_then(|behind| Ok((AgentLoop::new(job, launched, behind.supervisor)?, behind)));
    let (mut it, mut behind) = match begun {
        Ok(begun) => begun,
        Err(error) => return (Err(error), None),
    };
    let parted = it.drop_privileges(&mut behind).inspect_err(|_| it.sandbox.kill()).map_err(runtime_error);
    let outcome = parted.and_then(|()| it.run());
    it.network.report_missing_rules(|line| log_bridge_message(LogLevel::Warn, &line));
    it.cancel_snapshot();
    it.record_end(&outcome);
    let seen = std::mem::take(&mut it.scans).scan_everything(
        it.privileged.launcher(),
        &mut behind.workers,
        &mut it.status,
    );
    memory::count_unreported_kills(it.memory.as_ref(), &it.cgroups);
    let reported_kills = it.memory.as_ref().map_or(0, MemoryGuard::reported_kills);
    let usage = it.cgroups.usage();
    let mut event = |reason, limit: Option<ExceededLimit>, exit_code, message| {
        let marks = ExitEvidence { usage: usage.as_ref(), signal: None, disk_is_full: seen.disk_is_full };
        let limit = limit.or_else(|| ExceededLimit::from_evidence(reason, marks));
        it.limit_reports.finish(
            id,
            (limit, usage.as_ref(), reported_kills),
            it.policy_state.policy(),
            &mut it.status,
        );
        it.status.write(&StatusEvent::Exited { id, reason, exit_code, signal: None, limit, message, usage });
    };
    let ended = match outcome {
        Ok((reason, status)) => {
            let memory =
                usage.filter(|_| reason == ExitReason::Oom).map(|usage| usage.describe_oom_kill("the agent"));
            let (limit, message) = it.exceeded_limit.take().unzip();
            event(reason, limit, Some(status), message.or(memory));
            Ok(status)
        }
        Err((reason, error)) => {
            event(reason, None, None, Some(error.to_string()));
            Err(error)
        }
    };
    it.forward_events();
    match (behind.removal, &ended) {
        (SessionRemoval::WithoutResults, Err(_)) if it.scripts.has_run() => it.record_writer.mark_kept(),
        (SessionRemoval::Never, _) => {}
        (_, Err(_)) => it.remove_session(),
        // A turn that was interrupted may be continued.
        (SessionRemoval::WithoutResults, Ok(0)) if it.end_request != Some(EndRequest::Signal) => {
            it.remove_session_without_results();
        }
        _ => {}
    }
    behind.guard.begin_cleanup();
    (ended, seen.has_changes)
}

impl AgentLoop<'_> {
    /// A command has stopped at its exec barrier, and is moved to its leaf: its children are created in the same
    /// cgroup.
    pub(super) fn on_exec_at_barrier(&mut self, id: u32, pid: i32) {
        let sandbox = &self.sandbox;
        if self.execs.on_barrier(id, pid, || sandbox.is_at_barrier(id)) && geteuid().is_root() {
            self.prefer_for_oom(pid);
        }
        // The exit of the command is reported separately.
        let _ = self.sandbox.release(id);
    }

    /// The command has executed its program: an unprivileged user may raise its score only from now on.
    pub(super) fn on_exec_started(&self, id: u32) {
        if let Some(pid) = self.execs.pid(id).filter(|_| !geteuid().is_root()) {
            self.prefer_for_oom(pid);
        }
    }

    fn prefer_for_oom(&self, pid: i32) {
        let name = self
            .cgroups
            .unified
            .as_deref()
            .and_then(|cgroup| cgroup.file_name())
            .and_then(|name| name.to_str());
        if let Some(name) = name {
            self.privileged.prefer_for_oom(pid, name);
        }
    }

    pub(super) fn check_memory(&mut self) {
        let agent = self.channel.agent.as_ref().map_or(-1, |agent| agent.pid);
        let spared = (agent != 0).then_some([self.sandbox.pid(), agent]);
        if let Some(memory) = &mut self.memory {
            memory.check_and_raise(self.id, spared, &self.privileged, &mut self.status);
        }
    }

    /// Handles an event of `pids.events`.
    pub(super) fn check_pids(&mut self) {
        let registry = self.channel.poll.registry();
        self.limit_reports.check_pids(self.id, self.policy_state.policy(), registry, &mut self.status);
    }

    pub(super) fn on_start_failed(&mut self, id: u32, error: Error) -> SupervisionResult<()> {
        if let Some(exec) = self.execs.on_start_failed(id, self.channel.poll.registry()) {
            if self.scripts.contains(exec) {
                self.on_script_start_failed(&error);
                return Ok(());
            }
            self.on_command_exited(exec, Err(&error));
            return Ok(());
        }
        if let Some(agent) = self.channel.agent.take_if(|agent| agent.id == id) {
            agent.close(self.channel.poll.registry());
        }
        if !self.agent_has_run {
            self.sandbox.kill();
            return Err(runtime_error(error));
        }
        self.channel.report_start_failure(error.to_string());
        Ok(())
    }

    pub(super) fn on_program_exited(&mut self, id: u32, how: ProgramExit) {
        let over = self.execs.on_exited(id, how, self.channel.poll.registry(), &mut self.channel.chunk);
        if let Some(FinishedExec { exec, outcome, pid, result: mut end }) = over {
            if self.scripts.contains(exec) {
                return self.on_script_exited(&outcome, end.reason);
            }
            let by_control = self.control.as_ref().is_some_and(|control| control.exec_timed_out(exec));
            let late = by_control || self.channel.hub.core().exec_timed_out(exec);
            if late && end.reason != ExitReason::Oom {
                (end.reason, end.limit) = (ExitReason::Timeout, Some(ExceededLimit::Timeout));
            }
            self.status.write(&StatusEvent::Exec { id: self.id, pid, end });
            return self.on_command_exited(exec, Ok(&outcome));
        }
        if let Some(pid) = self.channel.agent.as_ref().filter(|agent| agent.id == id).map(|agent| agent.pid) {
            let exit = match how {
                ProgramExit::Exit(code) => AgentExitStatus::Code(code.into()),
                ProgramExit::Signal(libc::SIGKILL) if self.was_oom_killed(pid) => {
                    AgentExitStatus::OutOfMemory
                }
                ProgramExit::Signal(signal) => AgentExitStatus::Signal(signal),
            };
            if let Some(agent) = &mut self.channel.agent {
                agent.on_exit(exit);
            }
            self.read_agent_log();
            self.read_agent();
        }
    }

    /// Whether the agent, which was killed, was killed by the OOM killer.
    fn was_oom_killed(&mut self, pid: i32) -> bool {
        match &mut self.memory {
            Some(memory) => memory.was_oom_killed(pid, self.id, &mut self.status),
            None => self.cgroups.oom_kills() > 0,
        }
    }

    /// Delivers the last data of the programs to their hosts, for as long as [`SandboxNetwork::is_drained`] allows.
    ///
    /// [`SandboxNetwork::is_drained`]: crate::supervise::network::SandboxNetwork::is_drained
    fn drain_network(&mut self) {
        let mut events = Events::with_capacity(64);
        loop {
            self.service_network();
            if self.network.is_drained() {
                return;
            }
            let _ = self.channel.poll.poll(&mut events, self.network.poll_timeout());
            for event in &events {
                if !self.network.on_event(event) && self.channel.hub.owns_token(event.token()) {
                    self.channel.hub.on_event(event);
                }
            }
        }
    }

    /// The bridge is shut down: sends its last messages and ends the sandbox.
    pub(super) fn finish(&mut self) -> SupervisionResult<(ExitReason, u8)> {
        self.channel.hub.stop_listening();
        self.sandbox.kill();
        self.drain_network();
        self.channel.flush_and_close(|_| false);
        self.channel.hub.with_bridge(Bridge::close_spool);
        let Some(why) = self.failed_turn.take() else { return Ok((ExitReason::Exit, 0)) };
        // The only turn failed: the exit status is the agent's own, if the turn failed because the agent exited.
        let status = match self.last_exit {
            Some(AgentExitStatus::Code(code)) if code != 0 => u8::try_from(code).unwrap_or(1),
            Some(AgentExitStatus::Signal(signal)) => ProgramExit::Signal(signal).exit_status(),
            Some(AgentExitStatus::OutOfMemory) => ProgramExit::Signal(libc::SIGKILL).exit_status(),
            _ => 1,
        };
        log_bridge_message(LogLevel::Warn, &why);
        let reason = if self.last_exit == Some(AgentExitStatus::OutOfMemory) {
            ExitReason::Oom
        } else {
            ExitReason::Exit
        };
        Ok((reason, status))
    }
}
