//! `/api/sessions/:id/usage`: what a session has cost, and what its sandbox uses.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::SessionId;
use super::sessions::find_session;
use super::usage::{UsageStats, usage_stats};
use crate::saggar::{SandboxUse, read_sandbox_use};
use crate::store::{Status, UsageFilter};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;
use tracing::warn;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionUsageResponse {
    usage: SessionUsage,
}

#[derive(Debug, Serialize, ToSchema)]
struct SessionUsage {
    /// The sums of its usage events.
    stats: UsageStats,
    /// Null if no sandbox is running, or if it does not answer.
    #[schema(required)]
    sandbox: Option<SandboxUse>,
}

/// Returns the usage of a session, with the resources that its sandbox uses and their limits.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/usage",
    operation_id = "getSessionUsage",
    tag = "Usage",
    params(SessionId),
    responses(
        (status = 200, description = "The usage", body = SessionUsageResponse),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<SessionUsageResponse>, ApiError> {
    let session = find_session(&app, &caller, id).await?;
    let name = id.to_string();
    let filter = UsageFilter { session: Some(&name), ..UsageFilter::default() };
    let stats = usage_stats(&app, &caller, &filter).await?;
    let running = match session.status {
        Status::Active => app.running.get_or_attach(&session).await,
        // No process looks for the sandbox: a list of sessions reads the usage of each.
        _ => Ok(app.running.get(id)),
    };
    let sandbox = match running {
        Ok(Some(running)) => match read_sandbox_use(&running.control).await {
            Ok(sandbox) => Some(sandbox),
            Err(_) if running.has_exited().await => None,
            // The sums are of use all the same.
            Err(error) => {
                warn!("session {id}: cannot read what its sandbox uses: {error}");
                None
            }
        },
        Ok(None) => None,
        Err(error) => {
            warn!("session {id}: cannot find its sandbox: {error}");
            None
        }
    };
    Ok(Json(SessionUsageResponse { usage: SessionUsage { stats, sandbox } }))
}
