//! The end of an idle agent ([`BridgeConfig::agent_idle`](super::BridgeConfig)): a program that runs no turn keeps its
//! memory for nothing, so it is stopped and started again with its conversation by the next turn.
//!
//! ```text
//!             ┌── output, a turn, a question, a hold ──┐
//!             v                                        │
//!   Ready: in use ──────────────────────────────> Ready: idle ──limit──> Stopping ──> Stopped ──turn──> Starting
//! ```
//! Only a process that [can be replaced](crate::adapter::Adapter::can_replace_process) without loss is idle. A turn
//! that arrives while the process is being stopped waits for its exit, as for a restart with other options.

use super::Bridge;
use super::action::{AgentExitStatus, AgentStop};
use crate::proto::LogLevel;
use std::time::Duration;

/// Whether the agent is idle, and whether it was ended for that.
#[derive(Debug, Default)]
pub(super) struct AgentIdleness {
    /// Idle time after which the agent is ended; `None` is never.
    limit: Option<Duration>,
    /// Since when the agent is idle.
    since: Option<Duration>,
    /// The caller needs the process as it is.
    is_held: bool,
    /// The idle limit has ended the process, or is ending it, and no other was started since.
    has_ended: bool,
}

impl AgentIdleness {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        AgentIdleness { limit, ..AgentIdleness::default() }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        Some(self.since?.saturating_add(self.limit?))
    }

    /// Restarts the count.
    pub(super) fn reset(&mut self) {
        self.since = None;
    }

    /// Records that another process is started.
    pub(super) fn on_start(&mut self) {
        (self.since, self.has_ended) = (None, false);
    }
}

impl Bridge {
    /// Changes the idle time after which the agent is ended; `None` is never. It counts from the same time as before.
    pub fn set_agent_idle_limit(&mut self, limit: Option<Duration>) {
        self.idleness.limit = limit;
    }

    /// Sets whether the caller needs the agent's process as it is, for example because it is frozen. A process that is
    /// held is not idle.
    pub fn hold_agent(&mut self, hold: bool) {
        self.idleness.is_held = hold;
        self.update_idleness();
    }

    /// Whether [`Bridge::hold_agent`] is in force.
    pub fn is_agent_held(&self) -> bool {
        self.idleness.is_held
    }

    /// Whether the idle limit has ended the agent, or is ending it, and no other was started since. Its exit is then no
    /// failure, whatever its status.
    pub fn has_ended_idle_agent(&self) -> bool {
        self.idleness.has_ended
    }

    /// Updates since when the agent is idle.
    pub(super) fn update_idleness(&mut self) {
        if self.is_agent_idle() {
            self.idleness.since.get_or_insert(self.now);
        } else {
            self.idleness.since = None;
        }
    }

    fn is_agent_idle(&self) -> bool {
        let has_work = self.turn.is_some() || self.queue.iter().any(|waiting| waiting.is_turn());
        self.is_agent_ready()
            && !has_work
            && !self.adapter.runs_own_turn()
            && self.questions.iter().next().is_none()
            && !self.agent.has_pending_input()
            && !(self.idleness.is_held || self.is_paused || self.shutdown.is_some())
            && self.adapter.can_replace_process(self.agent.has_conversation, self.agent.session.as_deref())
    }

    /// Ends the agent if it has been idle for too long.
    pub(super) fn tick_idleness(&mut self) {
        self.update_idleness();
        if self.idleness.deadline().is_some_and(|until| until <= self.now) {
            self.idleness.since = None;
            self.idleness.has_ended = true;
            self.adapter.on_idle_end();
            self.stop_agent(AgentStop::CloseInput);
        }
    }

    /// Logs the exit of the agent, once.
    pub(super) fn log_agent_exit(&mut self, exit: &AgentExitStatus) {
        let text = match self.idleness.limit.filter(|_| self.idleness.has_ended) {
            Some(limit) => {
                format!("{exit}: it ran no turn for {limit:?} and was stopped; the next turn starts it again")
            }
            None => exit.to_string(),
        };
        self.log(LogLevel::Info, &text);
    }
}
