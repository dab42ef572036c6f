//! `encode` and `decode` of the seed implementation: JSON and a newline; trim and parse (BP-31). For programs on the
//! server's side of the socket, and for tests.

use super::command::BridgeCommand;
use super::json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// One line of the wire, in either direction.
#[derive(Debug)]
pub enum Frame {
    /// Server to bridge.
    Command(BridgeCommand),
    /// Bridge to server.
    Event(OwnedEvent),
}

/// An event as a server parses it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedEvent {
    /// `ready`, `message`, `error`, `done`, `exec_result`, `gap` or `log`.
    pub ev: String,
    /// The agent's line, in a `message`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// The error message, in an `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The server's id of the session, in a `done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The exit code, in an `exec_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Standard output, in an `exec_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Standard error, in an `exec_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The log text, in a `log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The sequence number of the event, on a connection that sent `replay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The first missing number, in a `gap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The last missing number, in a `gap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// The id of the command that the event belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<RawValue>>,
}

/// A line that is neither a valid command nor an event; the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FrameError(String);

/// The line of a message: its JSON and a newline.
///
/// # Errors
/// If `message` cannot be encoded as JSON (a map whose keys are not strings).
pub fn encode<T: Serialize>(message: &T) -> Result<String, FrameError> {
    let mut line = serde_json::to_string(message).map_err(|e| FrameError(e.to_string()))?;
    line.push('\n');
    Ok(line)
}

/// Parses one line, trimmed as JavaScript trims it.
///
/// # Errors
/// If the line is neither a valid command nor an event. A blank line is neither.
pub fn decode(line: &str) -> Result<Frame, FrameError> {
    let line = line.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let is_event = json::scan(line, &["ev", "cmd"]).is_ok_and(|scan| matches!(scan.fields, [Some(_), None]));
    if is_event {
        return serde_json::from_str(line).map(Frame::Event).map_err(|e| FrameError(e.to_string()));
    }
    match BridgeCommand::parse(Cow::Borrowed(line.as_bytes())) {
        Ok(Some(command)) => Ok(Frame::Command(command)),
        Ok(None) => Err(FrameError("the line is blank".into())),
        Err(bad) => Err(FrameError(bad.reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::CommandBody;
    use super::*;

    #[test]
    fn bp_31_encode_is_json_and_a_newline() {
        let message = serde_json::json!({"cmd": "interrupt"});
        assert_eq!(encode(&message).unwrap(), "{\"cmd\":\"interrupt\"}\n");
    }

    #[test]
    fn bp_31_decode_trims_and_gives_back_what_was_encoded() {
        let Frame::Command(command) = decode("  {\"cmd\":\"shutdown\"}\r\n").unwrap() else { panic!() };
        assert!(matches!(command.body, CommandBody::Shutdown));
        for line in [
            r#"{"ev":"ready"}"#,
            r#"{"ev":"message","data":{"type":"assistant","n":1e400}}"#,
            r#"{"ev":"error","error":"x"}"#,
            r#"{"ev":"done","sessionId":"s"}"#,
            r#"{"ev":"exec_result","exitCode":0,"stdout":"a","stderr":"b"}"#,
        ] {
            let Frame::Event(event) = decode(&format!("{line}\n")).unwrap() else { panic!("{line}") };
            assert_eq!(encode(&event).unwrap(), format!("{line}\n"));
        }
        assert!(
            decode("").is_err() && decode("{").is_err() && decode("{\"cmd\":\"x\",\"ev\":\"y\"}").is_err()
        );
    }
}
