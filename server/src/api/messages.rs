//! Messages and events of a session: the stream of a turn, and the stored lists.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, QueryParams, SessionId, bounded};
use super::message_body::{SendBody, build_query, check_body};
use super::objects::{Message, MessageList, SessionEvent, SessionEventList};
use super::pod_sessions::check_start_options;
use super::sessions::{UsedSandbox, find_session, find_session_here, use_sandbox};
use crate::digest::sha256_hex;
use crate::running::{RunningSession, SessionUse};
use crate::saggar::BridgeConnection;
use crate::store::{KeyedMessage, Page, Session};
use crate::stream::{FrameId, SessionStream, StreamEvent, TurnStream, new_turn_id};
use crate::traces::current_trace_context;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;
use uuid::Uuid;

/// The header by which a client repeats a message that may have arrived.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Maximum length of its value, in bytes.
const MAX_KEY_LENGTH: usize = 255;
/// Interval between comments in a stream without other output.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct StreamQuery {
    /// Only events with a greater id.
    #[param(minimum = 0, default = 0)]
    after: Option<u64>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MessageQuery {
    /// Maximum number of messages.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// Only messages with a greater sequence number.
    #[param(minimum = 0, default = 0)]
    after: Option<i64>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventQuery {
    /// Maximum number of events.
    #[param(minimum = 1, maximum = 1000, default = 200)]
    limit: Option<i64>,
    /// Only events with a greater sequence number.
    #[param(minimum = 0, default = 0)]
    after: Option<i64>,
    /// Only events of this type.
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// Sends a message and streams its turn.
///
/// If the client disconnects, the turn continues. A repetition with the same `Idempotency-Key` receives the stream of
/// the same turn.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/messages",
    operation_id = "sendMessage",
    tag = "Messages",
    params(
        SessionId,
        (
            "idempotency-key" = Option<String>,
            Header,
            description = "Names the message, so that it can be repeated without being sent twice",
            min_length = 1,
            max_length = 255,
        ),
    ),
    request_body = SendBody,
    responses(
        (status = 200, description = "The events of the turn", body = StreamEvent, content_type = "text/event-stream"),
        (status = 400, description = "The request is invalid, or the session is not active"),
        (status = 404, description = "No such session"),
        (status = 422, description = "The `Idempotency-Key` was used for another message of the session"),
        (status = 501, description = "A session in a pod does not have this"),
    ),
)]
pub(super) async fn send(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    headers: HeaderMap,
    JsonBody(body): JsonBody<SendBody>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    check_body(&body)?;
    check_start_options(&app, body.start_options())?;
    let key = idempotency_key(&headers)?;
    let tasks = app.tasks.clone();
    // A task of its own: a message that is stored is also sent to the agent, even if the client disconnects.
    let started = tasks.run(async move {
        let OpenTurn { session, running, usage, connection, turn, number, is_repeated } =
            open_turn(&app, &caller, id, &body, key).await?;
        // The turn of a repeated message can have ended.
        let trace_context = match is_repeated {
            true => current_trace_context(),
            false => running.turn_spans().begin(&turn, &session, body.model(&session)),
        };
        let query = build_query(&session, body, trace_context).with("uuid", turn.clone());
        Ok(TurnStream::start(running, usage, connection, query, turn, number, app.tasks.clone()))
    });
    let frames = started
        .await
        .unwrap_or_else(|| Err(ApiError::internal("Cannot send the message to the agent: internal error")))?;
    Ok(Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT_INTERVAL)))
}

/// Returns the key of a message that may be repeated.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let is_valid = |key: &&str| !key.is_empty() && key.len() <= MAX_KEY_LENGTH;
    match key.to_str().ok().filter(is_valid) {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(ApiError::Parameter(format!(
            "headers/{IDEMPOTENCY_KEY} must be 1 to {MAX_KEY_LENGTH} printable ASCII characters"
        ))),
    }
}

/// A connection to the agent of an active session, whose message is stored and not sent yet.
pub(super) struct OpenTurn {
    pub(super) session: Session,
    pub(super) running: Arc<RunningSession>,
    /// Held until the sandbox runs the turn.
    pub(super) usage: SessionUse,
    pub(super) connection: BridgeConnection,
    /// The command id of the turn.
    pub(super) turn: String,
    /// The number of an event before those of the turn.
    pub(super) number: u64,
    /// The message was stored by an earlier request.
    pub(super) is_repeated: bool,
}

/// Connects to the agent of an active session, and stores the message, unless one with the same key is stored.
///
/// The connection is established while the database is read and written, which takes as long.
pub(super) async fn open_turn(
    app: &App,
    caller: &Caller,
    id: Uuid,
    body: &SendBody,
    key: Option<String>,
) -> Result<OpenTurn, ApiError> {
    let early = app.running.get(id).filter(|running| running.tenant == caller.tenant);
    let early_connection = async {
        match &early {
            // It can be that of a sandbox that exits now: then there is another error, or another sandbox.
            Some(running) => Ok(BridgeConnection::connect(&running.bridge).await.ok()),
            None => Ok(None),
        }
    };
    let stored = async {
        let used = use_sandbox(app, caller, id).await?;
        let message = store_message(app, &used, body, key).await?;
        Ok::<_, ApiError>((used, message))
    };
    let ((used, message), connection) = tokio::try_join!(stored, early_connection)?;
    let UsedSandbox { session, running, usage } = used;
    let is_current = early.is_some_and(|early| Arc::ptr_eq(&early, &running));
    let connection = match connection.filter(|_| is_current) {
        Some(connection) => Ok(connection),
        None => BridgeConnection::connect(&running.bridge).await,
    };
    let connection = match connection {
        Ok(connection) => connection,
        Err(error) => {
            // The client sends it again. A repetition with the same key finds it in the database.
            if let Some(unsent) = message.without_key
                && let Err(error) = app.store.delete_message(&unsent).await
            {
                warn!("session {id}: cannot delete a message that was not sent: {error}");
            }
            return Err(ApiError::internal(format!("Cannot send the message to the agent: {error}")));
        }
    };
    let StoredMessage { turn, number, is_repeated, .. } = message;
    Ok(OpenTurn { session, running, usage, connection, turn, number, is_repeated })
}

/// A message in the database.
struct StoredMessage {
    /// The command id of its turn.
    turn: String,
    /// The number of an event before those of the turn.
    number: u64,
    /// It was stored by an earlier request.
    is_repeated: bool,
    /// Its id, if it has no key.
    without_key: Option<String>,
}

/// Stores the message of a request, unless one with the same key is stored.
async fn store_message(
    app: &App,
    used: &UsedSandbox,
    body: &SendBody,
    key: Option<String>,
) -> Result<StoredMessage, ApiError> {
    let (tenant, session) = (&used.session.tenant_id, used.session.id);
    let content = json!({ "type": "user", "content": body.content }).to_string();
    let (turn, number) = (new_turn_id(), used.running.recorded());
    let Some(key) = key else {
        let id = app.store.insert_user_message(tenant, session, &content).await?;
        return Ok(StoredMessage { turn, number, is_repeated: false, without_key: Some(id) });
    };
    let body_hash = sha256_hex(&serde_json::to_vec(body).unwrap_or_default());
    let new = KeyedMessage {
        body_hash: body_hash.clone(),
        turn_id: turn.clone(),
        after_event: i64::try_from(number).unwrap_or(i64::MAX),
    };
    let message = app.store.insert_message_once(tenant, session, &content, &key, new).await?;
    if message.body_hash != body_hash {
        let text = format!("{IDEMPOTENCY_KEY} was used for another message of this session");
        return Err(ApiError::with_status(StatusCode::UNPROCESSABLE_ENTITY, text));
    }
    Ok(StoredMessage {
        number: u64::try_from(message.after_event).unwrap_or_default(),
        is_repeated: message.turn_id != turn,
        turn: message.turn_id,
        without_key: None,
    })
}

/// Streams the events of all turns of a session.
///
/// They begin after the event with the id in `Last-Event-ID` or `after`. Without a sandbox, the stream ends after the
/// last stored event.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/stream",
    operation_id = "streamSession",
    tag = "Messages",
    params(
        SessionId,
        StreamQuery,
        ("last-event-id" = Option<u64>, Header, description = "Takes precedence over `after`"),
    ),
    responses(
        (status = 200, description = "The events", body = StreamEvent, content_type = "text/event-stream"),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryParams(query): QueryParams<StreamQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let received = match headers.get("last-event-id").map(HeaderValue::to_str) {
        Some(id) => {
            let id = id.ok().and_then(|id| id.trim().parse().ok());
            id.ok_or_else(|| ApiError::Parameter("headers/last-event-id must be a number".into()))?
        }
        None => query.after.unwrap_or(0),
    };
    let after = FrameId::received(received);
    let session = find_session_here(&app, &caller, id).await?;
    let attached = app.running.get_or_attach(&session).await;
    let failed =
        |error: &dyn std::fmt::Display| ApiError::internal(format!("Cannot stream the session: {error}"));
    let frames = match attached.map_err(|error| failed(&error))? {
        Some(running) => {
            let started = SessionStream::start_running(running, after, app.tasks.clone()).await;
            started.map_err(|error| failed(&error))?
        }
        None => {
            let stored = app.sandboxes.stored_events(id, &session.sandbox_id, after.events_before()).await;
            let stored = stored.map_err(|error| failed(&error))?;
            SessionStream::start_stored(id, stored, after, app.tasks.clone())
        }
    };
    Ok(Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT_INTERVAL)))
}

/// Lists the messages of a session.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/messages",
    operation_id = "listMessages",
    tag = "Messages",
    params(SessionId, MessageQuery),
    responses(
        (status = 200, description = "The messages by sequence number", body = MessageList),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryParams(query): QueryParams<MessageQuery>,
) -> Result<Json<MessageList>, ApiError> {
    let page = parse_page(query.limit, query.after, 100)?;
    find_session(&app, &caller, id).await?;
    let messages = app.store.messages(&caller.tenant, id, page).await?;
    let messages = messages.into_iter().map(Message::from).collect();
    Ok(Json(MessageList { messages }))
}

/// Lists the stored events of a session.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/events",
    operation_id = "listSessionEvents",
    tag = "Messages",
    params(SessionId, EventQuery),
    responses(
        (status = 200, description = "The events by sequence number", body = SessionEventList),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn list_events(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryParams(query): QueryParams<EventQuery>,
) -> Result<Json<SessionEventList>, ApiError> {
    let page = parse_page(query.limit, query.after, 200)?;
    find_session(&app, &caller, id).await?;
    let events = app.store.events(&caller.tenant, id, page, query.kind.as_deref()).await?;
    let events = events.into_iter().map(SessionEvent::from).collect();
    Ok(Json(SessionEventList { events }))
}

fn parse_page(limit: Option<i64>, after: Option<i64>, default: i64) -> Result<Page, ApiError> {
    Ok(Page {
        limit: bounded("limit", limit, default, 1..=1000)?,
        after: bounded("after", after, 0, 0..=i64::MAX)?,
    })
}
