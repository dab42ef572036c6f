//! The states of a session: pause, resume, stop and end, each as a whole, whether its client waits for it or not.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::SessionId;
use super::session_files;
use super::sessions::{answer, find, find_active, note};
use crate::live::Live;
use crate::saggar::{BridgeConnection, call_control};
use crate::store::{Session, Status};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use saggar_bridge::client::{ClientCommand, EventBody};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::warn;
use uuid::Uuid;

type Answer = Result<Json<Value>, ApiError>;

/// How long the end of a sandbox waits until the last of what its agent said is in the database.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A change of the state of a session.
#[derive(Debug, Clone, Copy)]
enum Change {
    Pause,
    Resume,
    Stop,
    End,
}

/// `POST /api/sessions/:id/pause`: the processes of the session stop where they are. Where saggar cannot freeze them, its
/// sandbox ends, and the next resume starts another one with the same workspace and conversation.
pub(super) async fn pause(app: State<Arc<App>>, caller: Caller, id: SessionId) -> Answer {
    change(app, caller, id, Change::Pause).await
}

/// `POST /api/sessions/:id/resume`: lets a session go on, or starts it again.
pub(super) async fn resume(app: State<Arc<App>>, caller: Caller, id: SessionId) -> Answer {
    change(app, caller, id, Change::Resume).await
}

/// `POST /api/sessions/:id/stop`: ends the sandbox. The session can be resumed.
pub(super) async fn stop(app: State<Arc<App>>, caller: Caller, id: SessionId) -> Answer {
    change(app, caller, id, Change::Stop).await
}

/// `DELETE /api/sessions/:id`: ends it for good. Its messages and its workspace stay.
pub(super) async fn end(app: State<Arc<App>>, caller: Caller, id: SessionId) -> Answer {
    change(app, caller, id, Change::End).await
}

/// Changes a session, one change at a time, and answers with what it is then. A client that goes away does not stop a change
/// in the middle.
async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    change: Change,
) -> Answer {
    find(&app, &caller, id).await?;
    let task = tokio::spawn(async move {
        let _alone = app.live.lock_changes(id).await;
        let session = find(&app, &caller, id).await?;
        match change {
            Change::Pause => pause_session(&app, &session).await,
            Change::Resume => resume_session(&app, &session).await,
            Change::Stop => stop_session(&app, &session).await,
            Change::End => end_session(&app, &session).await,
        }?;
        find(&app, &caller, id).await
    });
    task.await.unwrap_or_else(|_| Err(ApiError::internal("The session was not changed"))).map(answer)
}

async fn pause_session(app: &App, session: &Session) -> Result<(), ApiError> {
    let id = session.id;
    if session.status != Status::Active {
        return Err(wrong_status("pause", session));
    }
    if let Err(failure) = app.program.pause(id).await {
        warn!("session {id} cannot be frozen, and its sandbox ends: {}", failure.0);
        shut_down(app, id).await?;
    }
    app.store.change_status(id, &[Status::Active], Status::Paused).await?;
    note(app, session, &json!({ "action": "paused" })).await
}

async fn resume_session(app: &App, session: &Session) -> Result<(), ApiError> {
    let (id, was_live) = (session.id, app.live.get(session.id));
    match session.status {
        Status::Ended => {
            return Err(ApiError::own(StatusCode::GONE, "Session has ended — create a new session"));
        }
        Status::Active if was_live.is_some() => return Ok(()),
        _ => {}
    }
    let _folder = app.folders.read().await;
    let resumed = app.program.resume(id).await;
    let record =
        resumed.map_err(|failure| ApiError::internal(format!("Failed to resume session: {}", failure.0)))?;
    // Its recorder goes on, if it is the same sandbox.
    let is_warm = was_live.is_some_and(|live| record.bridge_socket.as_ref() == Some(&live.bridge));
    if !is_warm && app.live.take_up(session, &record).is_none() {
        return Err(ApiError::internal("Failed to resume session: it ended at once"));
    }
    app.store.set_running(id, &record.sandbox, Status::Active).await?;
    let resumed = match is_warm {
        true => json!({ "action": "resumed", "path": "warm" }),
        false => json!({ "action": "resumed", "path": "cold", "source": "local" }),
    };
    note(app, session, &resumed).await
}

async fn stop_session(app: &App, session: &Session) -> Result<(), ApiError> {
    let id = session.id;
    if !matches!(session.status, Status::Active | Status::Starting) {
        return Err(wrong_status("stop", session));
    }
    shut_down(app, id).await?;
    let from = [Status::Active, Status::Paused, Status::Starting, Status::Error];
    app.store.change_status(id, &from, Status::Stopped).await?;
    note(app, session, &json!({ "action": "stopped" })).await
}

async fn end_session(app: &App, session: &Session) -> Result<(), ApiError> {
    let id = session.id;
    if session.status == Status::Ended {
        return Ok(());
    }
    end_sandbox(app, id, false).await?;
    let from = [Status::Active, Status::Paused, Status::Stopped, Status::Error, Status::Starting];
    app.store.change_status(id, &from, Status::Ended).await?;
    note(app, session, &json!({ "action": "ended" })).await
}

/// `POST /api/sessions/:id/interrupt`: aborts the turn that runs, if one does.
pub(super) async fn interrupt(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<Value>, ApiError> {
    find_active(&app, &caller, id).await?;
    let live = app.live.get(id).ok_or_else(|| ApiError::internal("Sandbox not found"))?;
    let failed = |error| ApiError::internal(format!("Failed to interrupt session: {error}"));
    let interrupt = ClientCommand::interrupt().with_id("interrupt");
    let mut connection = BridgeConnection::open(&live.bridge, &[interrupt]).await.map_err(failed)?;
    while let Some(event) = connection.receive().await.map_err(failed)? {
        match event.body() {
            EventBody::Done(_) => return Ok(Json(json!({ "ok": true }))),
            EventBody::Error(text) => return Err(failed(crate::error::Error::new(text))),
            _ => {}
        }
    }
    Err(failed(crate::error::Error::new("the sandbox has ended")))
}

/// Ends a session and removes all of it but its rows.
pub(super) async fn remove(app: &App, session: &Session) -> Result<(), ApiError> {
    let _alone = app.live.lock_changes(session.id).await;
    end_sandbox(app, session.id, true).await?;
    session_files::remove(app, session.id).await;
    Ok(())
}

/// Ends the sandbox of a session that may be resumed.
async fn shut_down(app: &App, id: Uuid) -> Result<(), ApiError> {
    let Some(live) = app.live.get(id) else { return Ok(()) };
    let ended = call_control(live.control.clone(), "shutdown", json!({})).await;
    ended.map_err(|failure| ApiError::internal(format!("The sandbox was not ended: {}", failure.0)))?;
    wait_for_last_words(&live).await;
    Ok(())
}

/// Ends a session for good.
async fn end_sandbox(app: &App, id: Uuid, remove: bool) -> Result<(), ApiError> {
    let live = app.live.get(id);
    // One that saggar does not know has no sandbox to end.
    if app.program.show(id).await.is_ok() {
        let ended = app.program.end(id, remove).await;
        ended.map_err(|failure| ApiError::internal(format!("Failed to end session: {}", failure.0)))?;
    }
    if let Some(live) = live {
        wait_for_last_words(&live).await;
    }
    Ok(())
}

async fn wait_for_last_words(live: &Live) {
    if timeout(LAST_WORDS, live.wait_until_over()).await.is_err() {
        warn!("session {}: the last of what its agent said is not in the database yet", live.id);
    }
}

fn wrong_status(verb: &str, session: &Session) -> ApiError {
    ApiError::bad_request(format!("Cannot {verb} session with status \"{}\"", session.status))
}
