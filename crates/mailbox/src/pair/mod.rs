//! The loop of a pair run, without I/O: events in, effects out.
//!
//! ```text
//!              Started                     Message(task)
//!   (messages) ───────> Post(task) ───────────────────────> Prompt(worker)
//!                                                                │ TurnEnded(worker)
//!   Finish(not approved) <── iterations used up ──┐              v
//!                                                 └──────── Prompt(reviewer)
//!   Finish(approved)     <── approved, after either turn ────────┤ TurnEnded(reviewer)
//!   Finish(stalled)      <── two turns without a message         └──> Prompt(worker), next iteration
//! ```
//!
//! The state is a fold over the messages of the run ([`Progress`]), so that a run that was killed at any point continues
//! from its mailbox: report each stored message as [`PairEvent::Message`], then [`PairEvent::Started`]. Only the running
//! turn is not stored. A runner that knows whose turn was cut off reports [`PairEvent::Continued`], so that the agent sends
//! what is missing; otherwise the agent is prompted again only if it had not sent a message. What the agents were prompted
//! with is not in the messages either: [`PairRun::answered`] has it, for [`PairRun::with_answered`].
//!
//! Signals are structured messages. Words such as "PASS" in a text have no effect.

mod event;
mod progress;
mod prompt;
mod settings;

pub use event::{Outcome, PairEffect, PairEvent};
pub use progress::{NextStep, Progress};
pub use settings::{PairSettings, Party};

use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;
use prompt::PromptContext;
use serde::{Deserialize, Serialize};

/// A turn that an agent was prompted for.
#[derive(Debug, Clone, Copy)]
struct ActiveTurn {
    party: Party,
    has_sent: bool,
    is_reminded: bool,
}

/// For each party, the number of the last message that was there when it was prompted for its last turn that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Of the worker.
    pub worker: u64,
    /// Of the reviewer.
    pub reviewer: u64,
}

/// A pair run.
#[derive(Debug)]
pub struct PairRun {
    settings: PairSettings,
    progress: Progress,
    is_started: bool,
    active: Option<ActiveTurn>,
    /// Parties whose first prompt in this process is out; it has the task.
    introduced: Vec<Party>,
    answered: Answered,
    outcome: Option<Outcome>,
}

impl PairRun {
    /// A run that has not started.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]: names or the task are not valid, or there is no iteration.
    pub fn new(settings: PairSettings) -> Result<Self> {
        settings.check()?;
        Ok(PairRun {
            settings,
            progress: Progress::default(),
            is_started: false,
            active: None,
            introduced: Vec::new(),
            answered: Answered::default(),
            outcome: None,
        })
    }

    /// The same run, of which an earlier process has prompted the agents. Prompts have the later messages only.
    #[must_use]
    pub fn with_answered(self, answered: Answered) -> Self {
        PairRun { answered, ..self }
    }

    /// What the agents have answered; it changes when a turn ends.
    pub fn answered(&self) -> Answered {
        self.answered
    }

    /// The state of the loop.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// How the run ended; `None` while it runs.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Processes an event. Events after the end have no effect.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]: a second start; the end of a turn that no agent was prompted for; the failure of an
    /// agent that is no party. The state is unchanged.
    pub fn handle(&mut self, event: PairEvent<'_>) -> Result<Vec<PairEffect>> {
        if self.outcome.is_some() {
            return Ok(Vec::new());
        }
        if matches!(event, PairEvent::Started | PairEvent::Continued { .. }) && !self.is_started {
            self.progress.mark_answered(Party::Worker, self.answered.worker);
            self.progress.mark_answered(Party::Reviewer, self.answered.reviewer);
        }
        let effect = match event {
            PairEvent::Started if self.is_started => return Err(unexpected("a second start")),
            PairEvent::Started => {
                self.is_started = true;
                Some(self.advance())
            }
            PairEvent::Continued { .. } if self.is_started => return Err(unexpected("a second start")),
            PairEvent::Continued { agent } => {
                self.is_started = true;
                Some(self.continue_turn(agent))
            }
            PairEvent::Message(message) => self.receive(message),
            PairEvent::TurnEnded { agent } => Some(self.end_turn(agent)?),
            PairEvent::AgentFailed { agent, reason } => {
                if self.settings.party(agent).is_none() {
                    return Err(unexpected(&format!("a failure of {agent}, which is not in the run")));
                }
                Some(self.finish(Outcome::Failed { agent: agent.to_owned(), reason: reason.to_owned() }))
            }
            PairEvent::Interrupted => Some(self.finish(Outcome::Interrupted)),
        };
        Ok(effect.into_iter().collect())
    }

    fn receive(&mut self, message: &Message) -> Option<PairEffect> {
        let sender = self.progress.apply(&self.settings, message);
        match &mut self.active {
            Some(turn) => {
                turn.has_sent |= sender == Some(turn.party);
                None
            }
            // Only the task is awaited outside of turns.
            None if self.is_started && self.progress.is_task_posted() => Some(self.advance()),
            None => None,
        }
    }

    fn end_turn(&mut self, agent: &str) -> Result<PairEffect> {
        let Some(turn) = self.active.filter(|turn| self.settings.name(turn.party) == agent) else {
            return Err(unexpected(&format!("the end of a turn of {agent}, which has none")));
        };
        if turn.has_sent {
            self.active = None;
            if let Some(last) = self.progress.end_turn(turn.party) {
                match turn.party {
                    Party::Worker => self.answered.worker = last,
                    Party::Reviewer => self.answered.reviewer = last,
                }
            }
            return Ok(self.advance());
        }
        if turn.is_reminded {
            return Ok(self.finish(Outcome::Stalled { agent: agent.to_owned() }));
        }
        self.active = Some(ActiveTurn { is_reminded: true, ..turn });
        Ok(PairEffect::Prompt { agent: agent.to_owned(), text: prompt::reminder(&self.settings, turn.party) })
    }

    /// The agent that was cut off, unless the run is over, or it has not sent anything in its turn.
    fn continue_turn(&mut self, agent: &str) -> PairEffect {
        let step = self.progress.next_step(&self.settings);
        let is_approved = matches!(step, NextStep::Finish(Outcome::Approved { .. }));
        match self.settings.party(agent).filter(|party| self.progress.is_answering(*party)) {
            Some(party) if !is_approved => {
                let text = self.begin_turn(party, self.progress.iteration(), true);
                PairEffect::Prompt { agent: agent.to_owned(), text: prompt::continued(&text) }
            }
            _ => self.advance(),
        }
    }

    fn advance(&mut self) -> PairEffect {
        match self.progress.next_step(&self.settings) {
            NextStep::PostTask => {
                PairEffect::Post { agent: self.settings.reviewer.clone(), draft: self.settings.task_draft() }
            }
            NextStep::Prompt { party, iteration } => self.prompt(party, iteration),
            NextStep::Finish(outcome) => self.finish(outcome),
        }
    }

    fn prompt(&mut self, party: Party, iteration: u32) -> PairEffect {
        let text = self.begin_turn(party, iteration, false);
        PairEffect::Prompt { agent: self.settings.name(party).to_owned(), text }
    }

    /// Begins a turn and returns its prompt. `has_sent` says that the party has sent messages in it already.
    fn begin_turn(&mut self, party: Party, iteration: u32, has_sent: bool) -> String {
        let is_first = !self.introduced.contains(&party);
        if is_first {
            self.introduced.push(party);
        }
        let messages = self.progress.unanswered(party);
        let text = prompt::prompt(&self.settings, PromptContext { party, iteration, is_first }, messages);
        self.progress.mark_prompted(party);
        self.active = Some(ActiveTurn { party, has_sent, is_reminded: false });
        text
    }

    fn finish(&mut self, outcome: Outcome) -> PairEffect {
        self.active = None;
        self.outcome = Some(outcome.clone());
        PairEffect::Finish(outcome)
    }
}

fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("unexpected event of the pair run: {what}"))
        .with_hint("this is a defect of the runner; the run can be resumed from its mailbox")
}

#[cfg(test)]
mod tests;
