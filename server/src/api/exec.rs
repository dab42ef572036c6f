//! `POST /api/sessions/:id/exec`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId};
use super::sessions::{find_active_session, find_sandbox};
use crate::saggar::call_control;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Maximum timeout of a command, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 300_000;
/// Default timeout of a command, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// Additional wait for the response: saggar kills all processes of a command after its timeout.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
pub(super) struct ExecBody {
    command: String,
    timeout: Option<u64>,
}

/// Runs a shell command in the sandbox, concurrently with the agent.
pub(super) async fn exec(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<ExecBody>,
) -> Result<Json<Value>, ApiError> {
    if body.timeout.is_some_and(|timeout| !(1..=MAX_TIMEOUT_MS).contains(&timeout)) {
        return Err(ApiError::Body(format!("body/timeout must be 1 to {MAX_TIMEOUT_MS}")));
    }
    let session = find_active_session(&app, &caller, id).await?;
    let running = find_sandbox(&app, &session).await?;
    let milliseconds = body.timeout.unwrap_or(DEFAULT_TIMEOUT_MS);
    let params = json!({ "command": body.command, "timeout": milliseconds, "attached": true });
    let max_wait = Duration::from_millis(milliseconds) + KILL_TIMEOUT;
    // If the client disconnects, the call is dropped, and saggar kills the command.
    let output = call_control(&running.control, "exec", &params, max_wait).await;
    running.mark_used();
    let output = output.map_err(|error| ApiError::internal(format!("Exec failed: {error}")))?;
    Ok(Json(json!({
        "exitCode": output["exitCode"],
        "stdout": output["stdout"],
        "stderr": output["stderr"],
    })))
}
