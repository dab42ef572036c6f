//! `/api/agents/:name/files`.

use super::App;
use super::agent_change::change_agent;
use super::agent_lock::{begin_folder_change, use_agent};
use super::agents::{FileBody, decode_file, find_agent, not_found};
use super::auth::Caller;
use super::download::{UNKNOWN_TYPE, download};
use super::error::ApiError;
use super::extract::{AgentItem, AgentName, JsonBody, QueryParams};
use super::objects::{BinaryFile, FileEntry};
use crate::agent_files::{AgentDirectory, AgentFileError};
use crate::agent_folder::{self, NewFile};
use crate::store::Agent;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

/// Maximum size of a file as JSON, in bytes.
const JSON_FILE_LIMIT: u64 = 1 << 20;
/// Maximum size of a file as raw bytes; the server holds it in memory.
const RAW_FILE_LIMIT: u64 = 100 << 20;

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = UploadAgentFilesRequest)]
pub(super) struct AgentFilesBody {
    files: Vec<FileBody>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentFileList {
    files: Vec<FileEntry>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentFile {
    path: String,
    content: String,
    /// In bytes.
    size: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WrittenFiles {
    /// The number of files.
    written: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeletedFile {
    deleted: bool,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AgentFileQuery {
    /// The representation of the file.
    #[serde(default)]
    #[param(inline)]
    format: AgentFileFormat,
}

/// The representation of a file in a response.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum AgentFileFormat {
    #[default]
    Json,
    Raw,
}

/// Lists the files of an agent.
#[utoipa::path(
    get,
    path = "/api/agents/{name}/files",
    operation_id = "listAgentFiles",
    tag = "Agent files",
    params(AgentName),
    responses(
        (status = 200, description = "The files", body = AgentFileList),
        (status = 404, description = "No such agent"),
        (status = 422, description = "The folder of the agent is missing"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
) -> Result<Json<AgentFileList>, ApiError> {
    let used = use_agent(&app, &caller.tenant, &name).await?.ok_or_else(not_found)?;
    let entries = access(readable_folder(&app, &used.agent)?, |files| files.list()).await?;
    let entries = entries.into_iter();
    let files =
        entries.map(|entry| FileEntry { path: entry.path, size: entry.size, modified_at: entry.modified_at });
    Ok(Json(AgentFileList { files: files.collect() }))
}

/// Returns a file of an agent.
#[utoipa::path(
    get,
    path = "/api/agents/{name}/files/{*path}",
    operation_id = "getAgentFile",
    tag = "Agent files",
    params(
        ("name" = String, Path, description = "The name of the agent"),
        (
            "path" = String,
            Path,
            description = "The path of the file in the folder of the agent; it can contain slashes",
        ),
        AgentFileQuery,
    ),
    responses(
        (
            status = 200,
            description = "The text of the file, or with `format=raw` its bytes",
            content((AgentFile = "application/json"), (BinaryFile = "application/octet-stream")),
        ),
        (status = 404, description = "No such agent, or no such file"),
        (status = 422, description = "The folder of the agent is missing"),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentItem { agent: name, item }: AgentItem,
    QueryParams(query): QueryParams<AgentFileQuery>,
) -> Result<Response, ApiError> {
    let path = parse_path(&item)?;
    let used = use_agent(&app, &caller.tenant, &name).await?.ok_or_else(not_found)?;
    let folder = readable_folder(&app, &used.agent)?;
    let limit = match query.format {
        AgentFileFormat::Json => JSON_FILE_LIMIT,
        AgentFileFormat::Raw => RAW_FILE_LIMIT,
    };
    let read = {
        let path = path.clone();
        move |files: &AgentDirectory| files.read(&path, limit)
    };
    let content = access(folder, read).await?;
    match query.format {
        AgentFileFormat::Raw => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Ok(download(&name, UNKNOWN_TYPE, content.into()))
        }
        AgentFileFormat::Json => {
            let size = content.len();
            let content = String::from_utf8(content).map_err(|_| {
                ApiError::bad_request("The file is not UTF-8 text: request it with ?format=raw")
            })?;
            let path = path.to_string_lossy().into_owned();
            Ok(Json(AgentFile { path, content, size }).into_response())
        }
    }
}

/// Creates or replaces files of an agent.
#[utoipa::path(
    post,
    path = "/api/agents/{name}/files",
    operation_id = "uploadAgentFiles",
    tag = "Agent files",
    params(AgentName),
    request_body = AgentFilesBody,
    responses(
        (status = 200, description = "The files are written", body = WrittenFiles),
        (status = 404, description = "No such agent"),
        (status = 422, description = "The folder of the agent is missing"),
    ),
)]
pub(super) async fn write(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentName(name): AgentName,
    JsonBody(body): JsonBody<AgentFilesBody>,
) -> Result<Json<WrittenFiles>, ApiError> {
    let files = body.files.iter().map(decode_file).collect::<Result<Vec<NewFile>, ApiError>>()?;
    let count = files.len();
    change(app, caller, name, move |folder| {
        files.iter().try_for_each(|file| folder.write(&file.path, &file.content))
    })
    .await?;
    Ok(Json(WrittenFiles { written: count }))
}

/// Deletes a file of an agent.
#[utoipa::path(
    delete,
    path = "/api/agents/{name}/files/{*path}",
    operation_id = "deleteAgentFile",
    tag = "Agent files",
    params(
        ("name" = String, Path, description = "The name of the agent"),
        (
            "path" = String,
            Path,
            description = "The path of the file in the folder of the agent; it can contain slashes",
        ),
    ),
    responses(
        (status = 200, description = "The file is deleted", body = DeletedFile),
        (status = 404, description = "No such agent, or no such file"),
        (status = 422, description = "The folder of the agent is missing"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    AgentItem { agent: name, item }: AgentItem,
) -> Result<Json<DeletedFile>, ApiError> {
    let path = parse_path(&item)?;
    change(app, caller, name, move |folder| folder.delete(&path)).await?;
    Ok(Json(DeletedFile { deleted: true }))
}

/// Changes the files of an agent while no session of it starts. The change completes even if the client disconnects.
async fn change(
    app: Arc<App>,
    caller: Caller,
    name: String,
    operation: impl FnOnce(&AgentDirectory) -> Result<(), AgentFileError> + Send + 'static,
) -> Result<(), ApiError> {
    change_agent(app, caller, name, |app, caller, name| async move {
        begin_folder_change(&app, &caller.tenant, &name, "Cannot change the files of the agent").await?;
        let agent = find_agent(&app, &caller, &name).await?;
        access(writable_folder(&app, &agent)?, operation).await
    })
    .await
}

/// Opens the folder of an agent and runs a file operation outside of the asynchronous threads.
async fn access<T: Send + 'static>(
    folder: PathBuf,
    operation: impl FnOnce(&AgentDirectory) -> Result<T, AgentFileError> + Send + 'static,
) -> Result<T, ApiError> {
    let run = move || match AgentDirectory::open(&folder) {
        Ok(files) => operation(&files).map_err(file_error),
        Err(error) => {
            let text = format!("Cannot open the folder of the agent: {error}; deploy the agent again");
            Err(ApiError::with_status(StatusCode::UNPROCESSABLE_ENTITY, text))
        }
    };
    spawn_blocking(run)
        .await
        .unwrap_or_else(|_| Err(ApiError::internal("Cannot access the files of the agent")))
}

/// Returns the folder of an agent. It is resolved again: since the deployment, a link can have been changed so that the
/// path leads to a session or to another tenant.
fn readable_folder(app: &App, agent: &Agent) -> Result<PathBuf, ApiError> {
    agent_folder::resolve_folder(&app.data_dir, &agent.tenant_id, &agent.path).ok_or_else(|| {
        let text = format!("The folder of the agent {} is missing: deploy the agent again", agent.name);
        ApiError::with_status(StatusCode::UNPROCESSABLE_ENTITY, text)
    })
}

/// Returns the folder of an agent that was deployed with files. A folder that the operator named is not changed.
fn writable_folder(app: &App, agent: &Agent) -> Result<PathBuf, ApiError> {
    let deployed = agent_folder::deployed_folder(&app.data_dir, &agent.tenant_id, &agent.name);
    if deployed != Path::new(&agent.path) {
        return Err(ApiError::bad_request(format!(
            "The agent {} uses the folder {} of the operator, which the server does not change: change the files \
             there, or deploy the agent with files",
            agent.name, agent.path
        )));
    }
    readable_folder(app, agent)
}

fn parse_path(path: &str) -> Result<PathBuf, ApiError> {
    agent_folder::safe_path(path).ok_or_else(|| ApiError::bad_request("Invalid file path"))
}

fn file_error(error: AgentFileError) -> ApiError {
    let text = error.to_string();
    match error {
        AgentFileError::NotFound => ApiError::not_found(text),
        AgentFileError::Io(_) => ApiError::internal(format!("Cannot access the files of the agent: {text}")),
        _ => ApiError::bad_request(text),
    }
}
