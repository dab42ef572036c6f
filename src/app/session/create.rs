//! Creates a session.

use super::detach;
use crate::app::agent::AgentRequest;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::record::{SessionOptions, SessionRecord};
use std::path::PathBuf;

/// Starts a supervisor for a new session, whose name is random if the request has none; its bridge listens and its agent
/// runs when this returns its directory and its record. `options` are kept for later starts.
///
/// # Errors
/// [`Code::Exists`] for a session that there is; what kept its agent from running, and then nothing is left of it.
pub fn create(mut request: AgentRequest, options: SessionOptions) -> Result<(PathBuf, SessionRecord)> {
    let id = match &request.session {
        Some(session) => SandboxId::parse(session)?,
        None => SandboxId::random()?,
    };
    if super::exists(id.as_str())? {
        return Err(Error::new(Code::Exists, format!("session {id} exists"))
            .hint(format!("continue it with saggar session resume {id}, or choose another name")));
    }
    request.session = Some(id.to_string());
    detach::start(request, options)?;
    let (_, directory, record) = SessionRecord::find(id.as_str())?;
    Ok((directory, record))
}
