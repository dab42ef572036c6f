//! `/api/queue`: messages that the server sends when their turn comes. [`run_queue`](super::run_queue) sends them.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, QueryParams, body_uuid, bounded, is_agent_name};
use super::messages::MAX_TEXT_CHARS;
use super::sessions::find_session;
use crate::store::{self, NewQueueItem, QUEUE_STATUSES};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum number of retries of an item.
const MAX_RETRIES: i64 = 100;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnqueueBody {
    agent_name: String,
    prompt: String,
    session_id: Option<String>,
    priority: Option<i64>,
    max_retries: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ItemsQuery {
    status: Option<String>,
    limit: Option<i64>,
}

/// An item in a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueItemObject {
    id: String,
    tenant_id: String,
    session_id: Option<String>,
    agent_name: String,
    prompt: String,
    status: String,
    priority: i64,
    retry_count: i64,
    max_retries: i64,
    error: Option<String>,
    created_at: String,
    started_at: Option<String>,
    completed_at: Option<String>,
}

impl From<store::QueueItem> for QueueItemObject {
    fn from(item: store::QueueItem) -> Self {
        QueueItemObject {
            id: item.id,
            tenant_id: item.tenant_id,
            session_id: item.session_id,
            agent_name: item.agent_name,
            prompt: item.prompt,
            status: item.status,
            priority: item.priority,
            retry_count: item.retry_count,
            max_retries: item.max_retries,
            error: item.error,
            created_at: item.created_at,
            started_at: item.started_at,
            completed_at: item.completed_at,
        }
    }
}

/// `POST /api/queue`. The agent need not exist yet.
pub(super) async fn enqueue(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<EnqueueBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let invalid = |text: &str| Err(ApiError::Body(text.into()));
    if !is_agent_name(&body.agent_name) {
        return invalid("body/agentName must have 1 to 255 letters, digits, _ or -");
    }
    if body.prompt.is_empty() || body.prompt.chars().count() > MAX_TEXT_CHARS {
        return invalid("body/prompt must have 1 to 500000 characters");
    }
    let max_retries = body.max_retries.unwrap_or(3);
    if !(0..=MAX_RETRIES).contains(&max_retries) {
        return invalid("body/maxRetries must be 0 to 100");
    }
    let session = body_uuid("sessionId", body.session_id.as_deref())?;
    if let Some(session) = session {
        let session = find_session(&app, &caller, session).await?;
        if session.agent_name != body.agent_name {
            let text = format!("The session belongs to the agent \"{}\": use its name", session.agent_name);
            return Err(ApiError::bad_request(text));
        }
    }
    let new = NewQueueItem {
        tenant: &caller.tenant,
        session,
        agent: &body.agent_name,
        prompt: &body.prompt,
        priority: body.priority.unwrap_or(0),
        max_retries,
    };
    let item = app.store.insert_queue_item(&new).await?;
    app.queue_wakeup.notify_one();
    Ok((StatusCode::CREATED, item_response(item)))
}

/// `GET /api/queue`.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<ItemsQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = bounded("limit", query.limit, 50, 1..=500)?;
    if query.status.as_ref().is_some_and(|status| !QUEUE_STATUSES.contains(&status.as_str())) {
        let text = format!("querystring/status must be one of {}", QUEUE_STATUSES.join(", "));
        return Err(ApiError::Parameter(text));
    }
    let items = app.store.queue_items(&caller.tenant, query.status.as_deref(), limit).await?;
    let items: Vec<QueueItemObject> = items.into_iter().map(QueueItemObject::from).collect();
    Ok(Json(json!({ "items": items })))
}

/// `GET /api/queue/stats`.
pub(super) async fn stats(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<Value>, ApiError> {
    let mut stats: Map<String, Value> =
        QUEUE_STATUSES.iter().map(|status| ((*status).to_owned(), 0.into())).collect();
    for (status, count) in app.store.queue_counts(&caller.tenant).await? {
        stats.insert(status, count.into());
    }
    Ok(Json(json!({ "stats": stats })))
}

/// `GET /api/queue/:id`.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Json<Value>, ApiError> {
    app.store.queue_item(&caller.tenant, id).await?.map(item_response).ok_or_else(not_found)
}

/// `DELETE /api/queue/:id`: cancels a pending item.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Json<Value>, ApiError> {
    let is_cancelled = app.store.cancel_queue_item(&caller.tenant, id).await?;
    let item = app.store.queue_item(&caller.tenant, id).await?.ok_or_else(not_found)?;
    if is_cancelled {
        return Ok(item_response(item));
    }
    Err(ApiError::bad_request(format!("Cannot cancel item with status \"{}\"", item.status)))
}

fn item_response(item: store::QueueItem) -> Json<Value> {
    Json(json!({ "item": QueueItemObject::from(item) }))
}

fn not_found() -> ApiError {
    ApiError::not_found("Queue item not found")
}
