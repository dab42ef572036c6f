//! What is said in a session: the stream of a turn, and the lists of what was said.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, QueryOf, SessionId, bounded};
use super::objects::{Message, SessionEvent, object};
use super::sessions::{find, find_active};
use crate::store::{Page, Session, Status};
use crate::stream::{TurnStream, turn_id};
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use saggar_bridge::client::ClientCommand;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Characters of a message that is a text.
const LONGEST_TEXT: usize = 500_000;
/// Blocks of one that is not.
const MOST_BLOCKS: usize = 20;
/// Between two comments in a stream in which nothing else comes.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The body of a message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendBody {
    content: Value,
    #[serde(default)]
    include_partial_messages: bool,
    model: Option<String>,
    max_turns: Option<u64>,
    max_budget_usd: Option<f64>,
    effort: Option<Effort>,
    thinking: Option<Thinking>,
    output_format: Option<OutputFormat>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Effort {
    Low,
    Medium,
    High,
    Max,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    budget_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct OutputFormat {
    #[serde(rename = "type")]
    kind: String,
    schema: Map<String, Value>,
}

/// The query of a list of messages.
#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    limit: Option<i64>,
    after: Option<i64>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// `POST /api/sessions/:id/messages`: one turn of the agent, as server-sent events. The turn goes on if the client goes away.
pub(super) async fn send(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<SendBody>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    check(&body)?;
    let session = find_active(&app, &caller, id).await?;
    let Some(live) = app.live.get(id) else {
        app.store.change_status(id, &[Status::Active], Status::Error).await?;
        return Err(ApiError::internal("Sandbox not found"));
    };
    let said = json!({ "type": "user", "content": body.content }).to_string();
    app.store.insert_user_message(&caller.tenant, id, &said).await?;
    let frames = TurnStream::start(live, query(&session, body), turn_id()).await;
    let frames =
        frames.map_err(|error| ApiError::internal(format!("The agent cannot be reached: {error}")))?;
    Ok(Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

fn check(body: &SendBody) -> Result<(), ApiError> {
    let refused = |text: &str| Err(ApiError::Body(text.into()));
    match &body.content {
        Value::String(text) if text.chars().count() > LONGEST_TEXT => {
            return refused("body/content must have at most 500000 characters");
        }
        Value::Array(blocks) if blocks.len() > MOST_BLOCKS => {
            return refused("body/content must have at most 20 blocks");
        }
        Value::Array(blocks)
            if blocks.is_empty() || !blocks.iter().all(|block| block["type"].is_string()) =>
        {
            return refused("body/content must have blocks with a type");
        }
        Value::String(_) | Value::Array(_) => {}
        _ => return refused("body/content must be a text or a list of blocks"),
    }
    if body.max_turns == Some(0) {
        return refused("body/maxTurns must be >= 1");
    }
    if body.max_budget_usd.is_some_and(|budget| budget < 0.0) {
        return refused("body/maxBudgetUsd must be >= 0");
    }
    Ok(())
}

/// The query of a turn: the options of the session, then those of the message.
fn query(session: &Session, body: SendBody) -> ClientCommand {
    let mut query = ClientCommand::query(body.content, &session.id.to_string());
    for (name, value) in object(&session.config) {
        query = query.with(&name, value);
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
        ("includePartialMessages", body.include_partial_messages.then_some(Value::from(true))),
        ("model", body.model.or_else(|| session.model.clone()).map(Value::from)),
        ("maxTurns", body.max_turns.map(Value::from)),
        ("maxBudgetUsd", body.max_budget_usd.map(Value::from)),
        ("effort", effort.map(Value::from)),
        ("thinking", thinking),
        (
            "outputFormat",
            body.output_format.map(|format| json!({ "type": format.kind, "schema": format.schema })),
        ),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            query = query.with(name, value);
        }
    }
    query
}

/// `GET /api/sessions/:id/messages`.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Value>, ApiError> {
    let page = page(&query, 100)?;
    find(&app, &caller, id).await?;
    let messages = app.store.messages(&caller.tenant, id, page).await?;
    let messages: Vec<Message> = messages.into_iter().map(Message::from).collect();
    Ok(Json(json!({ "messages": messages })))
}

/// `GET /api/sessions/:id/events`.
pub(super) async fn list_events(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Value>, ApiError> {
    let page = page(&query, 200)?;
    find(&app, &caller, id).await?;
    let events = app.store.events(&caller.tenant, id, page, query.kind.as_deref()).await?;
    let events: Vec<SessionEvent> = events.into_iter().map(SessionEvent::from).collect();
    Ok(Json(json!({ "events": events })))
}

fn page(query: &ListQuery, default: i64) -> Result<Page, ApiError> {
    Ok(Page {
        limit: bounded("limit", query.limit, default, 1..=1000)?,
        after: bounded("after", query.after, 0, 0..=i64::MAX)?,
    })
}
