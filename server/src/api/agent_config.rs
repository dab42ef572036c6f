//! `/api/agents/:name/config`.

use super::App;
use super::agent_change::change_agent;
use super::agents::find_agent;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{AgentName, JsonBody};
use super::objects::parse_object;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentConfig {
    /// `model` is the model of new sessions.
    config: Map<String, Value>,
}

/// Returns the configuration of an agent.
#[utoipa::path(
    get,
    path = "/api/agents/{name}/config",
    operation_id = "getAgentConfig",
    tag = "Agents",
    params(AgentName),
    responses(
        (status = 200, description = "The configuration", body = AgentConfig),
        (status = 404, description = "No such agent"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<AgentConfig>, ApiError> {
    let agent = find_agent(&app, &caller, &name).await?;
    Ok(Json(AgentConfig { config: parse_object(&agent.config) }))
}

/// Sets each top-level key of the body in the configuration of an agent.
#[utoipa::path(
    patch,
    path = "/api/agents/{name}/config",
    operation_id = "updateAgentConfig",
    tag = "Agents",
    params(AgentName),
    request_body = Map<String, Value>,
    responses(
        (status = 200, description = "The updated configuration", body = AgentConfig),
        (status = 404, description = "No such agent"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
    JsonBody(body): JsonBody<Map<String, Value>>,
) -> Result<Json<AgentConfig>, ApiError> {
    let config = change_agent(app, caller, name, |app, caller, name| async move {
        let agent = find_agent(&app, &caller, &name).await?;
        let mut config = parse_object(&agent.config);
        config.extend(body);
        let text = Value::Object(config.clone()).to_string();
        app.store.update_agent(&caller.tenant, &name, &agent.env, &text).await?;
        Ok(config)
    });
    Ok(Json(AgentConfig { config: config.await? }))
}
