//! `POST /api/sessions/:id/exec`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId};
use super::sessions::{find_active_session, find_sandbox};
use crate::saggar::BridgeConnection;
use axum::Json;
use axum::extract::State;
use saggar_bridge::client::{ClientCommand, EventBody};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Maximum timeout of a command, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 300_000;

#[derive(Debug, Deserialize)]
pub(super) struct ExecBody {
    command: String,
    timeout: Option<u64>,
}

/// Runs a shell command in the sandbox, concurrently with the agent. The bridge kills it if the client disconnects.
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
    let command = ClientCommand::exec(&body.command, body.timeout.map(Duration::from_millis));
    let failed = |error| ApiError::internal(format!("Exec failed: {error}"));
    let mut connection = BridgeConnection::open(&running.bridge, &[command]).await.map_err(failed)?;
    while let Some(event) = connection.receive().await.map_err(failed)? {
        match event.body() {
            EventBody::ExecResult(output) => {
                return Ok(Json(json!({
                    "exitCode": output.exit_code,
                    "stdout": output.stdout,
                    "stderr": output.stderr,
                })));
            }
            EventBody::Error(text) => return Err(ApiError::internal(text.clone())),
            _ => {}
        }
    }
    Err(ApiError::internal("No exec result received"))
}
