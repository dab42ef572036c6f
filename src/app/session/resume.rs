//! Resumes a session: at once where the session is served, else in a new sandbox.

use super::{connect_control, detach};
use crate::app::agent::AgentRequest;
use crate::bridge::client::{BridgeClient, ClientCommand, EventBody};
use crate::bridge::proto::json::shorten;
use crate::error::{Code, Error, Result};
use crate::session::record::{SessionOptions, SessionRecord};
use crate::session::session_state::{SessionState, SessionTransition};
use crate::state::process;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// How long an agent may take to be up again.
const AGENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a supervisor that does not answer may take to be gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Resumes a session. Where it is not served, `recorded` gives what it was created with.
///
/// # Errors
/// [`Code::State`] for one that has ended; what kept its agent from running.
pub fn resume(
    id: &str,
    recorded: impl FnOnce(&SessionRecord) -> Result<(AgentRequest, SessionOptions)>,
) -> Result<()> {
    let (_, _, record) = SessionRecord::find(id)?;
    record.state.apply(SessionTransition::Run).map_err(|illegal| illegal.to_error(id))?;
    if record.is_served() {
        match resume_served(&record) {
            // It was about to end when we looked: what it served is resumed like any other.
            Err(_) if is_gone(&record) => {}
            done => return done,
        }
    }
    let (request, options) = recorded(&record)?;
    detach::start(AgentRequest { resume: true, ..request }, options)
}

/// Lets a session that is served go on. A supervisor that was killed and is not gone yet does not answer.
fn resume_served(record: &SessionRecord) -> Result<()> {
    match record.state {
        SessionState::Paused => connect_control(record)?.call("resume", &json!({})).map(drop),
        SessionState::Error => restart_agent(record),
        SessionState::Active => connect_control(record).map(drop),
        SessionState::Starting | SessionState::Ended => Ok(()),
    }
}

/// Whether the supervisor is gone, or just going.
fn is_gone(record: &SessionRecord) -> bool {
    let pidfd = record.supervisor.as_ref().and_then(|supervisor| supervisor.open_pidfd_to_wait().ok());
    pidfd.is_none_or(|pidfd| process::wait_for_exit(&pidfd, EXIT_TIMEOUT))
}

/// Has the bridge start an agent again that has ended.
fn restart_agent(record: &SessionRecord) -> Result<()> {
    let state = connect_control(record)?.call("state", &json!({}))?;
    let session = state["session"]["conversation"].as_str().unwrap_or(&record.id);
    let socket = record.bridge_socket.as_deref().unwrap_or_default();
    let end = BridgeClient::connect_with_timeout(Path::new(socket), AGENT_TIMEOUT)
        .and_then(|mut client| client.run(&ClientCommand::resume(session), |_| Ok(())))
        .map_err(|error| error.context(format_args!("start the agent of session {}", record.id)))?;
    match end.body() {
        EventBody::Error(why) => {
            Err(Error::new(Code::State, format!("session {}: {}", record.id, shorten(why))))
        }
        _ => Ok(()),
    }
}
