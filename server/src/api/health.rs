//! `GET /health`.

use super::App;
use super::error::ApiError;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Health {
    /// Always `ok`.
    status: &'static str,
    version: &'static str,
    /// The host and the pid of the server.
    coordinator_id: String,
    active_sessions: i64,
    active_sandboxes: usize,
    /// Always 0.
    remote_runners: usize,
    /// In seconds.
    uptime: u64,
    pool: PoolStats,
}

/// Numbers of sandboxes, with the names of Ash.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PoolStats {
    total: usize,
    cold: usize,
    warming: usize,
    warm: usize,
    waiting: usize,
    running: usize,
    max_capacity: usize,
    resume_warm_hits: usize,
    resume_cold_hits: usize,
    pre_warm_hits: usize,
}

/// Reports that the server works.
///
/// It requires no key and shows no data of a tenant.
#[utoipa::path(
    get,
    path = "/health",
    operation_id = "health",
    tag = "Server",
    responses((status = 200, description = "The server works", body = Health)),
    security(()),
)]
pub(super) async fn health(State(app): State<Arc<App>>) -> Result<Json<Health>, ApiError> {
    let (active, sandboxes) = (app.store.count_active_sessions().await?, app.running.count());
    Ok(Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        coordinator_id: coordinator_id(),
        active_sessions: active,
        active_sandboxes: sandboxes,
        remote_runners: 0,
        uptime: app.started.elapsed().as_secs(),
        // No sandbox is started ahead of a session yet.
        pool: PoolStats { total: sandboxes, running: sandboxes, ..PoolStats::default() },
    }))
}

/// The name of this process: its host and its pid.
pub(super) fn coordinator_id() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // It is a label of a metric.
    let host = host.replace(['"', '\\', '\n'], "_");
    format!("{host}-{}", std::process::id())
}
