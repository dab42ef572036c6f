//! What the server keeps on disk for a session: `sessions/ID` of the data directory.

use super::App;
use super::error::ApiError;
use super::variables::Variables;
use crate::agent_folder::{self, Additions};
use crate::saggar::policy_with_variables;
use axum::http::StatusCode;
use serde_json::{Map, Value};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;
use tracing::warn;
use uuid::Uuid;

/// What a session is started with.
pub(super) struct Wanted {
    /// The folder of the agent.
    pub(super) agent: PathBuf,
    /// Variables of the sandbox.
    pub(super) variables: Variables,
    /// In place of the prompt of the agent.
    pub(super) prompt: Option<String>,
    /// MCP servers beside those of the agent.
    pub(super) mcp_servers: Option<Map<String, Value>>,
}

/// What saggar is told of it.
pub(super) struct SessionFiles {
    /// The folder to start with.
    pub(super) folder: PathBuf,
    /// The policy with the variables, if there are any.
    pub(super) policy: Option<PathBuf>,
}

/// Writes what a session needs.
///
/// # Errors
/// 422: the folder of the agent is gone, or cannot be used.
pub(super) async fn write(app: &App, id: Uuid, wanted: Wanted) -> Result<SessionFiles, ApiError> {
    let directory = directory_of(&app.data, id);
    match spawn_blocking(move || write_to(&directory, &wanted)).await {
        Ok(Ok(files)) => Ok(files),
        Ok(Err(error)) => {
            let text = format!("The agent's folder cannot be used: {error}");
            Err(ApiError::own(StatusCode::UNPROCESSABLE_ENTITY, text))
        }
        Err(_) => Err(ApiError::internal("Failed to create session: given up")),
    }
}

fn write_to(directory: &Path, wanted: &Wanted) -> io::Result<SessionFiles> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    if !agent_folder::is_agent(&wanted.agent) {
        return Err(io::Error::other(format!("{} has no CLAUDE.md", wanted.agent.display())));
    }
    let mut files = SessionFiles { folder: wanted.agent.clone(), policy: None };
    if wanted.prompt.is_some() || wanted.mcp_servers.is_some() {
        files.folder = directory.join("agent");
        let additions =
            Additions { prompt: wanted.prompt.as_deref(), mcp_servers: wanted.mcp_servers.as_ref() };
        agent_folder::make_for_session(&wanted.agent, &files.folder, &additions)?;
    }
    if !wanted.variables.is_empty() {
        let policy = directory.join("policy.toml");
        write_private(&policy, &policy_with_variables(&wanted.variables))?;
        files.policy = Some(policy);
    }
    Ok(files)
}

/// Variables can be secrets.
fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

/// Removes it.
pub(super) async fn remove(app: &App, id: Uuid) {
    let directory = directory_of(&app.data, id);
    let removed = spawn_blocking(move || fs::remove_dir_all(directory)).await;
    if let Ok(Err(error)) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("the files of session {id} were not removed: {error}");
    }
}

fn directory_of(data: &Path, id: Uuid) -> PathBuf {
    data.join("sessions").join(id.to_string())
}
