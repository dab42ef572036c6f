//! The section of an agent: the program that a start runs, or why the start is refused.

use crate::app::agent;
use crate::error::Result;
use crate::spec::policy::EffectivePolicy;
use crate::text::one_line;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};

/// The program of an agent.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum AgentSection {
    /// A program, its arguments and the protocol. The built-in demo agent has no program.
    Program { command: Vec<String>, adapter: String },
    /// Why a start is refused, with the remedy.
    Refused { problem: String },
}

impl AgentSection {
    /// Returns the agent that a start with this policy runs.
    pub(super) fn of(policy: &EffectivePolicy) -> AgentSection {
        AgentSection::choose(policy).unwrap_or_else(|error| AgentSection::Refused {
            problem: match error.hint_text() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            },
        })
    }

    fn choose(policy: &EffectivePolicy) -> Result<AgentSection> {
        let (adapter, command) = agent::choose_agent(policy)?;
        agent::refuse_without_api(policy, adapter, &command)?;
        let command = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(AgentSection::Program { command, adapter: adapter.to_string() })
    }
}

impl Display for AgentSection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AgentSection::Refused { problem } => write!(f, "the start is refused: {}", one_line(problem)),
            AgentSection::Program { command, adapter } if command.is_empty() => {
                write!(f, "built in ({adapter})")
            }
            AgentSection::Program { command, adapter } => {
                write!(f, "{} ({adapter})", one_line(&command.join(" ")))
            }
        }
    }
}
