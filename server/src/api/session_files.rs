//! The files of a session that the server writes: `sessions/ID` in the data directory.

use super::App;
use super::error::ApiError;
use super::pod_sessions::check_folder;
use crate::agent_folder::{self, SessionOverrides};
use crate::session_directory::{own_folder, session_directory};
use crate::session_policy::SessionPolicy;
use axum::http::StatusCode;
use serde_json::{Map, Value};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// A request to start a session.
pub(super) struct SessionRequest {
    /// The folder of the agent.
    pub(super) agent: PathBuf,
    /// The environment variables of the sandbox, and the key of its credential.
    pub(super) policy: SessionPolicy,
    /// Replaces the system prompt of the agent.
    pub(super) prompt: Option<String>,
    /// MCP servers by name. They take precedence over those of the agent.
    pub(super) mcp_servers: Option<Map<String, Value>>,
}

/// The paths to pass to `saggar session create`.
pub(super) struct SessionFiles {
    /// The folder that becomes the workspace.
    pub(super) folder: PathBuf,
    /// The file of its policy.
    pub(super) policy: Option<PathBuf>,
}

/// Writes the files of a new session.
///
/// # Errors
/// 422 if the folder of the agent is missing or invalid.
pub(super) async fn create(app: &App, id: Uuid, request: SessionRequest) -> Result<SessionFiles, ApiError> {
    check_folder(app, &request.agent).await?;
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

/// Whether a session has files here; an ended one has none.
pub(super) fn exist(app: &App, id: Uuid) -> bool {
    session_directory(&app.data_dir, id).exists()
}

/// Writes the files of a session that is forked from `parent`: copies of those of the parent. If the parent has none, the
/// fork has a copy of the agent's folder, and `policy`.
///
/// # Errors
/// 500 if a file cannot be read or written.
pub(super) async fn fork(
    app: &App,
    parent: Uuid,
    child: Uuid,
    agent: PathBuf,
    policy: Option<SessionPolicy>,
) -> Result<SessionFiles, ApiError> {
    let parent = session_directory(&app.data_dir, parent);
    let directory = session_directory(&app.data_dir, child);
    match spawn_blocking(move || fork_in(&parent, &directory, &agent, policy)).await {
        Ok(Ok(files)) => Ok(files),
        Ok(Err(error)) => Err(ApiError::internal(format!("Failed to fork session: {error}"))),
        Err(_) => Err(ApiError::internal("Failed to fork session: internal error")),
    }
}

fn fork_in(
    parent: &Path,
    directory: &Path,
    agent: &Path,
    policy: Option<SessionPolicy>,
) -> io::Result<SessionFiles> {
    let has_ended = policy.is_some();
    if !has_ended && !parent.exists() {
        return Err(io::Error::other("the session has just ended; try again"));
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut files = SessionFiles { folder: agent.to_owned(), policy: None };
    let parent_folder = own_folder(parent);
    if parent_folder.exists() || has_ended {
        // The session may have had a folder of its own: its changes are not to be applied to that of the agent.
        let from = if has_ended { agent } else { &parent_folder };
        files.folder = own_folder(directory);
        agent_folder::create_session_folder(from, &files.folder, &SessionOverrides::default())?;
    }
    let policy = match policy {
        Some(policy) => policy,
        None => SessionPolicy::read(parent)?.unwrap_or_default(),
    };
    files.policy = policy.write(directory)?;
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
    files.policy = request.policy.write(directory)?;
    Ok(files)
}
