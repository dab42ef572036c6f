//! `GET /api/sessions/:id/logs`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{QueryParams, SessionId, bounded};
use super::sessions::find_session;
use crate::saggar::{CONTROL_TIMEOUT, call_control};
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use utoipa::ToSchema;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Only entries with a greater index.
    #[param(minimum = -1, default = -1)]
    after: Option<i64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionLogs {
    logs: Vec<SessionLogEntry>,
    /// Always `sandbox`.
    source: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct SessionLogEntry {
    /// The position in the log, from 0.
    index: i64,
    /// `stderr` for lines of the agent, `system` for messages of saggar.
    level: &'static str,
    text: String,
    #[schema(format = DateTime)]
    ts: String,
}

/// A log entry of saggar-control(7). `index` starts at 1, `ts` is in milliseconds since the epoch.
#[derive(Debug, Deserialize)]
struct LogEntry {
    index: i64,
    ts: i64,
    level: String,
    text: String,
}

/// Lists the log of a running session.
///
/// It has the standard error of the agent, and warnings of saggar.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/logs",
    operation_id = "getSessionLogs",
    tag = "Sessions",
    params(SessionId, LogQuery),
    responses(
        (status = 200, description = "The log; empty without a sandbox", body = SessionLogs),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryParams(query): QueryParams<LogQuery>,
) -> Result<Json<SessionLogs>, ApiError> {
    let after = bounded("after", query.after, -1, -1..=i64::MAX - 1)?;
    find_session(&app, &caller, id).await?;
    let mut logs = Vec::new();
    if let Some(running) = app.running.get(id) {
        let response =
            call_control(&running.control, "logs", &json!({ "after": after + 1 }), CONTROL_TIMEOUT).await;
        let mut response = response.map_err(|error| ApiError::internal(error.to_string()))?;
        let entries: Vec<LogEntry> = serde_json::from_value(response["entries"].take()).unwrap_or_default();
        logs = entries.into_iter().map(log_entry).collect();
    }
    Ok(Json(SessionLogs { logs, source: "sandbox" }))
}

fn log_entry(entry: LogEntry) -> SessionLogEntry {
    // saggar-control(7): lines of the agent have the level `info`, messages of saggar another.
    let level = if entry.level == "info" { "stderr" } else { "system" };
    let time = Timestamp::from_millisecond(entry.ts).unwrap_or_default();
    SessionLogEntry { index: entry.index - 1, level, text: entry.text, ts: crate::clock::format(time) }
}
