//! `GET /api/sessions/:id/logs`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{QueryOf, SessionId, bounded};
use super::sessions::find;
use crate::saggar::call_control;
use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The query of a log.
#[derive(Debug, Deserialize)]
pub(super) struct LogQuery {
    after: Option<i64>,
}

/// An entry of the log, as saggar numbers them: from 1.
#[derive(Debug, Deserialize)]
struct Entry {
    index: i64,
    ts: i64,
    level: String,
    text: String,
}

/// The log of a session: the standard error of its agent, and warnings of saggar. Entries count from 0 on this wire.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryOf(query): QueryOf<LogQuery>,
) -> Result<Json<Value>, ApiError> {
    let after = bounded("after", query.after, -1, -1..=i64::MAX - 1)?;
    find(&app, &caller, id).await?;
    let mut logs = Vec::new();
    if let Some(live) = app.live.get(id) {
        let found = call_control(live.control.clone(), "logs", json!({ "after": after + 1 })).await;
        let mut found = found.map_err(|failure| ApiError::internal(failure.0))?;
        let entries: Vec<Entry> = serde_json::from_value(found["entries"].take()).unwrap_or_default();
        logs = entries.into_iter().map(entry).collect();
    }
    Ok(Json(json!({ "logs": logs, "source": "sandbox" })))
}

fn entry(entry: Entry) -> Value {
    // A line of the agent has the level `info` (saggar-control(7)); what saggar itself says has another.
    let level = if entry.level == "info" { "stderr" } else { "system" };
    let time = Timestamp::from_millisecond(entry.ts).unwrap_or_default();
    json!({ "index": entry.index - 1, "level": level, "text": entry.text, "ts": crate::clock::text(time) })
}
