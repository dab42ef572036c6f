//! `/api/sessions/:id/quarantine`: files that an agent left where programs of the host would run them, and that saggar
//! moved out of the workspace (saggar-security(7)).

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId};
use super::objects::Confirmation;
use super::scope;
use super::sessions::{find_session_here, record_lifecycle_event};
use crate::api_key::KeyScope;
use crate::saggar::{CommandError, QuarantinedFile, Release, select_quarantined};
use crate::store::Session;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use tracing::warn;
use utoipa::ToSchema;
use uuid::Uuid;

/// Maximum number of names in a request.
const MAX_NAMES: usize = 1000;

/// Maximum number of paths in an event.
const MAX_EVENT_PATHS: usize = 32;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QuarantineList {
    files: Vec<QuarantinedFile>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ReleaseQuarantineRequest)]
pub(super) struct ReleaseBody {
    action: ReleaseAction,
    /// Numbers, names or original paths; without it, all files are meant.
    #[serde(default, deserialize_with = "some_names")]
    #[schema(min_items = 1, max_items = 1000, nullable = false)]
    names: Option<Vec<String>>,
    /// Whether a file that is in the way of a restored one is moved to quarantine.
    #[serde(default)]
    force: bool,
}

/// Null is refused: a client that has no list would mean all files.
fn some_names<'de, D: Deserializer<'de>>(names: D) -> Result<Option<Vec<String>>, D::Error> {
    Vec::deserialize(names).map(Some)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ReleaseAction {
    Restore,
    Remove,
}

/// Lists the files in quarantine.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/quarantine",
    operation_id = "listQuarantine",
    tag = "Files",
    params(SessionId),
    responses(
        (status = 200, description = "The files, the oldest first", body = QuarantineList),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<QuarantineList>, ApiError> {
    find_session_here(&app, &caller, id).await?;
    let files = app.program.quarantined_files(id).await.map_err(|error| failed(&error))?;
    Ok(Json(QuarantineList { files }))
}

/// Restores files from quarantine, or removes them.
///
/// A restored file is one that programs of the host would run: this needs the scope `admin`, and no running sandbox.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/quarantine",
    operation_id = "releaseQuarantine",
    tag = "Files",
    params(SessionId),
    request_body = ReleaseBody,
    responses(
        (status = 200, description = "The files are restored or removed", body = Confirmation),
        (status = 404, description = "No such session"),
        (status = 409, description = "The sandbox is running, or another file exists at the original path"),
    ),
)]
pub(super) async fn release(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<ReleaseBody>,
) -> Result<Json<Confirmation>, ApiError> {
    find_session_here(&app, &caller, id).await?;
    if body.action == ReleaseAction::Restore {
        scope::require(caller.scope, KeyScope::Admin, "Restoring a file from quarantine")?;
    }
    if body.names.as_ref().is_some_and(|names| names.is_empty() || names.len() > MAX_NAMES) {
        let text = format!("body/names must have 1 to {MAX_NAMES} names; without it, all files are meant");
        return Err(ApiError::Body(text));
    }
    let tasks = app.tasks.clone();
    let released = tasks.run(async move { release_files(&app, &caller, id, &body).await });
    released
        .await
        .unwrap_or_else(|| Err(ApiError::internal("Cannot change the quarantine: internal error")))?;
    Ok(Json(Confirmation::new()))
}

async fn release_files(app: &App, caller: &Caller, id: Uuid, body: &ReleaseBody) -> Result<(), ApiError> {
    let _session_lock = app.running.lock_session(id).await;
    let session = find_session_here(app, caller, id).await?;
    let is_restore = body.action == ReleaseAction::Restore;
    // saggar would move the file to quarantine again after the next turn.
    if is_restore && app.running.attach_if_served(&session).await.map_err(|error| failed(&error))?.is_some() {
        return Err(conflict("The sandbox is running: stop the session first".into()));
    }
    let files = app.program.quarantined_files(id).await.map_err(|error| failed(&error))?;
    let selected = match &body.names {
        None => files.iter().collect(),
        Some(names) => select_quarantined(&files, names).map_err(not_quarantined)?,
    };
    if selected.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = selected.iter().map(|file| file.name()).collect();
    let release = match body.action {
        ReleaseAction::Restore => Release::Restore { force: body.force },
        ReleaseAction::Remove => Release::Remove,
    };
    app.running.mark_changed(&session.tenant_id, id).await?;
    let released = app.program.release(id, release, body.names.as_ref().map(|_| names.as_slice())).await;
    let gone = match &released {
        Ok(()) => selected,
        Err(_) => without_remaining(app, id, selected).await,
    };
    app.running.finish_change(&session.tenant_id, id).await;
    record_release(app, &session, body.action, &gone).await?;
    released.map_err(|error| match release {
        Release::Restore { force: false } if error.is_other_file() => {
            conflict(format!("Cannot {error}; with force, that is moved to quarantine first"))
        }
        Release::Restore { .. } if error.is_other_file() => conflict(format!("Cannot {error}")),
        _ => failed(&error),
    })
}

/// After a failure: the files of these that are no longer in quarantine.
async fn without_remaining<'f>(
    app: &App,
    id: Uuid,
    mut files: Vec<&'f QuarantinedFile>,
) -> Vec<&'f QuarantinedFile> {
    match app.program.quarantined_files(id).await {
        Ok(remaining) => {
            let remaining: HashSet<&str> = remaining.iter().map(QuarantinedFile::name).collect();
            files.retain(|file| !remaining.contains(file.name()));
            files
        }
        Err(error) => {
            warn!("session {id}: cannot record which files left the quarantine: {error}");
            Vec::new()
        }
    }
}

/// Records which files were restored or removed.
async fn record_release(
    app: &App,
    session: &Session,
    action: ReleaseAction,
    files: &[&QuarantinedFile],
) -> Result<(), ApiError> {
    if files.is_empty() {
        return Ok(());
    }
    let action = match action {
        ReleaseAction::Restore => "quarantine_restored",
        ReleaseAction::Remove => "quarantine_removed",
    };
    let paths: Vec<&str> = files.iter().take(MAX_EVENT_PATHS).map(|file| file.path()).collect();
    let event = json!({ "action": action, "count": files.len(), "paths": paths });
    record_lifecycle_event(app, session, &event).await
}

fn not_quarantined(name: &str) -> ApiError {
    ApiError::Body(format!("body/names: {name:?} is not in quarantine; GET this path lists the files"))
}

fn conflict(text: String) -> ApiError {
    ApiError::with_status(StatusCode::CONFLICT, text)
}

fn failed(error: &CommandError) -> ApiError {
    ApiError::internal(format!("Cannot access the quarantine: {error}"))
}
