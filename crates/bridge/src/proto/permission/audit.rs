//! The audit record of a decision: one line of `audit.jsonl`.

use super::AgentQuestion;
use crate::proto::json;
use serde::Serialize;

/// The decision on a permission question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionDecision {
    /// The tool may run.
    Allow,
    /// The tool may not run.
    Deny,
    /// The agent cancelled its question before a decision.
    Cancel,
}

/// The source of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// A rule of the policy.
    Rule,
    /// A server, on the bridge socket.
    Server,
    /// A client of the control socket.
    Control,
    /// The policy's timeout expired without an answer.
    Timeout,
    /// The turn was interrupted.
    Interrupt,
    /// The agent cancelled the question.
    Agent,
    /// The agent exited.
    Exit,
    /// The bridge shut down.
    Shutdown,
    /// The bridge: the question or its answer was malformed, or the input buffer of the agent was full.
    Bridge,
}

/// One record. Serialised it is one line, without a newline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditRecord {
    #[serde(skip)]
    is_permission: bool,
    version: u32,
    /// Milliseconds since 1970.
    pub ts: u64,
    event: &'static str,
    /// The bridge's id of the question.
    pub id: String,
    /// The agent's id of the question.
    pub request_id: String,
    /// The name of the tool.
    pub tool: String,
    /// The agent's id of the tool call.
    pub tool_use_id: String,
    /// The JSON of the tool's input, truncated to 4096 characters.
    pub input: String,
    /// The decision.
    pub decision: PermissionDecision,
    /// The source of the decision.
    pub by: DecidedBy,
    /// The number of the bridge connection, from 0, if a server decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
    /// The rule and its policy layer, if a rule decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The reason, if the question was decided without a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the server changed the input of the tool.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
}

impl AuditRecord {
    /// Creates the record of a decision on this question.
    pub fn new(ts: u64, id: &str, ask: &AgentQuestion, decision: PermissionDecision, by: DecidedBy) -> Self {
        let tool = ask.tool.as_ref();
        AuditRecord {
            is_permission: tool.is_some(),
            version: 1,
            ts,
            event: "permission",
            id: id.to_owned(),
            request_id: ask.agent_request_id.clone(),
            tool: tool.map(|tool| tool.name.clone()).unwrap_or_default(),
            tool_use_id: tool.map(|tool| tool.tool_use_id.clone()).unwrap_or_default(),
            input: tool.map(|tool| truncate_input(&tool.input)).unwrap_or_default(),
            decision,
            by,
            connection: None,
            rule: None,
            reason: None,
            changed: false,
        }
    }

    /// Whether the question is about a tool. Other questions need no permission and are not recorded.
    pub(crate) fn is_permission(&self) -> bool {
        self.is_permission
    }

    /// The line, with its newline.
    pub fn encode_line(&self) -> Vec<u8> {
        // Serialising text and numbers to memory cannot fail. If it did, the record must still name the decision.
        let mut line = serde_json::to_vec(self)
            .unwrap_or_else(|_| format!("{{\"id\":{}}}", json::quote(&self.id)).into_bytes());
        line.push(b'\n');
        line
    }
}

/// Maximum length of a recorded input, in characters.
const MAX_INPUT_CHARS: usize = 4096;

fn truncate_input(input: &str) -> String {
    match input.char_indices().nth(MAX_INPUT_CHARS) {
        Some((at, _)) => format!("{}…", &input[..at]),
        None => input.to_owned(),
    }
}
