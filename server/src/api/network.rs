//! `/api/sessions/:id/network`: the hosts that a sandbox connects to, and the rules for them.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId};
use super::objects::Confirmation;
use super::sessions::{find_session, record_lifecycle_event};
use crate::allowed_hosts::{add_allowed_hosts, canonical_rules};
use crate::saggar::{NetworkObject, allow_hosts, read_network};
use crate::store::Session;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use saggar_sys::error::{Code, Error};
use serde::Deserialize;
use serde_json::json;
use std::fmt;
use std::sync::Arc;
use utoipa::ToSchema;

/// Maximum number of rules in a request.
const MAX_RULES: usize = 128;

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AllowHostsRequest)]
pub(super) struct AllowBody {
    /// Rules such as `api.example.com:443` (saggar-policy(5), `network.allow`).
    #[schema(min_items = 1, max_items = 128)]
    allow: Vec<String>,
}

/// Returns the network of a session.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/network",
    operation_id = "getSessionNetwork",
    tag = "Sessions",
    params(SessionId),
    responses(
        (status = 200, description = "The hosts and the rules", body = NetworkObject),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Json<NetworkObject>, ApiError> {
    let session = find_session(&app, &caller, id).await?;
    let running = app.running.get_or_attach(&session).await.map_err(|error| failed(&error))?;
    let Some(running) = running else { return Ok(Json(NetworkObject::default())) };
    match read_network(&running.control).await {
        Ok(network) => Ok(Json(network)),
        Err(_) if running.has_exited().await => Ok(Json(NetworkObject::default())),
        Err(error) => Err(failed(&error)),
    }
}

/// Allows a session to connect to more hosts.
///
/// The rules are added to those in effect, for the running sandbox and for each later one of the session.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/network",
    operation_id = "allowHosts",
    tag = "Sessions",
    params(SessionId),
    request_body = AllowBody,
    responses(
        (status = 200, description = "The hosts are allowed", body = Confirmation),
        (status = 400, description = "The request is invalid, or no sandbox is running"),
        (status = 404, description = "No such session"),
        (status = 409, description = "The mode of the network or a locked policy does not permit it"),
    ),
)]
pub(super) async fn allow(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(AllowBody { allow: rules }): JsonBody<AllowBody>,
) -> Result<Json<Confirmation>, ApiError> {
    find_session(&app, &caller, id).await?;
    if rules.is_empty() || rules.len() > MAX_RULES {
        return Err(ApiError::Body(format!("body/allow must have 1 to {MAX_RULES} rules")));
    }
    let rules = canonical_rules(&rules).map_err(|error| ApiError::Body(format!("body/allow: {error}")))?;
    let tasks = app.tasks.clone();
    let allowed = tasks.run(async move {
        let _session_lock = app.running.lock_session(id).await;
        let session = find_session(&app, &caller, id).await?;
        allow_in_session(&app, &session, &rules).await
    });
    allowed.await.unwrap_or_else(|| Err(ApiError::internal("Cannot allow hosts: internal error")))?;
    Ok(Json(Confirmation::new()))
}

/// Allows hosts in the running sandbox of a session, and stores them for the next one. The caller holds the lock of the
/// session.
async fn allow_in_session(app: &App, session: &Session, rules: &[String]) -> Result<(), ApiError> {
    let running = app.running.attach_if_served(session).await.map_err(|error| failed(&error))?;
    let Some(running) = running else {
        let text = format!("Session is {}: no sandbox is running", session.status);
        return Err(ApiError::bad_request(text));
    };
    running.mark_used();
    app.running.mark_changed(&session.tenant_id, session.id).await?;
    let is_new = allow_hosts(&running.control, rules).await.map_err(|error| not_allowed(&error))?;
    let is_stored = add_allowed_hosts(&app.data_dir, session.id, rules).await.map_err(|error| {
        let text = "The hosts are allowed until the sandbox ends, and cannot be stored";
        ApiError::internal(format!("{text}: {error}"))
    })?;
    app.running.finish_change(&session.tenant_id, session.id).await;
    if !is_new && !is_stored {
        return Ok(());
    }
    record_lifecycle_event(app, session, &json!({ "action": "hosts_allowed", "hosts": rules })).await
}

fn not_allowed(error: &Error) -> ApiError {
    match error.code() {
        Code::Invalid => ApiError::Body(format!("body/allow: {error}")),
        Code::Unsupported | Code::State => ApiError::with_status(StatusCode::CONFLICT, error.to_string()),
        _ => failed(error),
    }
}

fn failed(error: &dyn fmt::Display) -> ApiError {
    ApiError::internal(format!("Cannot access the network of the session: {error}"))
}
