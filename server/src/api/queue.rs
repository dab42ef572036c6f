//! `/api/queue`: messages that the server sends when their turn comes. [`run_queue`](super::run_queue) sends them.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, QueryParams, body_uuid, bounded, is_agent_name};
use super::message_body::MAX_TEXT_CHARS;
use super::sessions::find_session;
use crate::store::{self, NewQueueItem, QUEUE_STATUSES};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;

/// Maximum number of retries of an item.
const MAX_RETRIES: i64 = 100;

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = EnqueueRequest)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnqueueBody {
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_-]+$")]
    agent_name: String,
    /// The message.
    #[schema(min_length = 1, max_length = 500_000)]
    prompt: String,
    /// The session to send it in. Without one, a session is created.
    #[schema(format = Uuid)]
    session_id: Option<String>,
    /// Items with a higher priority are sent first.
    #[schema(default = 0)]
    priority: Option<i64>,
    #[schema(minimum = 0, maximum = 100, default = 3)]
    max_retries: Option<i64>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ItemsQuery {
    /// Only items with this status: `pending`, `processing`, `completed`, `failed` or `cancelled`.
    status: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<i64>,
}

/// An item in a response.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueItem)]
#[serde(rename_all = "camelCase")]
struct QueueItemObject {
    id: String,
    tenant_id: String,
    #[schema(required)]
    session_id: Option<String>,
    agent_name: String,
    prompt: String,
    /// `pending`, `processing`, `completed`, `failed` or `cancelled`.
    status: String,
    priority: i64,
    retry_count: i64,
    max_retries: i64,
    /// The reason of the last failure.
    #[schema(required)]
    error: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(required, format = DateTime)]
    started_at: Option<String>,
    #[schema(required, format = DateTime)]
    completed_at: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueueItemResponse {
    item: QueueItemObject,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueueItemList {
    items: Vec<QueueItemObject>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueueStats {
    /// Numbers of items by status.
    stats: BTreeMap<String, i64>,
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

/// Adds a message to the queue.
///
/// The agent need not exist yet.
#[utoipa::path(
    post,
    path = "/api/queue",
    operation_id = "enqueue",
    tag = "Queue",
    request_body = EnqueueBody,
    responses(
        (status = 201, description = "The item is added", body = QueueItemResponse),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn enqueue(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<EnqueueBody>,
) -> Result<(StatusCode, Json<QueueItemResponse>), ApiError> {
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

/// Lists the items of the queue, the newest first.
#[utoipa::path(
    get,
    path = "/api/queue",
    operation_id = "listQueueItems",
    tag = "Queue",
    params(ItemsQuery),
    responses((status = 200, description = "The items", body = QueueItemList)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<ItemsQuery>,
) -> Result<Json<QueueItemList>, ApiError> {
    let limit = bounded("limit", query.limit, 50, 1..=500)?;
    if query.status.as_ref().is_some_and(|status| !QUEUE_STATUSES.contains(&status.as_str())) {
        let text = format!("querystring/status must be one of {}", QUEUE_STATUSES.join(", "));
        return Err(ApiError::Parameter(text));
    }
    let items = app.store.queue_items(&caller.tenant, query.status.as_deref(), limit).await?;
    let items = items.into_iter().map(QueueItemObject::from).collect();
    Ok(Json(QueueItemList { items }))
}

/// Returns the number of items with each status.
#[utoipa::path(
    get,
    path = "/api/queue/stats",
    operation_id = "getQueueStats",
    tag = "Queue",
    responses((status = 200, description = "The numbers", body = QueueStats)),
)]
pub(super) async fn stats(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<QueueStats>, ApiError> {
    let mut stats: BTreeMap<String, i64> =
        QUEUE_STATUSES.iter().map(|status| ((*status).to_owned(), 0)).collect();
    stats.extend(app.store.queue_counts(&caller.tenant).await?);
    Ok(Json(QueueStats { stats }))
}

/// Returns an item of the queue.
#[utoipa::path(
    get,
    path = "/api/queue/{id}",
    operation_id = "getQueueItem",
    tag = "Queue",
    params(PathId),
    responses(
        (status = 200, description = "The item", body = QueueItemResponse),
        (status = 404, description = "No such item"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Json<QueueItemResponse>, ApiError> {
    app.store.queue_item(&caller.tenant, id).await?.map(item_response).ok_or_else(not_found)
}

/// Cancels a pending item of the queue.
#[utoipa::path(
    delete,
    path = "/api/queue/{id}",
    operation_id = "cancelQueueItem",
    tag = "Queue",
    params(PathId),
    responses(
        (status = 200, description = "The item is cancelled", body = QueueItemResponse),
        (status = 400, description = "The request is invalid, or the item is not pending"),
        (status = 404, description = "No such item"),
    ),
)]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Json<QueueItemResponse>, ApiError> {
    let is_cancelled = app.store.cancel_queue_item(&caller.tenant, id).await?;
    let item = app.store.queue_item(&caller.tenant, id).await?.ok_or_else(not_found)?;
    if is_cancelled {
        return Ok(item_response(item));
    }
    Err(ApiError::bad_request(format!("Cannot cancel item with status \"{}\"", item.status)))
}

fn item_response(item: store::QueueItem) -> Json<QueueItemResponse> {
    Json(QueueItemResponse { item: item.into() })
}

fn not_found() -> ApiError {
    ApiError::not_found("Queue item not found")
}
