//! Creates a session.

use super::detach;
use super::worktree::NewWorktree;
use crate::app::agent::AgentRequest;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::record::{SessionOptions, SessionRecord};
use std::path::PathBuf;

/// Starts a supervisor for a new session, whose name is random if the request has none; its bridge listens and its agent
/// runs when this returns its directory and its record. With `branch` it works on a new worktree of the repository that
/// contains its workspace or its folder. `options` are kept for later starts.
///
/// # Errors
/// [`Code::Exists`] for a session that there is; what kept its agent from running, and then nothing is left of it.
pub fn create(
    mut request: AgentRequest,
    branch: Option<&str>,
    options: SessionOptions,
) -> Result<(PathBuf, SessionRecord)> {
    let id = match &request.session {
        Some(session) => SandboxId::parse(session)?,
        None => SandboxId::random()?,
    };
    if super::exists(id.as_str())? {
        return Err(Error::new(Code::Exists, format!("session {id} exists"))
            .hint(format!("continue it with saggar session resume {id}, or choose another name")));
    }
    request.session = Some(id.to_string());
    let repository = request.sandbox.workspace.as_ref().unwrap_or(&request.folder);
    let worktree = branch.map(|branch| NewWorktree::create(&id, repository, branch)).transpose()?;
    if let Some(worktree) = &worktree {
        request.sandbox.workspace = Some(worktree.path.clone());
    }
    detach::start(request, options).inspect_err(|_| worktree.iter().for_each(NewWorktree::discard))?;
    let (_, directory, record) = SessionRecord::find(id.as_str())?;
    Ok((directory, record))
}
