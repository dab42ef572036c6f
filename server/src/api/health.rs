//! `GET /health`.

use super::App;
use super::error::ApiError;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reports that the server works. The route requires no key and shows no data of a tenant.
pub(super) async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let (active, (sandboxes, _)) = (app.store.count_active_sessions().await?, app.running.counts());
    Ok(Json(json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "coordinatorId": coordinator_id(),
        "activeSessions": active,
        "activeSandboxes": sandboxes,
        "remoteRunners": 0,
        "uptime": app.started.elapsed().as_secs(),
        "pool": pool_object(&PoolCounts::read(&app)),
    })))
}

fn pool_object(counts: &PoolCounts) -> Value {
    json!({
        "total": counts.total,
        // Ash counts rows of sandboxes that have exited here.
        "cold": 0,
        "warming": counts.warming,
        "warm": counts.warm,
        "waiting": counts.waiting,
        "running": counts.running,
        "maxCapacity": counts.max,
        "resumeWarmHits": counts.resumed_warm,
        "resumeColdHits": counts.resumed_cold,
        "preWarmHits": counts.taken,
    })
}

/// The sandboxes by state, and how sessions came to theirs.
pub(super) struct PoolCounts {
    /// Slots in use.
    pub(super) total: usize,
    /// Maximum number of slots.
    pub(super) max: usize,
    /// Being started ahead of a session.
    pub(super) warming: usize,
    /// Started ahead of a session.
    pub(super) warm: usize,
    /// Of sessions without a running turn.
    pub(super) waiting: usize,
    /// Of sessions with a running turn.
    pub(super) running: usize,
    /// Sessions that were resumed in the same sandbox.
    pub(super) resumed_warm: u64,
    /// Sessions that were resumed in a new sandbox.
    pub(super) resumed_cold: u64,
    /// Sessions that began in a warm sandbox.
    pub(super) taken: u64,
}

impl PoolCounts {
    pub(super) fn read(app: &App) -> Self {
        let (warming, warm) = app.warm_pool.counts();
        let (sandboxes, running) = app.running.counts();
        PoolCounts {
            total: app.running.capacity().used(),
            max: app.running.capacity().max(),
            warming,
            warm,
            waiting: sandboxes - running,
            running,
            resumed_warm: app.resumes.warm.load(Ordering::Relaxed),
            resumed_cold: app.resumes.cold.load(Ordering::Relaxed),
            taken: app.warm_pool.taken(),
        }
    }
}

/// The name of this process: its host and its pid.
pub(super) fn coordinator_id() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // It is a label of a metric.
    let host = host.replace(['"', '\\', '\n'], "_");
    format!("{host}-{}", std::process::id())
}
