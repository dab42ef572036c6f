//! Changes of an agent in its workspace, compared with the folder that the session started from.

use super::App;
use super::agent_change::change_agent;
use super::agent_lock::begin_folder_change;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, QueryParams, SessionId};
use super::objects::Confirmation;
use super::sessions::find_session_here;
use crate::saggar::{CommandError, Settlement, WorkspaceChange};
use crate::session_directory::{own_folder, session_directory};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// `patch` for a unified diff; any other value for JSON.
    format: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChangeList {
    files: Vec<WorkspaceChange>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChangePaths)]
pub(super) struct PathsBody {
    /// The changes to settle; all without one.
    #[serde(default)]
    paths: Vec<String>,
}

/// Lists the changes of the workspace.
///
/// They are compared with the folder that the session started from.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/diff",
    operation_id = "getSessionDiff",
    tag = "Files",
    params(SessionId, DiffQuery),
    responses(
        (
            status = 200,
            description = "The changed names, or with `format=patch` a unified diff",
            content((ChangeList = "application/json"), (String = "text/x-diff")),
        ),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryParams(query): QueryParams<DiffQuery>,
) -> Result<Response, ApiError> {
    find_session_here(&app, &caller, id).await?;
    if query.format.as_deref() == Some("patch") {
        let patch = app.program.patch(id).await.map_err(|error| failed(&error))?;
        return Ok(([(header::CONTENT_TYPE, "text/x-diff; charset=utf-8")], patch).into_response());
    }
    let files = app.program.changes(id).await.map_err(|error| failed(&error))?;
    Ok(Json(ChangeList { files }).into_response())
}

/// Applies changes of the workspace to the folder of the session.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/apply",
    operation_id = "applyChanges",
    tag = "Files",
    params(SessionId),
    request_body = PathsBody,
    responses(
        (status = 200, description = "The changes are applied", body = Confirmation),
        (status = 404, description = "No such session"),
        (status = 409, description = "The sandbox is running, or a change is refused"),
    ),
)]
pub(super) async fn apply(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<PathsBody>,
) -> Result<Json<Confirmation>, ApiError> {
    let session = find_session_here(&app, &caller, id).await?;
    let own = own_folder(&session_directory(&app.data_dir, id));
    if !tokio::fs::try_exists(own).await.unwrap_or(false) {
        return apply_to_agent(app, caller, id, session.agent_name, body).await;
    }
    settle_in_task(app, caller, id, body, Settlement::Apply).await
}

/// Removes changes from the workspace.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/discard",
    operation_id = "discardChanges",
    tag = "Files",
    params(SessionId),
    request_body = PathsBody,
    responses(
        (status = 200, description = "The changes are removed", body = Confirmation),
        (status = 404, description = "No such session"),
        (status = 409, description = "The sandbox is running, or a change is refused"),
    ),
)]
pub(super) async fn discard(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<PathsBody>,
) -> Result<Json<Confirmation>, ApiError> {
    find_session_here(&app, &caller, id).await?;
    settle_in_task(app, caller, id, body, Settlement::Discard).await
}

/// Applies changes to the folder of an agent, which is an agent that changes.
async fn apply_to_agent(
    app: Arc<App>,
    caller: Caller,
    id: Uuid,
    agent: String,
    body: PathsBody,
) -> Result<Json<Confirmation>, ApiError> {
    change_agent(app, caller, agent, move |app, caller, agent| async move {
        begin_folder_change(&app, &caller.tenant, &agent, "Cannot apply changes to the agent").await?;
        settle(&app, &caller, id, &body, Settlement::Apply).await
    })
    .await
}

/// Settles changes that are of the session alone, even if the client disconnects.
async fn settle_in_task(
    app: Arc<App>,
    caller: Caller,
    id: Uuid,
    body: PathsBody,
    settlement: Settlement,
) -> Result<Json<Confirmation>, ApiError> {
    let tasks = app.tasks.clone();
    let settled = tasks.run(async move { settle(&app, &caller, id, &body, settlement).await });
    settled.await.unwrap_or_else(|| Err(ApiError::internal("Cannot change files: internal error")))
}

async fn settle(
    app: &App,
    caller: &Caller,
    id: Uuid,
    body: &PathsBody,
    settlement: Settlement,
) -> Result<Json<Confirmation>, ApiError> {
    let _session_lock = app.running.lock_session(id).await;
    let session = find_session_here(app, caller, id).await?;
    if app.running.attach_if_served(&session).await.map_err(|error| failed(&error))?.is_some() {
        let text = "The sandbox is running: stop the session first";
        return Err(ApiError::with_status(StatusCode::CONFLICT, text));
    }
    app.running.mark_changed(&session.tenant_id, id).await?;
    let settled = app.program.settle_changes(id, settlement, &body.paths).await;
    settled.map_err(|error| ApiError::with_status(StatusCode::CONFLICT, error.to_string()))?;
    Ok(Json(Confirmation::new()))
}

fn failed(error: &CommandError) -> ApiError {
    ApiError::internal(format!("Cannot compare the workspace: {error}"))
}
