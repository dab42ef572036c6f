//! One turn of a session that is served.

use super::{connect_control, not_served_error};
use crate::control::client::ControlClient;
use crate::error::{Code, Error, Result};
use crate::session::record::SessionRecord;
use crate::session::session_state::SessionState;
use crate::supervise::agent::{ConsoleFormat, TurnOutcome, client};
use serde_json::json;
use std::os::unix::net::UnixStream;

/// Sends a prompt to a session that is served, and shows the turn on standard output; the exit status as that of an
/// agent.
///
/// # Errors
/// [`Code::State`] for a session that is paused or not served, [`Code::System`].
pub fn send(session: &str, prompt: &str, console: ConsoleFormat) -> Result<u8> {
    let (outcome, mut control) = run_turn(session, prompt, console, None)?;
    match outcome {
        TurnOutcome::Done => Ok(0),
        TurnOutcome::Signal(signal) => Ok(128u8.saturating_add(u8::try_from(signal).unwrap_or(0))),
        TurnOutcome::Failed(why) => {
            log::warn!("{why}");
            // With the agent's own status, when it died of it.
            let state = control.call("state", &json!({})).unwrap_or_default();
            let is_down = state["session"]["state"] == "error";
            let status = state["session"]["lastStatus"].as_u64().filter(|status| is_down && *status != 0);
            Ok(status.and_then(|status| u8::try_from(status).ok()).unwrap_or(1))
        }
    }
}

/// One turn of a session that is served. `meanwhile` is called several times a second.
///
/// # Errors
/// As [`send`], and those of `meanwhile`.
pub(crate) fn run_turn(
    session: &str,
    prompt: &str,
    console: ConsoleFormat,
    meanwhile: Option<&mut dyn FnMut() -> Result<()>>,
) -> Result<(TurnOutcome, ControlClient)> {
    let (id, _, record) = SessionRecord::find(session)?;
    let Some(socket) = record.bridge_socket.as_ref().filter(|_| record.is_served()) else {
        return Err(not_served_error(&record));
    };
    if record.state == SessionState::Paused {
        return Err(Error::new(Code::State, format!("session {id} is paused"))
            .hint(format!("saggar session resume {id}")));
    }
    let mut control = connect_control(&record)?;
    let state = control.call("state", &json!({}))?;
    // What the server of this session calls it; the first to speak gives it its name.
    let conversation = state["session"]["conversation"].as_str().unwrap_or(id.as_str());
    let stream = UnixStream::connect(socket)
        .map_err(|e| Error::system(format_args!("connect to the bridge {socket}"), e))?;
    Ok((client::run_turn(stream, prompt, conversation, console, meanwhile)?, control))
}
