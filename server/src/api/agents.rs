//! `/api/agents`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{AgentName, JsonBody, is_agent_name};
use super::life;
use super::objects::{Agent, object};
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

/// The body of a deployment. Other keys are ignored: clients send some.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeployBody {
    name: String,
    path: Option<String>,
    system_prompt: Option<String>,
    files: Option<Vec<FileBody>>,
    env: Option<Variables>,
}

/// A file, in base64.
#[derive(Debug, Deserialize)]
struct FileBody {
    path: String,
    content: String,
}

/// The body of a change.
#[derive(Debug, Deserialize)]
pub(super) struct UpdateBody {
    env: Option<Variables>,
    config: Option<Map<String, Value>>,
}

/// `POST /api/agents`: a new agent, or the next version of one.
pub(super) async fn deploy(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<DeployBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    if !is_agent_name(&body.name) {
        return Err(ApiError::Body("body/name must have 1 to 255 letters, digits, _ and -".into()));
    }
    variables::check(body.env.as_ref().unwrap_or(&Variables::new()))?;
    let folder = match &body.path {
        Some(path) => named_folder(&app, path)?,
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

fn named_folder(app: &App, path: &str) -> Result<PathBuf, ApiError> {
    if path.contains('\0') {
        return Err(ApiError::bad_request("The path has a NUL character"));
    }
    let folder = agent_folder::named_folder(&app.data, path);
    folder.ok_or_else(|| ApiError::bad_request("Agent directory must contain CLAUDE.md"))
}

async fn write_folder(app: &Arc<App>, caller: &Caller, body: &DeployBody) -> Result<PathBuf, ApiError> {
    let files = body.files.iter().flatten().map(file).collect::<Result<Vec<NewFile>, ApiError>>()?;
    let (app, tenant, name) = (Arc::clone(app), caller.tenant.clone(), body.name.clone());
    let prompt = body.system_prompt.clone();
    // A client that goes away does not stop it in the middle.
    let written = tokio::spawn(async move {
        let _alone = app.folders.write().await;
        let data = app.data.clone();
        spawn_blocking(move || agent_folder::deploy(&data, &tenant, &name, &files, prompt.as_deref())).await
    });
    match written.await {
        Ok(Ok(Ok(folder))) => Ok(folder),
        Ok(Ok(Err(error))) => Err(ApiError::bad_request(format!("The files cannot be written: {error}"))),
        _ => Err(ApiError::internal("The files were not written")),
    }
}

fn file(body: &FileBody) -> Result<NewFile, ApiError> {
    let path = agent_folder::safe_path(&body.path);
    let path = path.ok_or_else(|| ApiError::bad_request(format!("Invalid file path: {:?}", body.path)))?;
    let content = STANDARD.decode(&body.content);
    let content =
        content.map_err(|error| ApiError::bad_request(format!("{}: no base64: {error}", body.path)))?;
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

/// `PATCH /api/agents/:name`: `env` replaces all variables, and each key of `config` replaces that key.
pub(super) async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
    JsonBody(body): JsonBody<UpdateBody>,
) -> Result<Json<Value>, ApiError> {
    variables::check(body.env.as_ref().unwrap_or(&Variables::new()))?;
    let agent = app.store.agent(&caller.tenant, &name).await?.ok_or_else(not_found)?;
    let env = body.env.map_or(agent.env, |env| json!(env).to_string());
    let mut config = object(&agent.config);
    config.extend(body.config.unwrap_or_default());
    let updated =
        app.store.update_agent(&caller.tenant, &name, &env, &Value::Object(config).to_string()).await?;
    Ok(Json(json!({ "agent": Agent::from(updated.ok_or_else(not_found)?) })))
}

/// `DELETE /api/agents/:name`: the agent and its sessions, with their sandboxes and files.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<Value>, ApiError> {
    if app.store.agent(&caller.tenant, &name).await?.is_none() {
        return Err(not_found());
    }
    let task = tokio::spawn(async move {
        for session in app.store.sessions(&caller.tenant, Some(&name)).await? {
            life::remove(&app, &session).await?;
        }
        let _alone = app.folders.write().await;
        app.store.delete_agent(&caller.tenant, &name).await?;
        let (data, tenant) = (app.data.clone(), caller.tenant);
        match spawn_blocking(move || agent_folder::remove(&data, &tenant, &name)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(ApiError::internal("The folder of the agent was not removed")),
        }
    });
    task.await.unwrap_or_else(|_| Err(ApiError::internal("The agent was not deleted")))?;
    Ok(Json(json!({ "ok": true })))
}

fn not_found() -> ApiError {
    ApiError::not_found("Agent not found")
}
