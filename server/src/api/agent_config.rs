//! `/api/agents/:name/config`.

use super::App;
use super::agents::find_agent;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{AgentName, JsonBody};
use super::objects::parse_object;
use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// `GET /api/agents/:name/config`.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<Value>, ApiError> {
    let agent = find_agent(&app, &caller, &name).await?;
    Ok(Json(json!({ "config": parse_object(&agent.config) })))
}

/// `PATCH /api/agents/:name/config`: sets each top-level key of the body.
pub(super) async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
    JsonBody(body): JsonBody<Map<String, Value>>,
) -> Result<Json<Value>, ApiError> {
    let _agent_lock = app.lock_agent_to_change(&caller.tenant, &name).await;
    let agent = find_agent(&app, &caller, &name).await?;
    let mut config = parse_object(&agent.config);
    config.extend(body);
    let config = Value::Object(config);
    app.store.update_agent(&caller.tenant, &name, &agent.env, &config.to_string()).await?;
    Ok(Json(json!({ "config": config })))
}
