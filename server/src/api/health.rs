//! `GET /health`.

use super::App;
use super::error::ApiError;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// Reports that the server works. The route requires no key and shows no data of a tenant.
pub(super) async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let (active, sandboxes) = (app.store.count_active_sessions().await?, app.running.count());
    Ok(Json(json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "coordinatorId": coordinator_id(),
        "activeSessions": active,
        "activeSandboxes": sandboxes,
        "remoteRunners": 0,
        "uptime": app.started.elapsed().as_secs(),
        // No sandbox is started ahead of a session yet.
        "pool": {
            "total": sandboxes, "cold": 0, "warming": 0, "warm": 0, "waiting": 0, "running": sandboxes,
            "maxCapacity": 0, "resumeWarmHits": 0, "resumeColdHits": 0, "preWarmHits": 0,
        },
    })))
}

/// The name of this process: its host and its pid.
pub(super) fn coordinator_id() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // It is a label of a metric.
    let host = host.replace(['"', '\\', '\n'], "_");
    format!("{host}-{}", std::process::id())
}
