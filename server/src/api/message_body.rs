//! The body of a message, and the query of the agent that it becomes.

use super::error::ApiError;
use super::objects::parse_object;
use crate::permission_mode::{PERMISSION_MODE, PermissionMode};
use crate::store::Session;
use saggar_bridge::client::ClientCommand;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// Maximum length of a text message, in characters.
pub(super) const MAX_TEXT_CHARS: usize = 500_000;
/// Maximum number of content blocks in a message.
const MAX_BLOCKS: usize = 20;

#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = SendMessageRequest)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendBody {
    /// A text of at most 500000 characters, or a list of 1 to 20 content blocks with a `type`.
    pub(super) content: Value,
    /// Whether the stream has parts of the answer as `text_delta`.
    include_partial_messages: Option<bool>,
    model: Option<String>,
    #[schema(minimum = 1)]
    max_turns: Option<u64>,
    #[schema(minimum = 0)]
    max_budget_usd: Option<f64>,
    effort: Option<Effort>,
    thinking: Option<Thinking>,
    output_format: Option<OutputFormat>,
}

impl SendBody {
    /// The body of a text message without options.
    pub(super) fn text(text: &str) -> Self {
        SendBody { content: text.into(), ..SendBody::default() }
    }

    /// The names of the given options that an agent takes at its start.
    pub(super) fn start_options(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("maxTurns", self.max_turns.is_some()),
            ("maxBudgetUsd", self.max_budget_usd.is_some()),
            ("effort", self.effort.is_some()),
            ("outputFormat", self.output_format.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// The model of the turn, if the message or the session names one.
    pub(super) fn model<'a>(&'a self, session: &'a Session) -> Option<&'a str> {
        self.model.as_deref().or(session.model.as_deref())
    }
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Effort {
    Low,
    Medium,
    High,
    Max,
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    budget_tokens: Option<u64>,
}

#[derive(Debug, Deserialize, Serialize, ToSchema)]
struct OutputFormat {
    #[serde(rename = "type")]
    kind: String,
    schema: Map<String, Value>,
}

/// Checks the content and the limits of a message.
///
/// # Errors
/// 400 names the invalid field.
pub(super) fn check_body(body: &SendBody) -> Result<(), ApiError> {
    let invalid = |text: &str| Err(ApiError::Body(text.into()));
    match &body.content {
        Value::String(text) if text.chars().count() > MAX_TEXT_CHARS => {
            return invalid("body/content must have at most 500000 characters");
        }
        Value::Array(blocks) if blocks.len() > MAX_BLOCKS => {
            return invalid("body/content must have at most 20 blocks");
        }
        Value::Array(blocks)
            if blocks.is_empty() || !blocks.iter().all(|block| block["type"].is_string()) =>
        {
            return invalid("body/content must be a non-empty list of blocks with a type");
        }
        Value::String(_) | Value::Array(_) => {}
        _ => return invalid("body/content must be a string or a list of blocks"),
    }
    if body.max_turns == Some(0) {
        return invalid("body/maxTurns must be >= 1");
    }
    if body.max_budget_usd.is_some_and(|budget| budget < 0.0) {
        return invalid("body/maxBudgetUsd must be >= 0");
    }
    Ok(())
}

/// Builds the query of a turn. Options of the message take precedence over those of the session. `trace_context` becomes
/// the parent of the spans of the agent.
pub(super) fn build_query(session: &Session, body: SendBody, trace_context: Option<String>) -> ClientCommand {
    let mut query = ClientCommand::query(body.content, &session.id.to_string());
    let mut options = parse_object(&session.config);
    let mode = PermissionMode::of_options(&options);
    options.remove(PERMISSION_MODE);
    for (name, value) in options {
        query = query.with(&name, value);
    }
    if let Some(mode) = mode.agent_mode() {
        query = query.with(PERMISSION_MODE, mode);
    }
    let effort = body.effort.map(|effort| match effort {
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Max => "max",
    });
    let thinking = body.thinking.map(|thinking| match thinking.budget_tokens {
        Some(tokens) => json!({ "type": thinking.kind, "budgetTokens": tokens }),
        None => json!({ "type": thinking.kind }),
    });
    let options = [
        (
            "includePartialMessages",
            body.include_partial_messages.filter(|is_wanted| *is_wanted).map(Value::from),
        ),
        ("model", body.model.or_else(|| session.model.clone()).map(Value::from)),
        ("maxTurns", body.max_turns.map(Value::from)),
        ("maxBudgetUsd", body.max_budget_usd.map(Value::from)),
        ("effort", effort.map(Value::from)),
        ("thinking", thinking),
        (
            "outputFormat",
            body.output_format.map(|format| json!({ "type": format.kind, "schema": format.schema })),
        ),
        ("traceContext", trace_context.map(Value::from)),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            query = query.with(name, value);
        }
    }
    query
}
