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
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
pub(super) struct LogQuery {
    after: Option<i64>,
}

/// A log entry of saggar-control(7). `index` starts at 1, `ts` is in milliseconds since the epoch.
#[derive(Debug, Deserialize)]
struct LogEntry {
    index: i64,
    ts: i64,
    level: String,
    text: String,
}

/// Lists the log of a session: the agent's standard error and saggar's warnings. In this API, indices start at 0.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryParams(query): QueryParams<LogQuery>,
) -> Result<Json<Value>, ApiError> {
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
    Ok(Json(json!({ "logs": logs, "source": "sandbox" })))
}

fn log_entry(entry: LogEntry) -> Value {
    // saggar-control(7): lines of the agent have the level `info`, messages of saggar another.
    let level = if entry.level == "info" { "stderr" } else { "system" };
    let time = Timestamp::from_millisecond(entry.ts).unwrap_or_default();
    json!({ "index": entry.index - 1, "level": level, "text": entry.text, "ts": crate::clock::format(time) })
}
