//! What is written of a decision: one line of `audit.jsonl`.

use super::Ask;
use crate::bridge::proto::json;
use serde::Serialize;

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The tool may run.
    Allow,
    /// It may not.
    Deny,
    /// The agent took its question back before anybody decided.
    Cancel,
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A rule of the policy.
    Rule,
    /// A server, on the bridge socket.
    Server,
    /// Somebody on the control socket.
    Control,
    /// Nobody, for as long as the policy waits.
    Timeout,
    /// The turn was interrupted.
    Interrupt,
    /// The agent took it back.
    Agent,
    /// The agent ended.
    Exit,
    /// The bridge shut down.
    Shutdown,
    /// The bridge: the question or its answer was not as it must be, or there was no room for it.
    Bridge,
}

/// One record. Serialised it is one line, without a newline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Audit {
    #[serde(skip)]
    is_permission: bool,
    version: u32,
    /// Milliseconds since 1970.
    pub ts: u64,
    event: &'static str,
    /// The bridge's name of the question.
    pub id: String,
    /// The agent's.
    pub request_id: String,
    /// The tool.
    pub tool: String,
    /// The agent's name of the call.
    pub tool_use_id: String,
    /// What it was to be called with: the beginning of its JSON.
    pub input: String,
    /// What was decided.
    pub decision: Decision,
    /// Who decided.
    pub by: By,
    /// Which of the bridge's connections, from 0, when a server did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
    /// The rule and the layer of the policy that has it, when a rule did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why, when nobody was asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The server changed what the tool is called with.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
}

impl Audit {
    /// The record of a decision about this question.
    pub fn new(ts: u64, id: &str, ask: &Ask, decision: Decision, by: By) -> Self {
        let tool = ask.tool.as_ref();
        Audit {
            is_permission: tool.is_some(),
            version: 1,
            ts,
            event: "permission",
            id: id.to_owned(),
            request_id: ask.agent_id.clone(),
            tool: tool.map(|tool| tool.name.clone()).unwrap_or_default(),
            tool_use_id: tool.map(|tool| tool.use_id.clone()).unwrap_or_default(),
            input: tool.map(|tool| beginning(&tool.input)).unwrap_or_default(),
            decision,
            by,
            connection: None,
            rule: None,
            reason: None,
            changed: false,
        }
    }

    /// Whether it is about a tool: other questions decide nothing.
    pub fn is_permission(&self) -> bool {
        self.is_permission
    }

    /// The line, with its newline.
    pub fn line(&self) -> Vec<u8> {
        // Text and numbers in memory: this cannot fail. Were it to, the record must still say what was decided.
        let mut line = serde_json::to_vec(self)
            .unwrap_or_else(|_| format!("{{\"id\":{}}}", json::quote(&self.id)).into_bytes());
        line.push(b'\n');
        line
    }
}

/// How much of an input is kept, in characters.
const KEPT: usize = 4096;

fn beginning(input: &str) -> String {
    match input.char_indices().nth(KEPT) {
        Some((at, _)) => format!("{}…", &input[..at]),
        None => input.to_owned(),
    }
}
