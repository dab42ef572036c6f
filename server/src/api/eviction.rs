//! Slots for sandboxes: sessions without work give up their sandbox when another start needs the slot, or after the idle
//! time. They are paused, and a resume starts them in a new sandbox. Sessions in pods keep theirs, since they could not be
//! resumed.

use super::App;
use super::error::ApiError;
use super::lifecycle::wait_for_recorder;
use super::sessions::record_lifecycle_event;
use crate::capacity::{SandboxSlot, WaitingForSlot};
use crate::running::RunningSession;
use crate::saggar::{CONTROL_TIMEOUT, call_control};
use crate::store::Status;
use axum::http::StatusCode;
use saggar_sys::error::Code;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

/// Interval at which a start that waits for a slot looks for a sandbox without work.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// How long a start looks for a sandbox without work after its deadline: with `max_wait = 0`, it looks once.
const MAX_OVERRUN: Duration = Duration::from_secs(1);
/// The interval between two searches for sessions that have been idle for too long is between these.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(100);
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Why a session loses its sandbox.
#[derive(Debug, Clone, Copy)]
enum EvictionReason {
    /// Another start needs the slot.
    Capacity,
    /// It was idle for too long.
    Idle,
}

impl EvictionReason {
    fn name(self) -> &'static str {
        match self {
            EvictionReason::Capacity => "capacity",
            EvictionReason::Idle => "idle",
        }
    }
}

/// Returns a slot for a sandbox. If none is free, a sandbox without work is ended: one of the warm pool, or that of the
/// session that has been idle for longest. If all work, the start waits. `verb` is what the client requested, for errors.
///
/// # Errors
/// 503 if there is no slot within [`SandboxLimits::max_wait`](crate::settings::SandboxLimits::max_wait).
pub(super) async fn acquire_slot(app: &App, tenant: &str, verb: &str) -> Result<SandboxSlot, ApiError> {
    let capacity = app.running.capacity();
    if let Some(slot) = capacity.try_acquire(tenant) {
        return Ok(slot);
    }
    let unavailable = |reason: &str| {
        let text = format!("Failed to {verb} session: {reason}");
        ApiError::with_status(StatusCode::SERVICE_UNAVAILABLE, text)
    };
    let deadline = Instant::now() + app.sandbox_limits.max_wait;
    let mut waiting = capacity.wait(tenant);
    loop {
        make_room(app, &mut waiting, deadline).await;
        tokio::select! {
            biased;
            Ok(slot) = &mut waiting => return Ok(slot),
            () = sleep_until(deadline) => {
                return Err(unavailable(&format!("capacity reached: {} sandboxes are running", capacity.max())));
            }
            () = app.tasks.wait_for_shutdown() => return Err(unavailable("the server is shutting down")),
            () = sleep(RETRY_INTERVAL) => {}
        }
    }
}

/// Ends one sandbox without work, if there is one. It stops when another sandbox has exited and its slot is that of this
/// start, or after the deadline if sandboxes do not answer. What it has begun is completed.
async fn make_room(app: &App, waiting: &mut WaitingForSlot, deadline: Instant) {
    if let Some(warm) = app.warm_pool.take_any() {
        return app.warm_pool.end(app, warm).await;
    }
    if app.sandboxes.are_pods() {
        return;
    }
    for session in app.running.by_idle_time() {
        if !waiting.is_empty() || Instant::now() >= deadline + MAX_OVERRUN {
            return;
        }
        match evict(app, &session, EvictionReason::Capacity).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => warn_of_failure(&session, error),
        }
    }
}

/// Ends the sandboxes of sessions that have been idle for too long, until the server shuts down.
pub async fn evict_idle_sessions(app: Arc<App>) {
    let Some(limit) = app.sandbox_limits.idle_timeout.filter(|_| !app.sandboxes.are_pods()) else { return };
    loop {
        tokio::select! {
            () = sleep(limit.clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL)) => {}
            () = app.tasks.wait_for_shutdown() => return,
        }
        for session in app.running.by_idle_time() {
            if session.idle_time() < limit || app.tasks.is_shutting_down() {
                break;
            }
            match evict(&app, &session, EvictionReason::Idle).await {
                Ok(true) => info!("session {}: ended its sandbox, which was idle", session.id),
                Ok(false) => {}
                Err(error) => warn_of_failure(&session, error),
            }
        }
    }
}

/// Ends the sandbox of a session and pauses the session. Returns false if the sandbox works, or if another task changes
/// the session.
async fn evict(app: &App, running: &RunningSession, reason: EvictionReason) -> Result<bool, ApiError> {
    if running.runs_turn() {
        return Ok(false);
    }
    let Some(_session_lock) = app.running.try_lock_session(running.id) else { return Ok(false) };
    let Some(_no_use) = running.try_exclude_use() else { return Ok(false) };
    let Some(session) = app.store.session(&running.tenant, running.id).await? else { return Ok(false) };
    // saggar decides: a command may be running, and a turn may have begun since.
    match call_control(&running.control, "shutdown", &json!({ "ifIdle": true }), CONTROL_TIMEOUT).await {
        Ok(_) => {}
        Err(error) if error.code() == Code::State => return Ok(false),
        Err(error) => return Err(ApiError::internal(error.to_string())),
    }
    wait_for_recorder(running).await;
    if session.status == Status::Active {
        app.store.set_evicted(session.id).await?;
        let paused = json!({ "action": "paused", "reason": reason.name() });
        record_lifecycle_event(app, &session, &paused).await?;
    }
    app.running.changes().add_session(&session.tenant_id, session.id);
    Ok(true)
}

fn warn_of_failure(session: &RunningSession, error: ApiError) {
    warn!("session {}: cannot end its idle sandbox: {}", session.id, error.into_text());
}
