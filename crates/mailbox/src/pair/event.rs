//! Events and effects of a pair run, and how it ends.

use crate::message::{Draft, Message};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairEvent<'a> {
    /// The stored messages are reported; the loop begins or continues.
    Started,
    /// In place of [`PairEvent::Started`] where the turn of an agent was cut off: the agent has another turn, in which it
    /// sends what is missing.
    Continued {
        /// Name of the agent.
        agent: &'a str,
    },
    /// The mailbox has this message. The order is that of the mailbox, and each is reported once.
    Message(&'a Message),
    /// The prompt of an agent was processed to its end. Its messages are reported before.
    TurnEnded {
        /// Name of the agent.
        agent: &'a str,
    },
    /// An agent cannot continue.
    AgentFailed {
        /// Name of the agent.
        agent: &'a str,
        /// The cause.
        reason: &'a str,
    },
    /// The user stopped the run.
    Interrupted,
}

/// What the runner is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairEffect {
    /// Append a message in the name of an agent, then report it as [`PairEvent::Message`], a duplicate as well.
    Post {
        /// Name of the agent.
        agent: String,
        /// The message.
        draft: Draft,
    },
    /// Begin a turn of an agent.
    Prompt {
        /// Name of the agent.
        agent: String,
        /// The text for the agent, with the new messages for it.
        text: String,
    },
    /// The run is over.
    Finish(Outcome),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every reviewer's verdict is PASS, and the work is done ([`super::Progress::is_approved`]).
    Approved {
        /// Number of iterations begun.
        iterations: u32,
    },
    /// All iterations are used up.
    NotApproved {
        /// Number of iterations.
        iterations: u32,
    },
    /// An agent ended its turn and the turn of the reminder without a message.
    Stalled {
        /// Name of the agent.
        agent: String,
    },
    /// An agent failed.
    Failed {
        /// Name of the agent.
        agent: String,
        /// The cause.
        reason: String,
    },
    /// The user stopped the run.
    Interrupted,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Approved { iterations } => write!(f, "approved in iteration {iterations}"),
            Outcome::NotApproved { iterations } => {
                write!(f, "not approved within the limit of {iterations} iterations")
            }
            Outcome::Stalled { agent } => write!(f, "stalled: {agent} ended two turns without a message"),
            Outcome::Failed { agent, reason } => write!(f, "{agent} failed: {reason}"),
            Outcome::Interrupted => f.write_str("interrupted"),
        }
    }
}
