//! The turn: the one command that occupies the agent.
//!
//! ```text
//!            ┌────────── agent not ready ─────────┐
//!  queued ──┴─> Starting ──> Preparing ─> Running ┴──> over (one terminal event)
//!                    │            │           │            ▲
//!                    └── abort ───┴─> Aborting┴────────────┤
//!                                            Draining ─────┘  (the terminal event was sent before)
//! ```
//! Sending the terminal event takes the turn's [`CommandReply`], so it cannot be sent twice. A turn without a reply
//! (its server disconnected, or its error was sent) occupies the agent until the agent has finished it, so that none
//! of its output reaches a later command (BP-26).

use super::action::{AgentStop, BridgeAction};
use super::agent::AgentLifecycle;
use super::connection::CommandReply;
use super::{Bridge, ConnId};
use crate::adapter::{AbortAction, TurnContext};
use crate::proto::permission::DecidedBy;
use crate::proto::{QueryCommand, ResumeCommand};
use std::time::Duration;

/// Time limit for the agent to accept a turn's settings, or to report that it is ready.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);
/// An agent that runs this long after a `resume` counts as ready, even without a response.
const RESUME_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the agent to end an aborted turn before it gets SIGINT, and then before it is killed.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);
const ABORT_SIGNAL_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an agent that sent `error` may still add the `done` of the same turn.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum size, in bytes, of a query that is retained after it was sent, in case the agent exits without reading it.
const MAX_RETAINED_QUERY: usize = 1 << 20;

/// The command that occupies the agent.
#[derive(Debug)]
pub(super) struct Turn {
    reply: Option<CommandReply>,
    work: TurnWork,
    stage: TurnStage,
    /// Bytes reserved in the budget for the query.
    reserved_bytes: usize,
    /// Whether the agent had the conversation before it received this turn.
    had_conversation: bool,
    /// The turn was sent a second time, to an agent that was restarted for it.
    was_restarted: bool,
}

#[derive(Debug)]
enum TurnWork {
    /// A query that is small enough is retained until the agent's first output.
    Query {
        query: Option<Box<QueryCommand>>,
        flags: Vec<String>,
        partials: bool,
    },
    Resume {
        line: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnStage {
    /// The agent is not ready yet, or not with the start options of the turn.
    Starting,
    /// The agent has received a request that it must answer first.
    Preparing { deadline: Duration },
    /// The agent runs the turn.
    Running,
    /// The agent has received an abort.
    Aborting { deadline: Duration, signalled: bool },
    /// The terminal event was sent; the agent may still send one of its own.
    Draining { deadline: Duration },
}

impl Turn {
    fn new(reply: CommandReply, work: TurnWork, charged: usize) -> Self {
        Turn {
            reply: Some(reply),
            work,
            stage: TurnStage::Starting,
            reserved_bytes: charged,
            had_conversation: false,
            was_restarted: false,
        }
    }

    /// Whether the turn's events go to this connection.
    pub(super) fn belongs_to(&self, conn: ConnId) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.conn == conn)
    }

    pub(super) fn reply(&self) -> Option<&CommandReply> {
        self.reply.as_ref()
    }

    /// Whether later commands of this connection wait for the turn.
    pub(super) fn is_ordered_for(&self, conn: ConnId) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.conn == conn && reply.is_ordered())
    }

    /// Whether the turn is a query that the agent may have received.
    pub(super) fn is_query_sent(&self) -> bool {
        matches!(self.work, TurnWork::Query { .. })
            && !matches!(self.stage, TurnStage::Starting | TurnStage::Draining { .. })
    }

    /// Whether the turn is a `resume` that was sent to the agent.
    pub(super) fn is_resume_sent(&self) -> bool {
        matches!((&self.work, self.stage), (TurnWork::Resume { .. }, TurnStage::Preparing { .. }))
    }

    /// Whether the query can be sent to another process: this process has sent no output since it received the query.
    pub(super) fn can_be_resent(&self) -> bool {
        let told = matches!(self.stage, TurnStage::Preparing { .. } | TurnStage::Running);
        told && !self.was_restarted && matches!(&self.work, TurnWork::Query { query: Some(_), .. })
    }

    pub(super) fn wants_partials(&self) -> bool {
        matches!(self.work, TurnWork::Query { partials: true, .. })
    }

    pub(super) fn is_starting(&self) -> bool {
        self.stage == TurnStage::Starting
    }

    pub(super) fn is_aborting(&self) -> bool {
        matches!(self.stage, TurnStage::Aborting { .. })
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.stage, TurnStage::Draining { .. })
    }

    /// The start options that the process must have, if they matter.
    pub(super) fn flags(&self) -> Option<&[String]> {
        match &self.work {
            TurnWork::Query { flags, .. } => Some(flags),
            TurnWork::Resume { .. } => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.stage {
            TurnStage::Starting | TurnStage::Running => None,
            TurnStage::Preparing { deadline: until }
            | TurnStage::Aborting { deadline: until, .. }
            | TurnStage::Draining { deadline: until } => Some(until),
        }
    }
}

impl Bridge {
    pub(super) fn start_query(
        &mut self,
        reply: CommandReply,
        query: Box<QueryCommand>,
        flags: Vec<String>,
        charged: usize,
    ) {
        let partials = query.wants_partials();
        for name in query.unknown_fields() {
            self.log_unknown_field(name);
        }
        let work = TurnWork::Query { query: Some(query), flags, partials };
        self.turn = Some(Turn::new(reply, work, charged));
        self.advance_turn();
    }

    pub(super) fn start_resume(&mut self, reply: CommandReply, resume: ResumeCommand) {
        if self.has_loaded_session(&resume.session) {
            return self.complete_command(reply, &resume.session);
        }
        let work = TurnWork::Resume { line: resume.line };
        self.turn = Some(Turn::new(reply, work, 0));
        self.advance_turn();
    }

    /// Advances a starting turn as far as the agent's state allows.
    pub(super) fn advance_turn(&mut self) {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.is_starting()) else { return };
        match self.agent.lifecycle {
            AgentLifecycle::Stopped => {
                let flags = turn.flags().unwrap_or(&self.agent.start_flags).to_vec();
                self.launch_agent(flags);
            }
            AgentLifecycle::Ready if turn.flags().is_some_and(|flags| flags != self.agent.start_flags) => {
                self.stop_agent(AgentStop::CloseInput)
            }
            AgentLifecycle::Ready => self.send_turn(),
            AgentLifecycle::Starting { .. } | AgentLifecycle::Stopping { .. } => {}
        }
    }

    /// Sends the turn to the agent.
    fn send_turn(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        let until = self.now + PREPARE_TIMEOUT;
        let bytes = match &mut turn.work {
            TurnWork::Resume { line } => {
                let silence = if self.adapter.takes_resume() { PREPARE_TIMEOUT } else { RESUME_TIMEOUT };
                turn.stage = TurnStage::Preparing { deadline: self.now + silence };
                self.adapter.encode_resume(line, self.agent.session.as_deref())
            }
            TurnWork::Query { query, .. } => {
                let Some(told) = query.as_deref() else { return };
                let agent_session = self.agent.session.as_deref();
                let catch_up = self.agent.had_conversation && !self.agent.has_conversation;
                let bytes =
                    self.adapter.encode_query(told, TurnContext { agent_session, needs_resume: catch_up });
                let opening = self.adapter.awaits_settings();
                turn.stage =
                    if opening { TurnStage::Preparing { deadline: until } } else { TurnStage::Running };
                if told.line().len() > MAX_RETAINED_QUERY {
                    *query = None;
                    self.budget.release_inbound(std::mem::take(&mut turn.reserved_bytes));
                }
                // From now on the agent may have started the conversation, whatever the outcome of the turn.
                turn.had_conversation = std::mem::replace(&mut self.agent.has_conversation, true);
                bytes
            }
        };
        if !self.send_to_agent(bytes) {
            self.end_turn(Err("the bridge has no room for the prompt".into()));
            self.stop_agent(AgentStop::Kill);
        }
    }

    /// Drops the retained query: the agent has sent output or received other input, so the query is not sent again.
    pub(super) fn drop_retained_query(&mut self) {
        if let Some(turn) = &mut self.turn
            && !turn.is_starting()
            && let TurnWork::Query { query, .. } = &mut turn.work
        {
            *query = None;
            self.budget.release_inbound(std::mem::take(&mut turn.reserved_bytes));
        }
    }

    /// Restarts the agent, which exited without reading its query, and sends the query again. Once per turn, so that
    /// an agent that never reads is not restarted forever.
    pub(super) fn resend_turn(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        turn.was_restarted = true;
        turn.stage = TurnStage::Starting;
        self.advance_turn();
    }

    /// Whether the agent had the conversation before it received the running turn.
    pub(super) fn had_conversation_before(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.had_conversation)
    }

    /// Sends the rest of the turn, after the agent has accepted its settings.
    pub(super) fn send_prompt(&mut self, bytes: Vec<u8>) {
        if !self.send_to_agent(bytes) {
            self.end_turn(Err("the bridge has no room for the prompt".into()));
            return self.stop_agent(AgentStop::Kill);
        }
        if let Some(turn) = &mut self.turn
            && matches!(turn.stage, TurnStage::Preparing { .. })
        {
            turn.stage = TurnStage::Running;
        }
    }

    /// Ends the turn; the agent is free.
    pub(super) fn end_turn(&mut self, outcome: Result<(), String>) {
        // While the turn still owns those questions.
        self.send_cancellations();
        let Some(turn) = self.turn.take() else { return };
        self.budget.release_inbound(turn.reserved_bytes);
        if outcome.is_ok() && !turn.is_starting() {
            self.agent.has_conversation = true;
        }
        if let Some(reply) = turn.reply {
            self.send_outcome(reply, outcome);
        }
    }

    /// Sends the terminal event now. The turn occupies the agent until the agent has finished it.
    pub(super) fn fail_turn_early(&mut self, text: &str) {
        if let Some(reply) = self.turn.as_mut().and_then(|turn| turn.reply.take()) {
            self.send_outcome(reply, Err(text.to_owned()));
        }
        self.abort_turn();
    }

    /// Ends a turn that the agent itself reported as failed. Some agents add a `done`, which must not end the next
    /// turn.
    pub(super) fn fail_turn_and_drain(&mut self, text: String) {
        let until = self.now + DRAIN_TIMEOUT;
        if let Some(turn) = &mut self.turn {
            turn.stage = TurnStage::Draining { deadline: until };
            if let Some(reply) = turn.reply.take() {
                self.send_outcome(reply, Err(text));
            }
        }
    }

    fn send_outcome(&mut self, reply: CommandReply, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                let session = self.session.clone().unwrap_or_default();
                self.complete_command(reply, &session);
            }
            Err(text) => self.fail_command(reply, &text),
        }
    }

    /// `interrupt`: aborts the sender's own turn, running or queued, else the running turn of any connection. No
    /// effect without a turn (BP-09).
    pub(super) fn interrupt(&mut self, conn: ConnId) {
        let own = self.turn.as_ref().is_some_and(|turn| turn.belongs_to(conn));
        if own || !self.cancel_queued_turn(conn) {
            self.abort_turn();
        }
    }

    /// Aborts a turn whose server has disconnected.
    pub(super) fn abort_detached_turn(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.reply = None;
        }
        self.abort_turn();
    }

    /// Aborts the running query. A `resume` starts no turn and ends by itself.
    pub(super) fn abort_turn(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        match (turn.stage, &turn.work) {
            (TurnStage::Starting, _) => self.end_turn(Ok(())),
            (TurnStage::Preparing { .. } | TurnStage::Running, TurnWork::Query { .. }) => match self
                .adapter
                .abort_turn()
            {
                AbortAction::NotSent => self.end_turn(Ok(())),
                AbortAction::Send(bytes) => {
                    turn.stage = TurnStage::Aborting { deadline: self.now + ABORT_TIMEOUT, signalled: false };
                    // If the buffer is full, the signal after the timeout replaces the message.
                    let _ = self.send_to_agent(bytes);
                    let by = if self.shutdown.is_some() { DecidedBy::Shutdown } else { DecidedBy::Interrupt };
                    self.deny_all_questions(by, "the turn was interrupted");
                }
            },
            _ => {}
        }
    }

    /// Whether a client waits for the turn to end early.
    pub fn is_aborting(&self) -> bool {
        self.shutdown.is_some() || self.turn.as_ref().is_some_and(Turn::is_aborting)
    }

    /// Handles timeouts of the turn.
    pub(super) fn tick_turn(&mut self) {
        let now = self.now;
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.deadline().is_some_and(|until| until <= now))
        else {
            return;
        };
        match turn.stage {
            TurnStage::Starting | TurnStage::Running => {}
            TurnStage::Draining { .. } => self.end_turn(Ok(())),
            TurnStage::Preparing { .. } => match turn.work {
                TurnWork::Resume { .. } if !self.adapter.takes_resume() => self.end_turn(Ok(())),
                _ => {
                    self.end_turn(Err(format!(
                        "the agent did not answer within {} s",
                        PREPARE_TIMEOUT.as_secs()
                    )));
                    self.stop_agent(AgentStop::Kill);
                }
            },
            TurnStage::Aborting { signalled: false, .. } => {
                turn.stage = TurnStage::Aborting { deadline: now + ABORT_SIGNAL_TIMEOUT, signalled: true };
                self.actions.push_back(BridgeAction::InterruptAgent);
            }
            TurnStage::Aborting { signalled: true, .. } => {
                turn.stage = TurnStage::Aborting { deadline: Duration::MAX, signalled: true };
                self.stop_agent(AgentStop::Kill);
            }
        }
    }
}
