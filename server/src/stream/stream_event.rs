//! The events that the server itself sends in a stream, and their data.

use crate::saggar::PermissionObject;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A server-sent event: its name in the field `event`, and the JSON text of its data in the field `data`. The field `id`
/// is a number that never decreases over the lifetime of the session.
///
/// Blocks and deltas of other types are sent as events of that name, with the block as data: a client ignores names that
/// it does not know.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum StreamEvent {
    /// The first event.
    SessionStart {
        /// The id of the session.
        #[serde(rename = "sessionId")]
        session_id: String,
        /// The version of the server.
        version: &'static str,
    },
    /// A message of the agent, byte for byte. The events that are derived from it precede it.
    Message(Value),
    /// A part of the answer.
    TextDelta {
        /// Follows the parts before it.
        delta: String,
    },
    /// A part of the reasoning.
    ThinkingDelta {
        /// Text, unless the agent sends another value.
        delta: Value,
    },
    /// A call of a tool.
    ToolUse {
        /// The id of the call.
        id: Value,
        /// The name of the tool.
        name: Value,
        /// The input of the tool.
        input: Value,
    },
    /// The result of a call of a tool.
    ToolResult {
        /// The id of the call.
        tool_use_id: Value,
        /// The output of the tool, in the form of the agent.
        content: Value,
        /// Whether the call failed.
        is_error: bool,
    },
    /// The end of the turn, as the agent reports it.
    TurnComplete(TurnSummary),
    /// The agent asks for permission, and waits for an answer.
    PermissionRequest(PermissionObject),
    /// A permission request is closed.
    PermissionResolved {
        /// The id of the request.
        id: String,
        /// `allow` or `deny`.
        behavior: String,
        /// `client` for an answer to the server, else `saggar`.
        by: &'static str,
    },
    /// The events of the bridge with these numbers are no longer stored.
    Gap {
        /// The first number.
        from: u64,
        /// The last number.
        to: u64,
    },
    /// The turn failed.
    Error {
        /// The reason.
        error: String,
    },
    /// The last event of a turn.
    Done {
        /// The id of the session.
        #[serde(rename = "sessionId")]
        session_id: String,
    },
}

impl StreamEvent {
    pub(super) fn session_start(session: &str) -> Self {
        StreamEvent::SessionStart { session_id: session.to_owned(), version: env!("CARGO_PKG_VERSION") }
    }
}

/// The fields of the `result` message of an agent that clients expect, if they are present.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnSummary {
    #[serde(skip_serializing_if = "Option::is_none")]
    num_turns: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
}

impl TurnSummary {
    /// The summary of a `result` message.
    pub(super) fn of_message(message: &Value) -> Self {
        TurnSummary { num_turns: message.get("num_turns").cloned(), result: message.get("result").cloned() }
    }
}
