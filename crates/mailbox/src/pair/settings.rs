//! The settings of a pair run.

use crate::error::{Error, ErrorKind, Result};
use crate::member::{Member, Roles};
use crate::message::{Draft, Message, MessageType, check_agent_name};

/// The two agents of a pair run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The agent with the first turn.
    Worker,
    /// The agent that reviews.
    Reviewer,
}

impl Party {
    /// The other party.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Party::Worker => Party::Reviewer,
            Party::Reviewer => Party::Worker,
        }
    }
}

/// The settings of a pair run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairSettings {
    /// The task.
    pub task: String,
    /// Name of the worker.
    pub worker: String,
    /// Name of the reviewer.
    pub reviewer: String,
    /// Names of persons, whose messages are passed on to the agents.
    pub persons: Vec<String>,
    /// Most iterations; one is a turn of the worker and a turn of the reviewer. At least 1.
    pub max_iterations: u32,
    /// Whether each agent works and reviews the other: both must signal PASS, and either may signal DONE. The last turn
    /// is the reviewer's, so that the worker's PASS must come before it.
    pub both_review: bool,
}

impl PairSettings {
    /// The members of the run, for its record and its mailbox.
    pub fn members(&self) -> Vec<Member> {
        let agents =
            [Party::Worker, Party::Reviewer].map(|party| Member::new(self.name(party), self.roles(party)));
        agents.into_iter().chain(self.persons.iter().map(|name| Member::new(name, Roles::PERSON))).collect()
    }

    /// The name of a party.
    pub fn name(&self, party: Party) -> &str {
        match party {
            Party::Worker => &self.worker,
            Party::Reviewer => &self.reviewer,
        }
    }

    /// The roles of a party.
    pub fn roles(&self, party: Party) -> Roles {
        match (self.both_review, party) {
            (true, _) => Roles::BOTH,
            (false, Party::Worker) => Roles::WORKER,
            (false, Party::Reviewer) => Roles::REVIEWER,
        }
    }

    /// The party with this name.
    pub fn party(&self, name: &str) -> Option<Party> {
        [Party::Worker, Party::Reviewer].into_iter().find(|party| self.name(*party) == name)
    }

    pub(super) fn check(&self) -> Result<()> {
        let invalid =
            |message: &str, hint: &str| Err(Error::new(ErrorKind::Invalid, message).with_hint(hint));
        if self.max_iterations == 0 {
            return invalid("a pair run needs at least one iteration", "set the maximum to 1 or more");
        }
        let names: Vec<&String> = [&self.worker, &self.reviewer].into_iter().chain(&self.persons).collect();
        if names.iter().enumerate().any(|(at, name)| names.iter().take(at).any(|other| other == name)) {
            return invalid(
                "two members of the pair run have one name",
                "give each member a name of its own",
            );
        }
        names.into_iter().try_for_each(|name| check_agent_name(name))?;
        Message::new(1, &self.reviewer, self.task_draft(), jiff::Timestamp::UNIX_EPOCH).map(|_| ())
    }

    /// The first message of the run, which the runner posts for the reviewer.
    pub(super) fn task_draft(&self) -> Draft {
        Draft::to(&self.worker, MessageType::Task, self.task.as_str())
    }
}
