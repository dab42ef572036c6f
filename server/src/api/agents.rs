//! `/api/agents`.

use super::App;
use super::agent_change::change_agent;
use super::agent_variables;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{AgentName, JsonBody, is_agent_name};
use super::lifecycle;
use super::objects::{Agent, Confirmation, parse_object};
use super::variables::{self, Variables};
use crate::agent_base;
use crate::agent_folder::{self, NewFile};
use crate::store::{self, Deployment};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

/// Body of `POST /api/agents`. Clients of Ash send further fields, which are ignored.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = DeployAgentRequest)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeployBody {
    /// Letters, digits, `_` and `-`.
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_-]+$")]
    name: String,
    /// A folder on the server with a `CLAUDE.md`, absolute or relative to the data directory.
    path: Option<String>,
    /// The `CLAUDE.md` of an agent without `path`.
    system_prompt: Option<String>,
    /// The files of an agent without `path`.
    files: Option<Vec<FileBody>>,
    /// Environment variables of its sandboxes.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    env: Option<Variables>,
}

/// A file of an agent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AgentFileContent)]
pub(super) struct FileBody {
    /// Relative to the folder of the agent.
    path: String,
    /// In base64.
    #[schema(format = Byte)]
    content: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = UpdateAgentRequest)]
pub(super) struct UpdateBody {
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    env: Option<Variables>,
    config: Option<Map<String, Value>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentResponse {
    agent: Agent,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentList {
    agents: Vec<Agent>,
}

/// Deploys an agent, or the next version of it.
#[utoipa::path(
    post,
    path = "/api/agents",
    operation_id = "deployAgent",
    tag = "Agents",
    request_body = DeployBody,
    responses((status = 201, description = "The agent is deployed", body = AgentResponse)),
)]
pub(super) async fn deploy(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body): JsonBody<DeployBody>,
) -> Result<(StatusCode, Json<AgentResponse>), ApiError> {
    if !is_agent_name(&body.name) {
        return Err(ApiError::Body("body/name must have 1 to 255 letters, digits, _ or -".into()));
    }
    variables::check(body.env.as_ref().unwrap_or(&Variables::new()))?;
    let files = body.files.iter().flatten().map(decode_file).collect::<Result<Vec<NewFile>, ApiError>>()?;
    let name = body.name.clone();
    let deployed = change_agent(app, caller, name, move |app, caller, name| async move {
        let has_files = body.path.is_none();
        let folder = match body.path {
            Some(path) => resolve_folder(&app, &caller, &path)?,
            None => {
                let folder = write_folder(&app, &caller, &name, files, body.system_prompt).await?;
                adopt_folder(&app, &caller, &name).await?;
                folder
            }
        };
        let seal = |env: &_| agent_variables::seal(&app.credential_cipher, &caller.tenant, &name, env);
        let env = body.env.as_ref().map(seal).transpose()?;
        let deployment = Deployment {
            tenant: &caller.tenant,
            name: &name,
            path: &folder.to_string_lossy(),
            has_files,
            env: env.as_deref(),
        };
        Ok(app.store.deploy(&deployment).await?)
    });
    Ok((StatusCode::CREATED, Json(AgentResponse { agent: deployed.await?.into() })))
}

fn resolve_folder(app: &App, caller: &Caller, path: &str) -> Result<PathBuf, ApiError> {
    if path.contains('\0') {
        return Err(ApiError::bad_request("Invalid path: it contains a NUL character"));
    }
    let folder = agent_folder::resolve_folder(&app.data_dir, &caller.tenant, path);
    folder.ok_or_else(|| ApiError::bad_request("Agent directory must contain CLAUDE.md"))
}

async fn write_folder(
    app: &App,
    caller: &Caller,
    name: &str,
    files: Vec<NewFile>,
    prompt: Option<String>,
) -> Result<PathBuf, ApiError> {
    let (data_dir, tenant, name) = (app.data_dir.clone(), caller.tenant.clone(), name.to_owned());
    let write = move || agent_folder::deploy(&data_dir, &tenant, &name, &files, prompt.as_deref());
    match spawn_blocking(write).await {
        Ok(Ok(folder)) => Ok(folder),
        // A path of one file is a directory of another, or too long.
        Ok(Err(error)) if is_of_paths(&error) => {
            Err(ApiError::bad_request(format!("Cannot write the files of the agent: {error}")))
        }
        Ok(Err(error)) => Err(ApiError::internal(format!("Cannot write the files of the agent: {error}"))),
        Err(_) => Err(ApiError::internal("Cannot write the files of the agent")),
    }
}

/// Declares the folder of a deployment the one that follows the copy in the snapshot store.
async fn adopt_folder(app: &App, caller: &Caller, name: &str) -> Result<(), ApiError> {
    let Some(agent) = app.store.agent(&caller.tenant, name).await? else { return Ok(()) };
    let data_dir = app.data_dir.clone();
    let adopted = spawn_blocking(move || agent_base::adopt(&data_dir, &agent)).await;
    Ok(adopted.map_err(|_| ApiError::internal("Cannot write the files of the agent"))??)
}

/// Whether the paths of the files are the cause of an error.
fn is_of_paths(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{AlreadyExists, InvalidFilename, IsADirectory, NotADirectory};
    matches!(error.kind(), AlreadyExists | InvalidFilename | IsADirectory | NotADirectory)
}

pub(super) fn decode_file(body: &FileBody) -> Result<NewFile, ApiError> {
    let path = agent_folder::safe_path(&body.path);
    let path = path.ok_or_else(|| ApiError::bad_request(format!("Invalid file path: {:?}", body.path)))?;
    let content = STANDARD.decode(&body.content);
    let content = content.map_err(|error| {
        ApiError::bad_request(format!("Invalid base64 content of {}: {error}", body.path))
    })?;
    Ok(NewFile { path, content })
}

/// Lists the agents by name.
#[utoipa::path(
    get,
    path = "/api/agents",
    operation_id = "listAgents",
    tag = "Agents",
    responses((status = 200, description = "The agents", body = AgentList)),
)]
pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<AgentList>, ApiError> {
    let agents: Vec<Agent> = app.store.agents(&caller.tenant).await?.into_iter().map(Agent::from).collect();
    Ok(Json(AgentList { agents }))
}

/// Returns an agent.
#[utoipa::path(
    get,
    path = "/api/agents/{name}",
    operation_id = "getAgent",
    tag = "Agents",
    params(AgentName),
    responses(
        (status = 200, description = "The agent", body = AgentResponse),
        (status = 404, description = "No such agent"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<AgentResponse>, ApiError> {
    let agent = find_agent(&app, &caller, &name).await?;
    Ok(Json(AgentResponse { agent: agent.into() }))
}

/// Updates an agent.
///
/// Replaces `env` as a whole, and merges the top-level keys of `config`.
#[utoipa::path(
    patch,
    path = "/api/agents/{name}",
    operation_id = "updateAgent",
    tag = "Agents",
    params(AgentName),
    request_body = UpdateBody,
    responses(
        (status = 200, description = "The updated agent", body = AgentResponse),
        (status = 404, description = "No such agent"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
    JsonBody(body): JsonBody<UpdateBody>,
) -> Result<Json<AgentResponse>, ApiError> {
    variables::check(body.env.as_ref().unwrap_or(&Variables::new()))?;
    let updated = change_agent(app, caller, name, |app, caller, name| async move {
        let agent = find_agent(&app, &caller, &name).await?;
        let env = match &body.env {
            Some(env) => agent_variables::seal(&app.credential_cipher, &caller.tenant, &name, env)?,
            None => agent.env,
        };
        let mut config = parse_object(&agent.config);
        config.extend(body.config.unwrap_or_default());
        let config = Value::Object(config).to_string();
        app.store.update_agent(&caller.tenant, &name, &env, &config).await?.ok_or_else(not_found)
    });
    Ok(Json(AgentResponse { agent: updated.await?.into() }))
}

/// Deletes an agent with its sessions, their sandboxes and their files.
#[utoipa::path(
    delete,
    path = "/api/agents/{name}",
    operation_id = "deleteAgent",
    tag = "Agents",
    params(AgentName),
    responses(
        (status = 200, description = "The agent is deleted", body = Confirmation),
        (status = 404, description = "No such agent"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<Confirmation>, ApiError> {
    let deleted = change_agent(app, caller, name, |app, caller, name| async move {
        find_agent(&app, &caller, &name).await?;
        let sessions = app.store.all_sessions_of_agent(&caller.tenant, &name).await?;
        for session in &sessions {
            lifecycle::remove(&app, session).await?;
        }
        app.store.delete_agent(&caller.tenant, &name).await?;
        app.running.changes().add_removals();
        let (data_dir, tenant) = (app.data_dir.clone(), caller.tenant);
        let remove = move || {
            agent_base::remove(&data_dir, &tenant, &name);
            agent_folder::remove(&data_dir, &tenant, &name)
        };
        match spawn_blocking(remove).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(ApiError::internal("Cannot remove the folder of the agent")),
        }
    });
    deleted.await?;
    Ok(Json(Confirmation::new()))
}

/// Returns the agent of this name if the tenant of the request owns it.
pub(super) async fn find_agent(app: &App, caller: &Caller, name: &str) -> Result<store::Agent, ApiError> {
    app.store.agent(&caller.tenant, name).await?.ok_or_else(not_found)
}

pub(super) fn not_found() -> ApiError {
    ApiError::not_found("Agent not found")
}
