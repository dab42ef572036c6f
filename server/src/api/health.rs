//! `GET /health`.

use super::App;
use super::error::ApiError;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// Whether the server works, for whoever asks: without a key, and without anything of a tenant.
pub(super) async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let (active, sandboxes) = (app.store.active_sessions().await?, app.live.count());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Json(json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "coordinatorId": format!("{host}-{}", std::process::id()),
        "activeSessions": active,
        "activeSandboxes": sandboxes,
        "remoteRunners": 0,
        "uptime": app.started.elapsed().as_secs(),
    })))
}
