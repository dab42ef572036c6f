//! Snapshots of sessions, and sessions that start from them.

use super::App;
use super::agent_variables;
use super::auth::Caller;
use super::error::ApiError;
use super::eviction::acquire_slot;
use super::extract::{SessionId, SessionPath};
use super::lifecycle;
use super::objects::{Confirmation, SessionResponse, parse_object};
use super::session_files;
use super::sessions::{
    agent_to_start, find_session, find_session_here, record_lifecycle_event, session_response, start_sandbox,
};
use crate::capacity::SandboxSlot;
use crate::clock;
use crate::permission_mode::PermissionMode;
use crate::saggar::{CommandError, Snapshot};
use crate::session_policy::SessionPolicy;
use crate::store::{Agent, NewSession, Session};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

/// Maximum number of snapshots of a session.
const MAX_SNAPSHOTS: usize = 100;

/// Takes a snapshot of a session.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/snapshots",
    operation_id = "createSnapshot",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 201, description = "The snapshot is taken", body = SnapshotResponse),
        (status = 404, description = "No such session"),
        (status = 409, description = "The session has too many snapshots"),
    ),
)]
pub(super) async fn take(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<(StatusCode, Json<SnapshotResponse>), ApiError> {
    find_session_here(&app, &caller, id).await?;
    let tasks = app.tasks.clone();
    let taken = tasks.run(async move {
        let _session_lock = app.running.lock_session(id).await;
        let count = app.program.list_snapshots(id).await.map_err(|error| failed(&error))?.len();
        if count >= MAX_SNAPSHOTS {
            let text = format!("The session has {count} snapshots: delete one first");
            return Err(ApiError::with_status(StatusCode::CONFLICT, text));
        }
        app.program.take_snapshot(id).await.map_err(|error| failed(&error))
    });
    let snapshot =
        taken.await.unwrap_or_else(|| Err(ApiError::internal("Cannot take a snapshot: internal error")))?;
    Ok((StatusCode::CREATED, Json(SnapshotResponse { snapshot: snapshot_object(id, snapshot).await })))
}

/// Lists the snapshots of a session.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/snapshots",
    operation_id = "listSnapshots",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 200, description = "The snapshots", body = SnapshotList),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<SnapshotList>, ApiError> {
    find_session_here(&app, &caller, id).await?;
    let snapshots = app.program.list_snapshots(id).await.map_err(|error| failed(&error))?;
    let mut objects = Vec::new();
    for snapshot in snapshots {
        objects.push(snapshot_object(id, snapshot).await);
    }
    Ok(Json(SnapshotList { snapshots: objects }))
}

/// Deletes a snapshot.
#[utoipa::path(
    delete,
    path = "/api/sessions/{id}/snapshots/{name}",
    operation_id = "deleteSnapshot",
    tag = "Sessions",
    params(SessionId, ("name" = String, Path, description = "The name of the snapshot")),
    responses(
        (status = 200, description = "The snapshot is deleted", body = Confirmation),
        (status = 404, description = "No such session, or no such snapshot"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionPath { id, rest: name }: SessionPath,
) -> Result<Json<Confirmation>, ApiError> {
    find_session_here(&app, &caller, id).await?;
    let snapshots = app.program.list_snapshots(id).await.map_err(|error| failed(&error))?;
    if !snapshots.iter().any(|snapshot| snapshot.name == name) {
        return Err(ApiError::not_found("Snapshot not found"));
    }
    app.program.remove_snapshot(id, &name).await.map_err(|error| failed(&error))?;
    Ok(Json(Confirmation::new()))
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Snapshot)]
#[serde(rename_all = "camelCase")]
struct SnapshotObject {
    /// The value of `fromSnapshot` for sessions that start from it.
    id: String,
    session_id: String,
    name: String,
    /// In bytes; null if the file has been removed.
    #[schema(required)]
    size: Option<u64>,
    #[schema(required, format = DateTime)]
    created_at: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SnapshotResponse {
    snapshot: SnapshotObject,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SnapshotList {
    snapshots: Vec<SnapshotObject>,
}

async fn snapshot_object(session: Uuid, snapshot: Snapshot) -> SnapshotObject {
    let metadata = tokio::fs::metadata(&snapshot.file).await.ok();
    let taken =
        metadata.as_ref().and_then(|metadata| jiff::Timestamp::try_from(metadata.modified().ok()?).ok());
    SnapshotObject {
        id: format!("{session}/{}", snapshot.name),
        session_id: session.to_string(),
        name: snapshot.name,
        size: metadata.map(|metadata| metadata.len()),
        created_at: taken.map(clock::format),
    }
}

/// Returns the session of a snapshot and its file, given the id of the snapshot.
///
/// # Errors
/// 400 if the tenant of the request has no such snapshot.
pub(super) async fn find_snapshot(app: &App, caller: &Caller, id: &str) -> Result<PathBuf, ApiError> {
    let unknown = || ApiError::bad_request("Invalid or inaccessible snapshot");
    let (session, name) = id.split_once('/').ok_or_else(unknown)?;
    let session = Uuid::parse_str(session).map_err(|_| unknown())?;
    find_session_here(app, caller, session).await.map_err(|_| unknown())?;
    let snapshots = app.program.list_snapshots(session).await.map_err(|error| failed(&error))?;
    snapshots.into_iter().find(|snapshot| snapshot.name == name).map(|found| found.file).ok_or_else(unknown)
}

/// Creates a session from another one.
///
/// The new session is paused, and has the messages, the workspace and the conversation of the other.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/fork",
    operation_id = "forkSession",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 201, description = "The session is created", body = SessionResponse),
        (status = 404, description = "No such session, or its agent does not exist"),
    ),
)]
pub(super) async fn fork(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<(StatusCode, Json<SessionResponse>), ApiError> {
    find_session_here(&app, &caller, id).await?;
    let tasks = app.tasks.clone();
    let forked = tasks.run(async move { fork_session(&app, &caller, id).await });
    let session =
        forked.await.unwrap_or_else(|| Err(ApiError::internal("Failed to fork session: internal error")))?;
    Ok((StatusCode::CREATED, session_response(session)))
}

async fn fork_session(app: &App, caller: &Caller, id: Uuid) -> Result<Session, ApiError> {
    let parent = find_session(app, caller, id).await?;
    let slot = acquire_slot(app, &caller.tenant, "fork").await?;
    let used = agent_to_start(app, caller, &parent.agent_name).await?;
    // What the agent said before the snapshot is among the messages of the fork.
    let snapshot = {
        let _session_lock = app.running.lock_session(id).await;
        app.program
            .take_snapshot(id)
            .await
            .map_err(|error| ApiError::internal(format!("Failed to fork session: {error}")))?
    };
    let child = Uuid::new_v4();
    let _session_lock = app.running.lock_session(child).await;
    let started = start_fork(app, &parent, child, &used.agent, &snapshot, slot).await;
    // It was taken for the fork alone.
    if let Err(error) = app.program.remove_snapshot(id, &snapshot.name).await {
        tracing::warn!("cannot remove a snapshot of session {id}: {error}");
    }
    let session = started?;
    let forked = json!({ "action": "forked", "parentSessionId": id.to_string() });
    record_lifecycle_event(app, &session, &forked).await?;
    find_session(app, caller, child).await
}

async fn start_fork(
    app: &App,
    parent: &Session,
    child: Uuid,
    agent: &Agent,
    snapshot: &Snapshot,
    slot: SandboxSlot,
) -> Result<Session, ApiError> {
    let new = NewSession {
        id: child,
        tenant: &parent.tenant_id,
        agent: &parent.agent_name,
        model: parent.model.as_deref(),
        config: &parent.config,
        parent: Some(parent.id),
    };
    let session = app.store.insert_session(&new).await?;
    let started = async {
        // Before it accepts messages of its own.
        app.store.copy_messages(&parent.tenant_id, parent.id, child).await?;
        let of_agent = match session_files::exist(app, parent.id) {
            true => None,
            false => {
                let mode = PermissionMode::of_options(&parse_object(&parent.config));
                let variables = agent_variables::open(app, agent)?;
                Some(SessionPolicy::of_variables(variables).with_permission_mode(mode))
            }
        };
        let files = session_files::fork(app, parent.id, child, agent.path.clone().into(), of_agent).await?;
        start_sandbox(app, &session, &files, Some(&snapshot.file), slot, "fork").await?;
        lifecycle::freeze(app, &session).await
    };
    match started.await {
        Ok(()) => Ok(session),
        Err(error) => Err(lifecycle::discard_failed(app, &session, error).await),
    }
}

fn failed(error: &CommandError) -> ApiError {
    ApiError::internal(format!("Cannot access snapshots: {error}"))
}
