//! `/api/agents`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{AgentName, JsonBody, is_agent_name};
use super::lifecycle;
use super::objects::{Agent, parse_object};
use super::variables::{self, Variables};
use crate::agent_folder::{self, NewFile};
use crate::store::Deployment;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Body of `POST /api/agents`. Clients of Ash send further fields, which are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeployBody {
    name: String,
    path: Option<String>,
    system_prompt: Option<String>,
    files: Option<Vec<FileBody>>,
    env: Option<Variables>,
}

/// A file of an agent; `content` is base64.
#[derive(Debug, Deserialize)]
struct FileBody {
    path: String,
    content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct UpdateBody {
    env: Option<Variables>,
    config: Option<Map<String, Value>>,
}

/// `POST /api/agents`: deploys an agent, or the next version of it.
pub(super) async fn deploy(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<DeployBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    if !is_agent_name(&body.name) {
        return Err(ApiError::Body("body/name must have 1 to 255 letters, digits, _ or -".into()));
    }
    variables::check(body.env.as_ref().unwrap_or(&Variables::new()))?;
    let folder = match &body.path {
        Some(path) => resolve_folder(&app, path)?,
        None => write_folder(&app, &caller, &body).await?,
    };
    let env = body.env.map(|env| json!(env).to_string());
    let deployment = Deployment {
        tenant: &caller.tenant,
        name: &body.name,
        path: &folder.to_string_lossy(),
        env: env.as_deref(),
    };
    let agent = app.store.deploy(&deployment).await?;
    Ok((StatusCode::CREATED, Json(json!({ "agent": Agent::from(agent) }))))
}

fn resolve_folder(app: &App, path: &str) -> Result<PathBuf, ApiError> {
    if path.contains('\0') {
        return Err(ApiError::bad_request("Invalid path: it contains a NUL character"));
    }
    let folder = agent_folder::resolve_folder(&app.data_dir, path);
    folder.ok_or_else(|| ApiError::bad_request("Agent directory must contain CLAUDE.md"))
}

async fn write_folder(app: &Arc<App>, caller: &Caller, body: &DeployBody) -> Result<PathBuf, ApiError> {
    let files = body.files.iter().flatten().map(decode_file).collect::<Result<Vec<NewFile>, ApiError>>()?;
    let (app, tenant, name) = (Arc::clone(app), caller.tenant.clone(), body.name.clone());
    let prompt = body.system_prompt.clone();
    // A task of its own: the deployment completes even if the client disconnects.
    let written = tokio::spawn(async move {
        let _folders_lock = app.folders_lock.write().await;
        let data_dir = app.data_dir.clone();
        spawn_blocking(move || agent_folder::deploy(&data_dir, &tenant, &name, &files, prompt.as_deref()))
            .await
    });
    match written.await {
        Ok(Ok(Ok(folder))) => Ok(folder),
        Ok(Ok(Err(error))) => {
            Err(ApiError::bad_request(format!("Cannot write the files of the agent: {error}")))
        }
        _ => Err(ApiError::internal("Cannot write the files of the agent")),
    }
}

fn decode_file(body: &FileBody) -> Result<NewFile, ApiError> {
    let path = agent_folder::safe_path(&body.path);
    let path = path.ok_or_else(|| ApiError::bad_request(format!("Invalid file path: {:?}", body.path)))?;
    let content = STANDARD.decode(&body.content);
    let content = content.map_err(|error| {
        ApiError::bad_request(format!("Invalid base64 content of {}: {error}", body.path))
    })?;
    Ok(NewFile { path, content })
}

/// `GET /api/agents`.
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<Value>, ApiError> {
    let agents: Vec<Agent> = app.store.agents(&caller.tenant).await?.into_iter().map(Agent::from).collect();
    Ok(Json(json!({ "agents": agents })))
}

/// `GET /api/agents/:name`.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<Value>, ApiError> {
    let agent = app.store.agent(&caller.tenant, &name).await?.ok_or_else(not_found)?;
    Ok(Json(json!({ "agent": Agent::from(agent) })))
}

/// `PATCH /api/agents/:name`: replaces `env` as a whole, and merges the top-level keys of `config`.
pub(super) async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
    JsonBody(body): JsonBody<UpdateBody>,
) -> Result<Json<Value>, ApiError> {
    variables::check(body.env.as_ref().unwrap_or(&Variables::new()))?;
    let agent = app.store.agent(&caller.tenant, &name).await?.ok_or_else(not_found)?;
    let env = body.env.map_or(agent.env, |env| json!(env).to_string());
    let mut config = parse_object(&agent.config);
    config.extend(body.config.unwrap_or_default());
    let updated =
        app.store.update_agent(&caller.tenant, &name, &env, &Value::Object(config).to_string()).await?;
    Ok(Json(json!({ "agent": Agent::from(updated.ok_or_else(not_found)?) })))
}

/// `DELETE /api/agents/:name`: deletes an agent with its sessions, their sandboxes and their files.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<Value>, ApiError> {
    if app.store.agent(&caller.tenant, &name).await?.is_none() {
        return Err(not_found());
    }
    let task = tokio::spawn(async move {
        // No session of the agent is created meanwhile.
        let _folders_lock = app.folders_lock.write().await;
        for session in app.store.sessions(&caller.tenant, Some(&name)).await? {
            lifecycle::remove(&app, &session).await?;
        }
        app.store.delete_agent(&caller.tenant, &name).await?;
        let (data_dir, tenant) = (app.data_dir.clone(), caller.tenant);
        match spawn_blocking(move || agent_folder::remove(&data_dir, &tenant, &name)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(ApiError::internal("Cannot remove the folder of the agent")),
        }
    });
    task.await.unwrap_or_else(|_| Err(ApiError::internal("Cannot delete the agent")))?;
    Ok(Json(json!({ "ok": true })))
}

fn not_found() -> ApiError {
    ApiError::not_found("Agent not found")
}
