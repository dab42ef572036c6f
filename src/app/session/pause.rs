//! Pauses a session.

use super::connect_control;
use crate::error::Result;
use crate::session::record::SessionRecord;
use crate::session::session_state::{SessionState, SessionTransition};
use serde_json::json;

/// Freezes every process of a session. It is not an error if the session is paused already.
///
/// # Errors
/// [`crate::error::Code::State`] for one that is not served.
pub fn pause(id: &str) -> Result<()> {
    let (_, _, record) = SessionRecord::find(id)?;
    record.state.apply(SessionTransition::Pause).map_err(|illegal| illegal.to_error(id))?;
    if record.state == SessionState::Paused {
        return Ok(());
    }
    connect_control(&record)?.call("pause", &json!({})).map(drop)
}
