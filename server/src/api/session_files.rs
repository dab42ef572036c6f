//! The files of a session that the server writes: `sessions/ID` in the data directory.

use super::App;
use super::error::ApiError;
use super::variables::Variables;
use crate::agent_folder::{self, SessionOverrides};
use crate::saggar::policy_with_variables;
use crate::session_directory::{own_folder, session_directory};
use axum::http::StatusCode;
use serde_json::{Map, Value};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// A request to start a session.
pub(super) struct SessionRequest {
    /// The folder of the agent.
    pub(super) agent: PathBuf,
    /// Environment variables of the sandbox.
    pub(super) variables: Variables,
    /// Replaces the system prompt of the agent.
    pub(super) prompt: Option<String>,
    /// MCP servers by name. They take precedence over those of the agent.
    pub(super) mcp_servers: Option<Map<String, Value>>,
}

/// The paths to pass to `saggar session create`.
pub(super) struct SessionFiles {
    /// The folder that becomes the workspace.
    pub(super) folder: PathBuf,
    /// A policy file that sets the environment variables.
    pub(super) policy: Option<PathBuf>,
}

/// Writes the files of a new session.
///
/// # Errors
/// 422 if the folder of the agent is missing or invalid.
pub(super) async fn create(app: &App, id: Uuid, request: SessionRequest) -> Result<SessionFiles, ApiError> {
    let directory = session_directory(&app.data_dir, id);
    match spawn_blocking(move || create_in(&directory, &request)).await {
        Ok(Ok(files)) => Ok(files),
        Ok(Err(error)) => {
            let text = format!("Cannot use the folder of the agent: {error}");
            Err(ApiError::with_status(StatusCode::UNPROCESSABLE_ENTITY, text))
        }
        Err(_) => Err(ApiError::internal("Failed to create session: internal error")),
    }
}

/// Writes the files of a session that is forked from `parent`: copies of those of the parent. An ended parent has none,
/// and the fork then has a copy of the agent's folder, and the variables of the agent.
///
/// # Errors
/// 500 if a file cannot be read or written.
pub(super) async fn fork(
    app: &App,
    parent: Uuid,
    child: Uuid,
    agent: PathBuf,
    variables: Variables,
) -> Result<SessionFiles, ApiError> {
    let parent = session_directory(&app.data_dir, parent);
    let directory = session_directory(&app.data_dir, child);
    match spawn_blocking(move || fork_in(&parent, &directory, &agent, &variables)).await {
        Ok(Ok(files)) => Ok(files),
        Ok(Err(error)) => Err(ApiError::internal(format!("Failed to fork session: {error}"))),
        Err(_) => Err(ApiError::internal("Failed to fork session: internal error")),
    }
}

fn fork_in(parent: &Path, directory: &Path, agent: &Path, variables: &Variables) -> io::Result<SessionFiles> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut files = SessionFiles { folder: agent.to_owned(), policy: None };
    let (parent_folder, has_ended) = (own_folder(parent), !parent.exists());
    if parent_folder.exists() || has_ended {
        // The session may have had a folder of its own: its changes are not to be applied to that of the agent.
        let from = if has_ended { agent } else { &parent_folder };
        files.folder = own_folder(directory);
        agent_folder::create_session_folder(from, &files.folder, &SessionOverrides::default())?;
    }
    let policy = match fs::read_to_string(parent.join("policy.toml")) {
        Ok(policy) => policy,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) if has_ended && !variables.is_empty() => policy_with_variables(variables),
        Err(_) => return Ok(files),
    };
    let file = directory.join("policy.toml");
    write_private(&file, &policy)?;
    files.policy = Some(file);
    Ok(files)
}

fn create_in(directory: &Path, request: &SessionRequest) -> io::Result<SessionFiles> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    if !agent_folder::is_agent_folder(&request.agent) {
        return Err(io::Error::other(format!("{} does not contain CLAUDE.md", request.agent.display())));
    }
    let mut files = SessionFiles { folder: request.agent.clone(), policy: None };
    if request.prompt.is_some() || request.mcp_servers.is_some() {
        files.folder = own_folder(directory);
        let overrides =
            SessionOverrides { prompt: request.prompt.as_deref(), mcp_servers: request.mcp_servers.as_ref() };
        agent_folder::create_session_folder(&request.agent, &files.folder, &overrides)?;
    }
    if !request.variables.is_empty() {
        let policy = directory.join("policy.toml");
        write_private(&policy, &policy_with_variables(&request.variables))?;
        files.policy = Some(policy);
    }
    Ok(files)
}

/// Creates a file with mode 0600: environment variables can contain secrets.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}
