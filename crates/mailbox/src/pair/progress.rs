//! The state of a pair run, as a fold over its messages.
//!
//! Rules:
//! - The task is the message of type task from the reviewer to the worker with the text of the settings. The runner
//!   posts it; it is no turn of the reviewer.
//! - A turn is counted from the messages: it begins with the first message of its party after a message of the other
//!   party in the turn before. The worker has the first turn. An iteration begins with each turn of the worker.
//! - Messages of agents that are no members, and signals that a role does not permit, are ignored. Messages of persons
//!   are passed on and begin no turn.
//! - A result of a party that works makes the verdict of the other party void. DONE does not: it says that the work that
//!   was judged is all of it.
//! - A *verdict* is the latest PASS or FAIL of a party that reviews.
//! - The run is *approved* when the verdict of every party that reviews is PASS and a DONE was sent at some point. With
//!   `both_review` the verdicts of both are needed, each after the latest result of the other.

use super::{Outcome, PairSettings, Party};
use crate::message::{Message, MessageType, Signal};
use std::sync::Arc;

/// What is to be done between two turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// The mailbox lacks the task.
    PostTask,
    /// A party is to have a turn.
    Prompt {
        /// The party.
        party: Party,
        /// Number of the iteration, from 1.
        iteration: u32,
    },
    /// The run is over.
    Finish(Outcome),
}

/// The state of one party.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PartyState {
    /// `None` until the first verdict, and after a result of the other party.
    has_passed: Option<bool>,
    /// Messages for the party that no turn of it which has ended was prompted with, with their numbers.
    unanswered: Vec<(u64, Arc<Message>)>,
    /// The number of the last message when the party was prompted for its turn.
    prompted: Option<u64>,
}

/// The state of a pair run. It is equal for equal messages, however often the run was resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    is_task_posted: bool,
    is_done: bool,
    /// The party whose turn was the last.
    turn: Party,
    /// Whether that party has sent a message in its turn; only the first turn begins without one.
    has_answered: bool,
    iteration: u32,
    received: u64,
    worker: PartyState,
    reviewer: PartyState,
}

impl Default for Progress {
    fn default() -> Self {
        Progress {
            is_task_posted: false,
            is_done: false,
            turn: Party::Worker,
            has_answered: false,
            iteration: 1,
            received: 0,
            worker: PartyState::default(),
            reviewer: PartyState::default(),
        }
    }
}

impl Progress {
    /// Adds a message. Returns the party that sent it, unless the message counts for no turn.
    pub fn apply(&mut self, settings: &PairSettings, message: &Message) -> Option<Party> {
        let party = settings.party(&message.from);
        if party.is_none() && !settings.persons.contains(&message.from) {
            return None;
        }
        let signal = message.effective_signal();
        if let (Some(party), Some(signal)) = (party, signal)
            && !settings.roles(party).may_signal(signal)
        {
            return None;
        }
        self.received += 1;
        self.deliver(settings, message);
        let party = party?;
        if is_task(settings, message) {
            self.is_task_posted = true;
            return None;
        }
        self.count_turn(party);
        match signal {
            Some(Signal::Pass) => self.state_mut(party).has_passed = Some(true),
            Some(Signal::Fail) => self.state_mut(party).has_passed = Some(false),
            Some(Signal::Done) => self.is_done = true,
            None => {}
        }
        if message.message_type == MessageType::Result && settings.roles(party).works {
            self.state_mut(party.other()).has_passed = None;
        }
        Some(party)
    }

    /// What is to be done when no turn runs.
    pub fn next_step(&self, settings: &PairSettings) -> NextStep {
        if !self.is_task_posted {
            return NextStep::PostTask;
        }
        if self.is_approved(settings) {
            return NextStep::Finish(Outcome::Approved { iterations: self.iteration });
        }
        let are_used_up = NextStep::Finish(Outcome::NotApproved { iterations: settings.max_iterations });
        match (self.turn, self.has_answered) {
            // Messages out of turn may have begun more iterations than were prompted for.
            _ if self.iteration > settings.max_iterations => are_used_up,
            (Party::Reviewer, true) if self.iteration == settings.max_iterations => are_used_up,
            (Party::Reviewer, true) => {
                NextStep::Prompt { party: Party::Worker, iteration: self.iteration + 1 }
            }
            (party, false) => NextStep::Prompt { party, iteration: self.iteration },
            (Party::Worker, true) => NextStep::Prompt { party: Party::Reviewer, iteration: self.iteration },
        }
    }

    /// Whether the verdict of every party that reviews is PASS, and DONE was sent at some point.
    pub fn is_approved(&self, settings: &PairSettings) -> bool {
        let has_passed = |party| !settings.roles(party).reviews || self.state(party).has_passed == Some(true);
        self.is_done && has_passed(Party::Worker) && has_passed(Party::Reviewer)
    }

    /// Whether the mailbox has the task.
    pub fn is_task_posted(&self) -> bool {
        self.is_task_posted
    }

    /// Number of the iteration that was begun last, from 1.
    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    /// Whether the last turn is that of a party, which has sent a message in it.
    pub(super) fn is_answering(&self, party: Party) -> bool {
        self.turn == party && self.has_answered
    }

    /// The messages for a party that it has not answered, oldest first.
    pub(super) fn unanswered(&self, party: Party) -> impl Iterator<Item = &Message> {
        self.state(party).unanswered.iter().map(|(_, message)| message.as_ref())
    }

    /// Notes that a prompt has all messages for the party up to now.
    pub(super) fn mark_prompted(&mut self, party: Party) {
        let received = self.received;
        self.state_mut(party).prompted = Some(received);
    }

    /// Notes that the turn of a party has ended: it has answered what it was prompted with. Returns the number of the last
    /// message of that, if it was prompted.
    pub(super) fn end_turn(&mut self, party: Party) -> Option<u64> {
        let prompted = self.state_mut(party).prompted.take()?;
        self.mark_answered(party, prompted);
        Some(prompted)
    }

    /// Removes the messages up to this number from those that a party has not answered.
    pub(super) fn mark_answered(&mut self, party: Party, last: u64) {
        self.state_mut(party).unanswered.retain(|(number, _)| *number > last);
    }

    fn deliver(&mut self, settings: &PairSettings, message: &Message) {
        let message = Arc::new(message.clone());
        let number = self.received;
        for party in [Party::Worker, Party::Reviewer] {
            if message.is_for(settings.name(party)) {
                self.state_mut(party).unanswered.push((number, Arc::clone(&message)));
            }
        }
    }

    fn count_turn(&mut self, party: Party) {
        if party == self.turn {
            if self.has_answered {
                return;
            }
        } else if !self.has_answered {
            // A message out of turn: the party of the first turn has not answered yet.
            return;
        } else {
            self.turn = party;
            self.iteration = self.iteration.saturating_add((party == Party::Worker).into());
        }
        self.has_answered = true;
    }

    fn state(&self, party: Party) -> &PartyState {
        match party {
            Party::Worker => &self.worker,
            Party::Reviewer => &self.reviewer,
        }
    }

    fn state_mut(&mut self, party: Party) -> &mut PartyState {
        match party {
            Party::Worker => &mut self.worker,
            Party::Reviewer => &mut self.reviewer,
        }
    }
}

pub(super) fn is_task(settings: &PairSettings, message: &Message) -> bool {
    message.message_type == MessageType::Task
        && message.from == settings.reviewer
        && message.to == settings.worker
        && message.content == settings.task
}
