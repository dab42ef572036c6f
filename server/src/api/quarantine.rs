//! `/api/sessions/:id/quarantine`: files that an agent left where programs of the host would run them, and that saggar
//! moved out of the workspace (saggar-security(7)).

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId};
use super::objects::Confirmation;
use super::scope;
use super::sessions::find_session;
use crate::api_key::KeyScope;
use crate::saggar::{CommandError, QuarantinedFile, Release};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QuarantineList {
    files: Vec<QuarantinedFile>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ReleaseQuarantineRequest)]
pub(super) struct ReleaseBody {
    action: ReleaseAction,
    /// Numbers, names or original paths; all files without one.
    #[serde(default)]
    names: Vec<String>,
    /// Whether a file that is in the way of a restored one is moved to quarantine.
    #[serde(default)]
    force: bool,
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
    find_session(&app, &caller, id).await?;
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
    find_session(&app, &caller, id).await?;
    if body.action == ReleaseAction::Restore {
        scope::require(caller.scope, KeyScope::Admin, "Restoring a file from quarantine")?;
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
    let session = find_session(app, caller, id).await?;
    let conflict = |text: String| ApiError::with_status(StatusCode::CONFLICT, text);
    let is_restore = body.action == ReleaseAction::Restore;
    // saggar would move the file to quarantine again after the next turn.
    if is_restore && app.running.attach_if_served(&session).await.map_err(|error| failed(&error))?.is_some() {
        return Err(conflict("The sandbox is running: stop the session first".into()));
    }
    let files = app.program.quarantined_files(id).await.map_err(|error| failed(&error))?;
    if let Some(name) = body.names.iter().find(|name| !files.iter().any(|file| file.is_named(name))) {
        let text = format!("body/names: {name:?} is not in quarantine; GET this path lists the files");
        return Err(ApiError::Body(text));
    }
    let is_chosen =
        |file: &&QuarantinedFile| body.names.is_empty() || body.names.iter().any(|name| file.is_named(name));
    let names: Vec<&str> = files.iter().filter(is_chosen).map(QuarantinedFile::name).collect();
    if is_restore {
        let restored = app.program.release(id, Release::Restore { force: body.force }, &names).await;
        return restored.map_err(|error| match body.force {
            true => conflict(format!("Cannot {error}")),
            false => conflict(format!("Cannot {error}; with force, that is moved to quarantine first")),
        });
    }
    app.program.release(id, Release::Remove, &names).await.map_err(|error| failed(&error))
}

fn failed(error: &CommandError) -> ApiError {
    ApiError::internal(format!("Cannot access the quarantine: {error}"))
}
