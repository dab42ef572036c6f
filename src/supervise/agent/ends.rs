//! Ends: of the agent, of commands beside it, and of the whole; what of them is told to whom.

use super::part::{Behind, Entrusted};
use super::{Job, Loop};
use crate::bridge::core::{Bridge, Exit};
use crate::bridge::proto::LogLevel;
use crate::cgroup::agent::usage::Usage;
use crate::error::{Error, Result};
use crate::launch::Launched;
use crate::supervise::memory;
use crate::supervise::sandbox::Ended;
use crate::supervise::status::{Event, Marks, Met, Outcome, Reason, runtime};
use crate::supervise::talk::control::Controlled;
use crate::supervise::talk::execs::Over;
use crate::supervise::talk::log;
use mio::Events;
use nix::unistd::geteuid;

/// Runs the agent until its bridge is shut down; the exit status of saggar, or what kept the agent from running, or the
/// error of the only turn; and whether there are changes in an overlay that is kept.
pub fn run(job: Job<'_>, entrusted: Entrusted<'_>, launched: Launched) -> (Result<u8>, Option<bool>) {
    let id = job.id;
    let begun = Behind::new(entrusted, &job, launched.pid);
    let begun = begun.and_then(|behind| Ok((Loop::new(job, launched, behind.supervisor)?, behind)));
    let (mut it, mut behind) = match begun {
        Ok(begun) => begun,
        Err(error) => return (Err(error), None),
    };
    let parted = it.part(&mut behind).inspect_err(|_| it.sandbox.kill()).map_err(runtime);
    let outcome = parted.and_then(|()| it.run());
    it.give_up_snapshot();
    it.keep_end(&outcome);
    let seen = std::mem::take(&mut it.looks).everywhere(
        it.privileged.launcher(),
        &mut behind.workers,
        &mut it.status,
    );
    memory::count_rest(it.memory.as_ref(), it.cgroup.as_deref());
    let usage = it.cgroup.as_deref().filter(|_| it.status.is_read()).and_then(Usage::of);
    let mut event = |reason, limit: Option<Met>, exit_code, message| {
        let marks = Marks { usage: usage.as_ref(), signal: None, disk: seen.disk_is_full };
        let limit = limit.or_else(|| Met::of(reason, marks));
        it.status.say(&Event::Exited { id, reason, exit_code, signal: None, limit, message, usage });
    };
    let ended = match outcome {
        Ok((reason, status)) => {
            let memory =
                usage.filter(|_| reason == Reason::Oom).map(|usage| usage.out_of_memory("the agent"));
            let (limit, message) = it.over.take().unzip();
            event(reason, limit, Some(status), message.or(memory));
            Ok(status)
        }
        Err((reason, error)) => {
            event(reason, None, None, Some(error.to_string()));
            Err(error)
        }
    };
    it.tell_events();
    if behind.forget && ended.is_err() {
        it.forget();
    }
    behind.guard.end();
    (ended, seen.has_changes)
}

impl Loop<'_> {
    /// A command stops at its gate: what it starts is to be born where it is.
    pub(super) fn exec_waits(&mut self, id: u32, pid: i32) {
        let sandbox = &self.sandbox;
        if self.execs.waiting(id, pid, || sandbox.is_at_gate(id)) && geteuid().is_root() {
            self.kill_first(pid);
        }
        // One that is gone says so itself.
        let _ = self.sandbox.let_go(id);
    }

    /// A command is its program: only now an ordinary user may raise its score.
    pub(super) fn exec_runs(&self, id: u32) {
        if let Some(pid) = self.execs.pid(id).filter(|_| !geteuid().is_root()) {
            self.kill_first(pid);
        }
    }

    fn kill_first(&self, pid: i32) {
        let name =
            self.cgroup.as_deref().and_then(|cgroup| cgroup.file_name()).and_then(|name| name.to_str());
        if let Some(name) = name {
            self.privileged.kill_first(pid, name);
        }
    }

    pub(super) fn look_at_memory(&mut self) {
        let agent = self.talk.agent.as_ref().map_or(-1, |agent| agent.pid);
        let spared = (agent != 0).then_some([self.sandbox.pid(), agent]);
        if let Some(memory) = &mut self.memory {
            memory.look(self.id, spared, &self.privileged, &mut self.status);
        }
    }

    pub(super) fn did_not_run(&mut self, id: u32, error: Error) -> Outcome<()> {
        if let Some(exec) = self.execs.not_run(id, self.talk.poll.registry()) {
            if self.scripts.owns(exec) {
                self.script_did_not_run(&error);
                return Ok(());
            }
            self.command_over(exec, Err(&error));
            return Ok(());
        }
        if let Some(agent) = self.talk.agent.take_if(|agent| agent.id == id) {
            agent.close(self.talk.poll.registry());
        }
        if !self.has_run {
            self.sandbox.kill();
            return Err(runtime(error));
        }
        self.talk.not_started(error.to_string());
        Ok(())
    }

    pub(super) fn exited(&mut self, id: u32, how: Ended) {
        let over = self.execs.exited(id, how, self.talk.poll.registry(), &mut self.talk.chunk);
        if let Some(Over { exec, outcome, pid, mut end }) = over {
            if self.scripts.owns(exec) {
                return self.script_over(&outcome, end.reason);
            }
            let by_control = self.control.as_ref().is_some_and(|control| control.exec_timed_out(exec));
            let late = by_control || self.talk.hub.state().exec_timed_out(exec);
            if late && end.reason != Reason::Oom {
                (end.reason, end.limit) = (Reason::Timeout, Some(Met::Timeout));
            }
            self.status.say(&Event::Exec { id: self.id, pid, end });
            return self.command_over(exec, Ok(&outcome));
        }
        if let Some(pid) = self.talk.agent.as_ref().filter(|agent| agent.id == id).map(|agent| agent.pid) {
            let exit = match how {
                Ended::Exit(code) => Exit::Code(code.into()),
                Ended::Signal(libc::SIGKILL) if self.ran_out_of_memory(pid) => Exit::OutOfMemory,
                Ended::Signal(signal) => Exit::Signal(signal),
            };
            if let Some(agent) = &mut self.talk.agent {
                agent.ended(exit);
            }
            self.read_log();
            self.read_agent();
        }
    }

    /// Whether the agent, which was killed, was killed for want of memory.
    fn ran_out_of_memory(&mut self, pid: i32) -> bool {
        let memory = self.memory.as_mut();
        memory.is_some_and(|memory| memory.has_killed(pid, self.id, &mut self.status))
    }

    /// What the programs sent last goes where they sent it, for as long as [`Network::is_settled`] gives it.
    ///
    /// [`Network::is_settled`]: crate::supervise::network::Network::is_settled
    fn send_last(&mut self) {
        let mut events = Events::with_capacity(64);
        loop {
            self.tend_network();
            if self.network.is_settled() {
                return;
            }
            let _ = self.talk.poll.poll(&mut events, self.network.patience());
            for event in &events {
                if !self.network.ready(event) && self.talk.hub.owns(event.token()) {
                    self.talk.hub.ready(event);
                }
            }
        }
    }

    /// The bridge is over: its last words go out, and the sandbox ends.
    pub(super) fn finish(&mut self) -> Outcome<(Reason, u8)> {
        self.talk.hub.stop_listening();
        self.sandbox.kill();
        self.send_last();
        self.talk.last_words(|_| false);
        self.talk.hub.bridge(Bridge::close_spool);
        let Some(why) = self.failed.take() else { return Ok((Reason::Exit, 0)) };
        // The only turn failed: with the agent's own status, when it died of it.
        let status = match self.last_exit {
            Some(Exit::Code(code)) if code != 0 => u8::try_from(code).unwrap_or(1),
            Some(Exit::Signal(signal)) => Ended::Signal(signal).exit_status(),
            Some(Exit::OutOfMemory) => Ended::Signal(libc::SIGKILL).exit_status(),
            _ => 1,
        };
        log(LogLevel::Warn, &why);
        let reason = if self.last_exit == Some(Exit::OutOfMemory) { Reason::Oom } else { Reason::Exit };
        Ok((reason, status))
    }
}
