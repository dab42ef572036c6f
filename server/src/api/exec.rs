//! `POST /api/sessions/:id/exec`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId};
use super::sessions::{UsedSandbox, use_sandbox};
use crate::saggar::call_control;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// Maximum timeout of a command, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 300_000;
/// Default timeout of a command, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// Additional wait for the response: saggar kills all processes of a command after its timeout.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ExecRequest)]
pub(super) struct ExecBody {
    /// A command line for the shell.
    command: String,
    /// In milliseconds.
    #[schema(minimum = 1, maximum = 300_000, default = 30_000)]
    timeout: Option<u64>,
}

/// The result of saggar-control(7), of which other fields are left out.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecResponse {
    /// Null if the command was killed.
    #[schema(required)]
    exit_code: Option<i64>,
    stdout: String,
    stderr: String,
    /// Whether output beyond 10 MiB of a stream was removed; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// Runs a shell command in the sandbox, concurrently with the agent.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/exec",
    operation_id = "exec",
    tag = "Sessions",
    params(SessionId),
    request_body = ExecBody,
    responses(
        (status = 200, description = "The command has exited", body = ExecResponse),
        (status = 400, description = "The request is invalid, or the session is not active"),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn exec(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<ExecBody>,
) -> Result<Json<ExecResponse>, ApiError> {
    if body.timeout.is_some_and(|timeout| !(1..=MAX_TIMEOUT_MS).contains(&timeout)) {
        return Err(ApiError::Body(format!("body/timeout must be 1 to {MAX_TIMEOUT_MS}")));
    }
    let UsedSandbox { running, usage: _usage, .. } = use_sandbox(&app, &caller, id).await?;
    app.running.mark_changed(&running.tenant, id).await?;
    let milliseconds = body.timeout.unwrap_or(DEFAULT_TIMEOUT_MS);
    let params = json!({ "command": body.command, "timeout": milliseconds, "attached": true });
    let max_wait = Duration::from_millis(milliseconds) + KILL_TIMEOUT;
    // If the client disconnects, the call is dropped, and saggar kills the command.
    let output = call_control(&running.control, "exec", &params, max_wait).await;
    running.mark_used();
    app.running.finish_change(&running.tenant, id).await;
    let output = output.map_err(|error| ApiError::internal(format!("Exec failed: {error}")))?;
    let output = serde_json::from_value(output);
    let output =
        output.map_err(|error| ApiError::internal(format!("Exec failed: invalid result: {error}")))?;
    Ok(Json(output))
}
