//! The shutdown of the bridge: `shutdown`, or SIGTERM (BP-10, BP-35). It takes at most four seconds, whatever the
//! agent does.
//!
//! 1. Queued commands are rejected and running ones are aborted, for at most [`TURN_END_TIMEOUT`].
//! 2. The agent is stopped, with escalating methods, for at most [`AGENT_STOP_TIMEOUT`].
//! 3. The acknowledgements are sent, then [`BridgeAction::Shutdown`].

use super::Bridge;
use super::action::{AgentStop, BridgeAction};
use super::agent::AgentLifecycle;
use super::connection::CommandReply;
use crate::proto::permission::DecidedBy;
use std::time::Duration;

const TURN_END_TIMEOUT: Duration = Duration::from_millis(2000);
const AGENT_STOP_TIMEOUT: Duration = Duration::from_millis(2000);
const SHUTDOWN_REASON: &str = "the bridge is shutting down";

/// The progress of the shutdown.
#[derive(Debug)]
pub(super) struct ShutdownState {
    stage: ShutdownStage,
    /// The `shutdown` commands with an id, which get a `done`.
    replies: Vec<CommandReply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShutdownStage {
    EndingTurns { deadline: Duration },
    StoppingAgent { deadline: Duration },
    Complete,
}

impl Bridge {
    /// Begins a shutdown without a command: SIGTERM to the supervisor (BP-35).
    pub fn begin_termination(&mut self) {
        self.begin_shutdown(None);
        self.process_pending();
    }

    pub(super) fn begin_shutdown(&mut self, reply: Option<CommandReply>) {
        if let Some(reply) = &reply {
            self.count_open_command(reply);
        }
        if let Some(ending) = &mut self.shutdown {
            return ending.replies.extend(reply);
        }
        let stage = ShutdownStage::EndingTurns { deadline: self.now + TURN_END_TIMEOUT };
        self.shutdown = Some(ShutdownState { stage, replies: reply.into_iter().collect() });
        self.reject_queued(SHUTDOWN_REASON);
        self.kill_matching_execs(|_| true);
        self.abort_turn();
        self.deny_all_questions(DecidedBy::Shutdown, SHUTDOWN_REASON);
    }

    pub(super) fn shutdown_deadline(&self) -> Option<Duration> {
        match self.shutdown.as_ref()?.stage {
            ShutdownStage::EndingTurns { deadline: until }
            | ShutdownStage::StoppingAgent { deadline: until } => Some(until),
            ShutdownStage::Complete => None,
        }
    }

    /// Advances to the next stage if the current one is complete or has timed out.
    pub(super) fn advance_shutdown(&mut self) {
        let Some(ending) = &mut self.shutdown else { return };
        if let ShutdownStage::EndingTurns { deadline: until } = ending.stage {
            let quiet = self.turn.is_none() && self.execs.is_empty();
            if !quiet && self.now < until {
                return;
            }
            ending.stage = ShutdownStage::StoppingAgent { deadline: self.now + AGENT_STOP_TIMEOUT };
            let outcome = match &self.turn {
                Some(turn) if turn.is_aborting() => Ok(()),
                _ => Err(SHUTDOWN_REASON.to_owned()),
            };
            self.end_turn(outcome);
            self.send_cancellations();
            self.fail_execs(SHUTDOWN_REASON);
            self.stop_agent(AgentStop::CloseInput);
        }
        let Some(ending) = &mut self.shutdown else { return };
        if let ShutdownStage::StoppingAgent { deadline: until } = ending.stage {
            if self.agent.lifecycle != AgentLifecycle::Stopped && self.now < until {
                return;
            }
            ending.stage = ShutdownStage::Complete;
            let session = self.session.clone().unwrap_or_default();
            for reply in std::mem::take(&mut ending.replies) {
                self.complete_command(reply, &session);
            }
            self.fail_replays(SHUTDOWN_REASON);
            self.send_closing_results();
            self.actions.push_back(BridgeAction::Shutdown);
        }
    }
}
