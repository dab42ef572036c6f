//! The turn: the one command that has the agent.
//!
//! ```text
//!            ┌──────────── agent not up ───────────┐
//!  waiting ──┴─> Starting ──> Opening ──> Running ──┴─> over (one terminal event)
//!                    │            │           │            ▲
//!                    └── abort ───┴─> Aborting┴────────────┤
//!                                            Settling ─────┘  (the terminal event is out already)
//! ```
//! The terminal event is sent by taking the turn's [`Reply`]: what was taken cannot be sent again. A turn
//! whose reply is gone (its server left, or its error was told) keeps the agent until the agent is done with
//! it, so that nothing of it reaches a later command (BP-26).

use super::action::{Action, Stop};
use super::agent::Life;
use super::conn::Reply;
use super::{Bridge, ConnId};
use crate::bridge::adapter::{Abort, Context};
use crate::bridge::proto::permission::By;
use crate::bridge::proto::{Query, Resume};
use std::time::Duration;

/// How long the agent may take to agree to a turn's settings, or to say that it is up.
const OPENING: Duration = Duration::from_secs(30);
/// An agent that lives so long after a `resume` is up, even if it does not answer that question.
const RESUME_SILENCE: Duration = Duration::from_secs(10);
/// How long the agent may take to end an aborted turn before it gets SIGINT, and then before it is killed.
const ABORT_WORDS: Duration = Duration::from_secs(5);
const ABORT_SIGNAL: Duration = Duration::from_secs(3);
/// How long an agent that said `error` may still add the `done` of the same turn.
const SETTLING: Duration = Duration::from_millis(250);
/// The longest query, in bytes, that is kept after it was told, for an agent that was just leaving.
const KEPT: usize = 1 << 20;

/// The command that has the agent.
#[derive(Debug)]
pub(super) struct Turn {
    reply: Option<Reply>,
    work: Work,
    stage: Stage,
    /// Bytes taken from the budget for the query.
    charged: usize,
    /// Whether the agent had the conversation before it was told of this turn.
    conversed: bool,
    /// It was told a second time, to an agent that was started for it.
    again: bool,
}

#[derive(Debug)]
enum Work {
    /// The query is there until the agent is heard, when it is short enough to be kept so long.
    Query {
        query: Option<Box<Query>>,
        flags: Vec<String>,
        partials: bool,
    },
    Resume {
        line: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The agent is not up yet, or not as the turn needs it.
    Starting,
    /// The agent has been asked something first.
    Opening { until: Duration },
    /// The agent works.
    Running,
    /// The agent has been told to stop.
    Aborting { until: Duration, signalled: bool },
    /// The terminal event is out; the agent may have one of its own still.
    Settling { until: Duration },
}

impl Turn {
    fn new(reply: Reply, work: Work, charged: usize) -> Self {
        Turn { reply: Some(reply), work, stage: Stage::Starting, charged, conversed: false, again: false }
    }

    /// Whether its events go to this connection.
    pub(super) fn is_of(&self, conn: ConnId) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.conn == conn)
    }

    pub(super) fn reply(&self) -> Option<&Reply> {
        self.reply.as_ref()
    }

    /// Whether those behind it on this connection wait for it.
    pub(super) fn is_ordered_of(&self, conn: ConnId) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.conn == conn && reply.ordered())
    }

    /// Whether it is a query that the agent may know of.
    pub(super) fn is_heard_query(&self) -> bool {
        matches!(self.work, Work::Query { .. })
            && !matches!(self.stage, Stage::Starting | Stage::Settling { .. })
    }

    /// Whether it is a `resume` that the agent has been asked about.
    pub(super) fn is_heard_resume(&self) -> bool {
        matches!((&self.work, self.stage), (Work::Resume { .. }, Stage::Opening { .. }))
    }

    /// Whether the query can be told to another process: this one has not said a word since it was told.
    pub(super) fn can_be_told_again(&self) -> bool {
        let told = matches!(self.stage, Stage::Opening { .. } | Stage::Running);
        told && !self.again && matches!(&self.work, Work::Query { query: Some(_), .. })
    }

    pub(super) fn wants_partials(&self) -> bool {
        matches!(self.work, Work::Query { partials: true, .. })
    }

    pub(super) fn is_starting(&self) -> bool {
        self.stage == Stage::Starting
    }

    pub(super) fn is_aborting(&self) -> bool {
        matches!(self.stage, Stage::Aborting { .. })
    }

    pub(super) fn is_settling(&self) -> bool {
        matches!(self.stage, Stage::Settling { .. })
    }

    /// What the process must have been started with, when that matters.
    pub(super) fn flags(&self) -> Option<&[String]> {
        match &self.work {
            Work::Query { flags, .. } => Some(flags),
            Work::Resume { .. } => None,
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.stage {
            Stage::Starting | Stage::Running => None,
            Stage::Opening { until } | Stage::Aborting { until, .. } | Stage::Settling { until } => {
                Some(until)
            }
        }
    }
}

impl Bridge {
    pub(super) fn begin_query(
        &mut self,
        reply: Reply,
        query: Box<Query>,
        flags: Vec<String>,
        charged: usize,
    ) {
        let partials = query.partials();
        for name in query.unknown() {
            self.note_unknown(name);
        }
        let work = Work::Query { query: Some(query), flags, partials };
        self.turn = Some(Turn::new(reply, work, charged));
        self.drive();
    }

    pub(super) fn begin_resume(&mut self, reply: Reply, resume: Resume) {
        if self.serves(&resume.session) {
            return self.done(reply, &resume.session);
        }
        let work = Work::Resume { line: resume.line };
        self.turn = Some(Turn::new(reply, work, 0));
        self.drive();
    }

    /// Brings a turn that is starting as far as the agent's state allows.
    pub(super) fn drive(&mut self) {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.is_starting()) else { return };
        match self.agent.life {
            Life::Down => {
                let flags = turn.flags().unwrap_or(&self.agent.flags).to_vec();
                self.launch(flags);
            }
            Life::Up if turn.flags().is_some_and(|flags| flags != self.agent.flags) => {
                self.stop_agent(Stop::CloseInput)
            }
            Life::Up => self.tell_turn(),
            Life::Starting { .. } | Life::Stopping { .. } => {}
        }
    }

    /// Tells the agent of the turn.
    fn tell_turn(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        let until = self.now + OPENING;
        let bytes = match &mut turn.work {
            Work::Resume { line } => {
                let silence = if self.adapter.hears_resume() { OPENING } else { RESUME_SILENCE };
                turn.stage = Stage::Opening { until: self.now + silence };
                self.adapter.resume(line)
            }
            Work::Query { query, .. } => {
                let Some(told) = query.as_deref() else { return };
                let agent_session = self.agent.session.as_deref();
                let catch_up = self.agent.history && !self.agent.conversing;
                let bytes = self.adapter.query(told, Context { agent_session, catch_up });
                let opening = self.adapter.opening();
                turn.stage = if opening { Stage::Opening { until } } else { Stage::Running };
                if told.line().len() > KEPT {
                    *query = None;
                    self.budget.give_inbound(std::mem::take(&mut turn.charged));
                }
                // From here on it may have begun the conversation, whatever becomes of the turn.
                turn.conversed = std::mem::replace(&mut self.agent.conversing, true);
                bytes
            }
        };
        if !self.agent_input(bytes) {
            self.end_turn(Err("the bridge has no room for the prompt".into()));
            self.stop_agent(Stop::Kill);
        }
    }

    /// The agent has said something, or been told something else: its query is not told to another any more.
    pub(super) fn keep_no_query(&mut self) {
        if let Some(turn) = &mut self.turn
            && !turn.is_starting()
            && let Work::Query { query, .. } = &mut turn.work
        {
            *query = None;
            self.budget.give_inbound(std::mem::take(&mut turn.charged));
        }
    }

    /// The agent left without having read its query: another one is started for it. Once in a turn: an agent
    /// that never reads is not started for ever.
    pub(super) fn tell_again(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        turn.again = true;
        turn.stage = Stage::Starting;
        self.drive();
    }

    /// Whether the agent had the conversation before it was told of the turn that runs.
    pub(super) fn conversed_before(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.conversed)
    }

    /// The agent has agreed to the settings of the turn: tell it the rest.
    pub(super) fn tell_rest(&mut self, bytes: Vec<u8>) {
        if !self.agent_input(bytes) {
            self.end_turn(Err("the bridge has no room for the prompt".into()));
            return self.stop_agent(Stop::Kill);
        }
        if let Some(turn) = &mut self.turn
            && matches!(turn.stage, Stage::Opening { .. })
        {
            turn.stage = Stage::Running;
        }
    }

    /// The turn is over, and the agent is free.
    pub(super) fn end_turn(&mut self, outcome: Result<(), String>) {
        // While it is still the turn whose questions those are.
        self.say_taken_back();
        let Some(turn) = self.turn.take() else { return };
        self.budget.give_inbound(turn.charged);
        if outcome.is_ok() && !turn.is_starting() {
            self.agent.conversing = true;
        }
        if let Some(reply) = turn.reply {
            self.tell_outcome(reply, outcome);
        }
    }

    /// Sends the terminal event now; the turn keeps the agent until the agent is done with it.
    pub(super) fn fail_turn_early(&mut self, text: &str) {
        if let Some(reply) = self.turn.as_mut().and_then(|turn| turn.reply.take()) {
            self.tell_outcome(reply, Err(text.to_owned()));
        }
        self.abort_turn();
    }

    /// The agent itself said that the turn failed; some add a `done`, which must not end the next turn.
    pub(super) fn settle_turn(&mut self, text: String) {
        let until = self.now + SETTLING;
        if let Some(turn) = &mut self.turn {
            turn.stage = Stage::Settling { until };
            if let Some(reply) = turn.reply.take() {
                self.tell_outcome(reply, Err(text));
            }
        }
    }

    fn tell_outcome(&mut self, reply: Reply, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                let session = self.session.clone().unwrap_or_default();
                self.done(reply, &session);
            }
            Err(text) => self.fail(reply, &text),
        }
    }

    /// `interrupt`: aborts the sender's own turn, running or waiting; else the running one, whoever asked
    /// for it. Silent when there is none (BP-09).
    pub(super) fn interrupt(&mut self, conn: ConnId) {
        let own = self.turn.as_ref().is_some_and(|turn| turn.is_of(conn));
        if own || !self.cancel_waiting_turn(conn) {
            self.abort_turn();
        }
    }

    /// The server of the turn has gone: abort it, nobody hears of it.
    pub(super) fn abort_unheard_turn(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.reply = None;
        }
        self.abort_turn();
    }

    /// Aborts the running query. A `resume` makes no turn, and ends by itself.
    pub(super) fn abort_turn(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        match (turn.stage, &turn.work) {
            (Stage::Starting, _) => self.end_turn(Ok(())),
            (Stage::Opening { .. } | Stage::Running, Work::Query { .. }) => match self.adapter.abort() {
                Abort::Unheard => self.end_turn(Ok(())),
                Abort::Tell(bytes) => {
                    turn.stage = Stage::Aborting { until: self.now + ABORT_WORDS, signalled: false };
                    // Words that find no room are made up for by the signal.
                    let _ = self.agent_input(bytes);
                    let by = if self.ending.is_some() { By::Shutdown } else { By::Interrupt };
                    self.withdraw_all(by, "the turn was interrupted");
                }
            },
            _ => {}
        }
    }

    /// Whether somebody waits for a turn to end early.
    pub(super) fn aborting(&self) -> bool {
        self.ending.is_some() || self.turn.as_ref().is_some_and(Turn::is_aborting)
    }

    /// What the time does to the turn.
    pub(super) fn tick_turn(&mut self) {
        let now = self.now;
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.deadline().is_some_and(|until| until <= now))
        else {
            return;
        };
        match turn.stage {
            Stage::Starting | Stage::Running => {}
            Stage::Settling { .. } => self.end_turn(Ok(())),
            Stage::Opening { .. } => match turn.work {
                Work::Resume { .. } if !self.adapter.hears_resume() => self.end_turn(Ok(())),
                _ => {
                    self.end_turn(Err(format!("the agent did not answer within {} s", OPENING.as_secs())));
                    self.stop_agent(Stop::Kill);
                }
            },
            Stage::Aborting { signalled: false, .. } => {
                turn.stage = Stage::Aborting { until: now + ABORT_SIGNAL, signalled: true };
                self.actions.push_back(Action::InterruptAgent);
            }
            Stage::Aborting { signalled: true, .. } => {
                turn.stage = Stage::Aborting { until: Duration::MAX, signalled: true };
                self.stop_agent(Stop::Kill);
            }
        }
    }
}
