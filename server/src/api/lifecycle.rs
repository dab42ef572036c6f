//! Lifecycle of a session: pause, resume, stop and end. Each change completes even if the client disconnects.

use super::App;
use super::agent_lock::restore_error;
use super::attachments;
use super::auth::Caller;
use super::error::ApiError;
use super::eviction::acquire_slot;
use super::extract::SessionId;
use super::objects::{Confirmation, SessionResponse};
use super::sessions::{
    find_active_session, find_sandbox, find_session, record_lifecycle_event, session_response,
};
use crate::capacity::SandboxSlot;
use crate::error::Error;
use crate::running::RunningSession;
use crate::saggar::{
    BridgeConnection, CONTROL_TIMEOUT, SessionRecord, SessionSocket, SessionState, call_control,
};
use crate::session_directory::{remove_generation, remove_session_directory};
use crate::store::{Session, Status};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use saggar_bridge::client::{ClientCommand, EventBody};
use saggar_sys::error::Code;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;
use tracing::warn;

type JsonResponse = Result<Json<SessionResponse>, ApiError>;

/// Maximum wait for the recorder after a sandbox has exited.
const RECORDER_TIMEOUT: Duration = Duration::from_secs(10);

/// A state change that a client requests.
#[derive(Debug, Clone, Copy)]
enum Change {
    Pause,
    Resume,
    Stop,
    End,
}

/// Freezes the processes of a session.
///
/// If saggar cannot freeze them, the sandbox is shut down, and resume starts a new one with the same workspace and
/// conversation.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/pause",
    operation_id = "pauseSession",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 200, description = "The session is paused", body = SessionResponse),
        (status = 400, description = "The request is invalid, or the session is not active"),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn pause(app: State<Arc<App>>, caller: Caller, id: SessionId) -> JsonResponse {
    change(app, caller, id, Change::Pause).await
}

/// Thaws a session, or starts it in a new sandbox.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/resume",
    operation_id = "resumeSession",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 200, description = "The session is active", body = SessionResponse),
        (status = 404, description = "No such session"),
        (status = 410, description = "The session has ended"),
    ),
)]
pub(super) async fn resume(app: State<Arc<App>>, caller: Caller, id: SessionId) -> JsonResponse {
    change(app, caller, id, Change::Resume).await
}

/// Shuts the sandbox of a session down.
///
/// The session can be resumed.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/stop",
    operation_id = "stopSession",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 200, description = "The session is stopped", body = SessionResponse),
        (status = 400, description = "The request is invalid, or the session is not active"),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn stop(app: State<Arc<App>>, caller: Caller, id: SessionId) -> JsonResponse {
    change(app, caller, id, Change::Stop).await
}

/// Ends a session permanently.
///
/// Its messages and its workspace are retained.
#[utoipa::path(
    delete,
    path = "/api/sessions/{id}",
    operation_id = "endSession",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 200, description = "The session has ended", body = SessionResponse),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn end(app: State<Arc<App>>, caller: Caller, id: SessionId) -> JsonResponse {
    change(app, caller, id, Change::End).await
}

/// Changes the state of a session and returns the session. Changes of one session are serialized. A task of its own
/// completes the change even if the client disconnects.
async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    change: Change,
) -> JsonResponse {
    let session = find_session(&app, &caller, id).await?;
    let tasks = app.tasks.clone();
    let changed = tasks.run(async move {
        let slot = match change {
            Change::Resume => acquire_slot_to_resume(&app, &session).await?,
            _ => None,
        };
        let _session_lock = app.running.lock_session(id).await;
        let session = find_session(&app, &caller, id).await?;
        match change {
            Change::Pause => pause_session(&app, &session).await,
            Change::Resume => resume_session(&app, &session, slot).await,
            Change::Stop => stop_session(&app, &session).await,
            Change::End => end_session(&app, &session).await,
        }?;
        app.running.changes().add_session(&session.tenant_id, id);
        find_session(&app, &caller, id).await
    });
    changed
        .await
        .unwrap_or_else(|| Err(ApiError::internal("Cannot change the session: internal error")))
        .map(session_response)
}

async fn pause_session(app: &App, session: &Session) -> Result<(), ApiError> {
    if session.status != Status::Active {
        return Err(status_conflict("pause", session));
    }
    freeze(app, session).await?;
    record_lifecycle_event(app, session, &json!({ "action": "paused" })).await
}

/// Freezes the processes of an active session, or shuts its sandbox down, and stores that the session is paused. The
/// caller holds the lock of the session.
pub(super) async fn freeze(app: &App, session: &Session) -> Result<(), ApiError> {
    let failed =
        |error: &dyn std::fmt::Display| ApiError::internal(format!("Failed to pause session: {error}"));
    let running = app.running.attach_if_served(session).await.map_err(|error| failed(&error))?;
    if let Some(running) = running {
        running.mark_used();
        match call_control(&running.control, "pause", &json!({}), CONTROL_TIMEOUT).await {
            Ok(_) => {}
            // Without a cgroup. The session is resumed in a new sandbox.
            Err(error) if error.code() == Code::Unsupported && !app.sandboxes.are_pods() => {
                shut_down(app, session).await?;
            }
            Err(error) => return Err(failed(&error)),
        }
    } else if app.sandboxes.are_pods() {
        return Err(failed(&"its pod has ended"));
    }
    app.store.change_status(session.id, &[Status::Active], Status::Paused).await?;
    Ok(())
}

/// Returns the slot for a new sandbox of a session; `None` if it has a sandbox, or has ended. Call it before the session is
/// locked.
pub(super) async fn acquire_slot_to_resume(
    app: &App,
    session: &Session,
) -> Result<Option<SandboxSlot>, ApiError> {
    let failed = |error| ApiError::internal(format!("Failed to resume session: {error}"));
    if session.status == Status::Ended || app.running.get_or_attach(session).await.map_err(failed)?.is_some()
    {
        return Ok(None);
    }
    acquire_slot(app, &session.tenant_id, "resume").await.map(Some)
}

/// Continues a session, in a new sandbox with this slot if it has none. The caller holds its lock.
pub(super) async fn resume_session(
    app: &App,
    session: &Session,
    slot: Option<SandboxSlot>,
) -> Result<(), ApiError> {
    let (id, previous) = (session.id, app.running.get(session.id));
    let failed = |error| ApiError::internal(format!("Failed to resume session: {error}"));
    if session.status == Status::Ended {
        return Err(ended());
    }
    let state = app.running.find_session(session).await.map_err(failed)?.map(|record| record.state);
    match (session.status, state) {
        (_, Some(SessionState::Ended)) => {
            app.store.change_status(id, &[session.status], Status::Ended).await?;
            remove_session_directory(&app.data_dir, id).await;
            return Err(ended());
        }
        (Status::Active, Some(SessionState::Active)) if previous.is_some() => return Ok(()),
        // It may be frozen: by a limit, or by the operator.
        _ => {}
    }
    // Without one, the sandbox runs, or has exited a moment ago.
    let slot = slot.unwrap_or_else(|| app.running.capacity().acquire_for_running(&session.tenant_id));
    let record = match state {
        Some(_) => app.sandboxes.resume(id).await.map_err(failed)?,
        None => restore(app, session).await?,
    };
    app.store.set_running(id, &record.sandbox, Status::Active).await?;
    // The recorder of the same sandbox is still running.
    if let Some(running) = previous.filter(|running| record.sandbox == running.sandbox) {
        running.mark_used();
        app.resumes.warm.fetch_add(1, Ordering::Relaxed);
        return record_lifecycle_event(app, session, &json!({ "action": "resumed", "path": "warm" })).await;
    }
    if app.running.attach_with_hosts(session, &record, slot).await.is_none() {
        return Err(ApiError::internal("Failed to resume session: the sandbox exited immediately"));
    }
    let (counter, source) = match state {
        Some(_) => (&app.resumes.cold, "local"),
        None => (&app.resumes.restored, "cloud"),
    };
    counter.fetch_add(1, Ordering::Relaxed);
    let resumed = json!({ "action": "resumed", "path": "cold", "source": source });
    record_lifecycle_event(app, session, &resumed).await
}

/// Starts a session that is not on this machine from its copy in the snapshot store.
async fn restore(app: &App, session: &Session) -> Result<SessionRecord, ApiError> {
    let failed = |cause: &dyn std::fmt::Display| {
        ApiError::internal(format!("Failed to resume session: it is not on this machine: {cause}"))
    };
    match (&app.persisted, &session.copy) {
        (_, None) => Err(failed(&"no copy of it is in a snapshot store")),
        (None, Some(_)) => Err(failed(&"its copy is in a snapshot store: set --snapshot-url")),
        (Some(persisted), Some(copy)) => {
            let what = "Failed to resume session: it is not on this machine";
            persisted.restore(session, copy).await.map_err(|error| restore_error(what, error))
        }
    }
}

async fn stop_session(app: &App, session: &Session) -> Result<(), ApiError> {
    let id = session.id;
    if !matches!(session.status, Status::Active | Status::Starting) {
        return Err(status_conflict("stop", session));
    }
    shut_down(app, session).await?;
    let from = [Status::Active, Status::Paused, Status::Starting, Status::Error];
    app.store.change_status(id, &from, Status::Stopped).await?;
    record_lifecycle_event(app, session, &json!({ "action": "stopped" })).await
}

async fn end_session(app: &App, session: &Session) -> Result<(), ApiError> {
    let id = session.id;
    if session.status == Status::Ended {
        // Of a session that ended while no server was attached.
        remove_session_directory(&app.data_dir, id).await;
        return Ok(());
    }
    let has_recorder = app.running.get(id).is_some();
    end_sandbox(app, session, false).await?;
    if !has_recorder {
        // Of a sandbox that exited while no server was attached.
        app.running.record_stored(session).await;
    }
    let from = [Status::Active, Status::Paused, Status::Stopped, Status::Error, Status::Starting];
    app.store.change_status(id, &from, Status::Ended).await?;
    // It has the variables, which can be secrets, and no later start needs them.
    remove_session_directory(&app.data_dir, id).await;
    record_lifecycle_event(app, session, &json!({ "action": "ended" })).await
}

/// Aborts the current turn of a session.
///
/// It is not an error if no turn is running.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/interrupt",
    operation_id = "interruptSession",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 200, description = "No turn is running", body = Confirmation),
        (status = 400, description = "The request is invalid, or the session is not active"),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn interrupt(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<Confirmation>, ApiError> {
    let session = find_active_session(&app, &caller, id).await?;
    let running = find_sandbox(&app, &session).await?;
    let failed = |error| ApiError::internal(format!("Failed to interrupt session: {error}"));
    match timeout(CONTROL_TIMEOUT, interrupt_turn(&running.bridge)).await {
        Ok(result) => result.map_err(failed).map(|()| Json(Confirmation::new())),
        Err(_) => Err(failed(Error::new(format!("the bridge did not answer within {CONTROL_TIMEOUT:?}")))),
    }
}

async fn interrupt_turn(bridge: &SessionSocket) -> Result<(), Error> {
    let interrupt = ClientCommand::interrupt().with_id("interrupt");
    let mut connection = BridgeConnection::open(bridge, &[interrupt]).await?;
    while let Some(event) = connection.receive().await? {
        match event.body() {
            EventBody::Done(_) => return Ok(()),
            EventBody::Error(text) => return Err(Error::new(text)),
            _ => {}
        }
    }
    Err(Error::new("the sandbox has exited"))
}

/// Ends a session and removes its files. Its rows remain.
pub(super) async fn remove(app: &App, session: &Session) -> Result<(), ApiError> {
    let _session_lock = app.running.lock_session(session.id).await;
    remove_session(app, session).await
}

/// The same, for a caller that holds the lock of the session.
pub(super) async fn remove_session(app: &App, session: &Session) -> Result<(), ApiError> {
    end_sandbox(app, session, true).await?;
    remove_session_directory(&app.data_dir, session.id).await;
    remove_generation(&app.data_dir, session.id).await;
    attachments::remove_files(app, session.id).await;
    Ok(())
}

/// The same for a session that no client knows: its row is deleted too.
pub(super) async fn discard_session(app: &App, session: &Session) -> Result<(), ApiError> {
    remove_session(app, session).await?;
    app.store.delete_session(session.id).await?;
    app.running.changes().add_removals();
    Ok(())
}

/// Discards a session that could not be started, and returns the error of its start. That a rest remains is logged: it is
/// not what the client asked for.
pub(super) async fn discard_failed(app: &App, session: &Session, error: ApiError) -> ApiError {
    if let Err(rest) = discard_session(app, session).await {
        warn!("session {} has not started, and a rest of it remains: {}", session.id, rest.into_text());
    }
    error
}

/// Shuts the sandbox of a session down. The session can be resumed.
async fn shut_down(app: &App, session: &Session) -> Result<(), ApiError> {
    let failed =
        |error: &dyn std::fmt::Display| ApiError::internal(format!("Cannot shut the sandbox down: {error}"));
    let running = app.running.attach_if_served(session).await.map_err(|error| failed(&error))?;
    let Some(running) = running else { return Ok(()) };
    let ended = call_control(&running.control, "shutdown", &json!({}), CONTROL_TIMEOUT).await;
    ended.map_err(|error| failed(&error))?;
    wait_for_recorder(&running).await;
    Ok(())
}

/// Ends a session permanently. With `remove`, also removes its files in saggar.
async fn end_sandbox(app: &App, session: &Session, remove: bool) -> Result<(), ApiError> {
    let running = app.running.get(session.id);
    let ended = app.sandboxes.end(session.id, &session.sandbox_id, remove).await;
    ended.map_err(|error| ApiError::internal(format!("Failed to end session: {error}")))?;
    if let Some(running) = running {
        wait_for_recorder(&running).await;
    }
    Ok(())
}

fn ended() -> ApiError {
    ApiError::with_status(StatusCode::GONE, "Session has ended — create a new session")
}

/// Waits until the events of a sandbox that has ended are stored.
pub(super) async fn wait_for_recorder(running: &RunningSession) {
    if timeout(RECORDER_TIMEOUT, running.wait_until_finished()).await.is_err() {
        warn!("session {}: the recorder has not finished yet", running.id);
    }
}

fn status_conflict(verb: &str, session: &Session) -> ApiError {
    ApiError::bad_request(format!("Cannot {verb} session with status \"{}\"", session.status))
}
