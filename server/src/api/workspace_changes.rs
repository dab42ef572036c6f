//! Changes of an agent in its workspace, compared with the folder that the session started from.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, QueryParams, SessionId};
use super::sessions::find_session;
use crate::saggar::{CommandError, Settlement};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
pub(super) struct DiffQuery {
    format: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PathsBody {
    #[serde(default)]
    paths: Vec<String>,
}

/// `GET /api/sessions/:id/diff`: the changed names, or with `?format=patch` a unified diff.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryParams(query): QueryParams<DiffQuery>,
) -> Result<Response, ApiError> {
    find_session(&app, &caller, id).await?;
    if query.format.as_deref() == Some("patch") {
        let patch = app.program.patch(id).await.map_err(|error| failed(&error))?;
        return Ok(([(header::CONTENT_TYPE, "text/x-diff; charset=utf-8")], patch).into_response());
    }
    let changes = app.program.changes(id).await.map_err(|error| failed(&error))?;
    let changes = changes["changes"].as_array().cloned().unwrap_or_default();
    let files: Vec<Value> = changes.into_iter().map(file_object).collect();
    Ok(Json(json!({ "files": files })).into_response())
}

fn file_object(mut change: Value) -> Value {
    for (name, default) in [("protected", Value::Null), ("conflict", Value::Null)] {
        if change.get(name).is_none() {
            change[name] = default;
        }
    }
    change
}

/// `POST /api/sessions/:id/apply`: applies changes to the folder of the session.
pub(super) async fn apply(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<PathsBody>,
) -> Result<Json<Value>, ApiError> {
    settle(app, caller, id, body, Settlement::Apply).await
}

/// `POST /api/sessions/:id/discard`: removes changes from the workspace.
pub(super) async fn discard(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<PathsBody>,
) -> Result<Json<Value>, ApiError> {
    settle(app, caller, id, body, Settlement::Discard).await
}

async fn settle(
    app: Arc<App>,
    caller: Caller,
    id: uuid::Uuid,
    body: PathsBody,
    settlement: Settlement,
) -> Result<Json<Value>, ApiError> {
    find_session(&app, &caller, id).await?;
    let tasks = app.tasks.clone();
    let settled = tasks.run(async move {
        let _session_lock = app.running.lock_session(id).await;
        let session = find_session(&app, &caller, id).await?;
        if app.running.attach_if_served(&session).await.map_err(|error| failed(&error))?.is_some() {
            let text = "The sandbox is running: stop the session first";
            return Err(ApiError::with_status(StatusCode::CONFLICT, text));
        }
        app.program.settle_changes(id, settlement, &body.paths).await.map_err(|error| {
            let text = error.to_string();
            ApiError::with_status(StatusCode::CONFLICT, text)
        })
    });
    settled.await.unwrap_or_else(|| Err(ApiError::internal("Cannot change files: internal error")))?;
    Ok(Json(json!({ "ok": true })))
}

fn failed(error: &CommandError) -> ApiError {
    ApiError::internal(format!("Cannot compare the workspace: {error}"))
}
