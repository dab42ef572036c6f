//! A command beside the agent of a session that is served.

use super::control_socket;
use crate::control::client::ControlClient;
use crate::error::{Code, Error, Result};
use crate::session::record::SessionRecord;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// How long the response may take after the command has reached its time limit.
const RESPONSE_MARGIN: Duration = Duration::from_secs(60);

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionExecResult {
    /// The exit status: 128+N after signal N, 124 at the time limit.
    pub exit_code: u8,
    /// Standard output, at most 10 MiB.
    pub stdout: String,
    /// Standard error, at most 10 MiB.
    pub stderr: String,
    /// Whether output was removed.
    pub truncated: bool,
}

/// Runs a command with a shell in the sandbox of a session. It is killed at its time limit, which is at most one day, and
/// when this process ends.
///
/// # Errors
/// [`Code::State`] for a session that is paused or not served, [`Code::System`].
pub fn exec(session: &str, command: &str, timeout: Duration) -> Result<SessionExecResult> {
    let (id, _, record) = SessionRecord::find(session)?;
    let in_session = |error: Error| error.context(format_args!("session {id}"));
    let mut control =
        ControlClient::connect_with_timeout(control_socket(&record)?, timeout + RESPONSE_MARGIN)
            .map_err(in_session)?;
    let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let parameters = json!({ "command": command, "timeout": milliseconds, "attached": true });
    let result = control.call("exec", &parameters).map_err(in_session)?;
    serde_json::from_value(result)
        .map_err(|error| Error::new(Code::System, format!("session {id}: the result of a command: {error}")))
}
