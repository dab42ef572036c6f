//! `GET /health` and `GET /live`.

use super::App;
use super::error::ApiError;
use super::objects::Confirmation;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

/// The sandboxes by state, and how sessions came to theirs, with the names of Ash.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolStats {
    /// Sandboxes of all states, and those that are being started.
    total: usize,
    /// Always 0: Ash counts records of sandboxes that have exited.
    cold: usize,
    /// Being started ahead of a session.
    pub(super) warming: usize,
    /// Started ahead of a session.
    pub(super) warm: usize,
    /// Of sessions without a running turn.
    pub(super) waiting: usize,
    /// Of sessions with a running turn.
    pub(super) running: usize,
    pub(super) max_capacity: usize,
    /// Sessions that were resumed in the same sandbox since the start of the server.
    pub(super) resume_warm_hits: u64,
    /// Sessions that were resumed in a new sandbox.
    pub(super) resume_cold_hits: u64,
    /// Sessions that began in a warm sandbox.
    pub(super) pre_warm_hits: u64,
}

impl PoolStats {
    pub(super) fn read(app: &App) -> Self {
        let (warming, warm) = app.warm_pool.counts();
        let (sandboxes, running) = app.running.counts();
        PoolStats {
            total: app.running.capacity().used(),
            cold: 0,
            warming,
            warm,
            waiting: sandboxes - running,
            running,
            max_capacity: app.running.capacity().max(),
            resume_warm_hits: app.resumes.warm.load(Ordering::Relaxed),
            resume_cold_hits: app.resumes.cold.load(Ordering::Relaxed)
                + app.resumes.restored.load(Ordering::Relaxed),
            pre_warm_hits: app.warm_pool.taken(),
        }
    }
}

/// Reports that the process answers requests, even if the database does not.
///
/// For a supervisor that restarts a server that hangs: a restart does not help while the database is away.
#[utoipa::path(
    get,
    path = "/live",
    operation_id = "live",
    tag = "Server",
    responses((status = 200, description = "The process answers requests", body = Confirmation)),
    security(()),
)]
pub(super) async fn live() -> Json<Confirmation> {
    Json(Confirmation::new())
}

/// Reports that the server works, with its database.
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
    let (active, (active_sandboxes, _)) = (app.store.count_active_sessions().await?, app.running.counts());
    Ok(Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        coordinator_id: coordinator_id(),
        active_sessions: active,
        active_sandboxes,
        remote_runners: 0,
        uptime: app.started.elapsed().as_secs(),
        pool: PoolStats::read(&app),
    }))
}

/// The name of this process: its host and its pid.
pub(super) fn coordinator_id() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // It is a label of a metric.
    let host = host.replace(['"', '\\', '\n'], "_");
    format!("{host}-{}", std::process::id())
}
