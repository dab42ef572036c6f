//! `encode` and `decode` as the seed defines them: JSON and a newline; trim and parse (BP-31). For programs on
//! the server's side of the socket, and for tests.

use super::command::Command;
use super::json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// One line of the wire, of either direction.
#[derive(Debug)]
pub enum Frame {
    /// Server to bridge.
    Command(Command),
    /// Bridge to server.
    Event(OwnedEvent),
}

/// An event as a server reads it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedEvent {
    /// `ready`, `message`, `error`, `done`, `exec_result`, `gap` or `log`.
    pub ev: String,
    /// The agent's line, of a `message`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// What happened, of an `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The conversation, of a `done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Of an `exec_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Of an `exec_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Of an `exec_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Of a `log`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The number of the event, on a connection that asked for what it missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The first number that is missing, of a `gap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// The last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// The id of the command it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<RawValue>>,
}

/// Why a line is neither a command nor an event.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FrameError(String);

/// The line of a message: its JSON and a newline.
///
/// # Errors
/// When `message` cannot be JSON (a map with keys that are no strings).
pub fn encode<T: Serialize>(message: &T) -> Result<String, FrameError> {
    let mut line = serde_json::to_string(message).map_err(|e| FrameError(e.to_string()))?;
    line.push('\n');
    Ok(line)
}

/// Reads one line, after trimming it as JavaScript does.
///
/// # Errors
/// When it is neither a valid command nor an event; a blank line is neither.
pub fn decode(line: &str) -> Result<Frame, FrameError> {
    let line = line.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let is_event = json::scan(line, &["ev", "cmd"]).is_ok_and(|scan| matches!(scan.fields, [Some(_), None]));
    if is_event {
        return serde_json::from_str(line).map(Frame::Event).map_err(|e| FrameError(e.to_string()));
    }
    match Command::parse(Cow::Borrowed(line.as_bytes())) {
        Ok(Some(command)) => Ok(Frame::Command(command)),
        Ok(None) => Err(FrameError("the line is blank".into())),
        Err(bad) => Err(FrameError(bad.reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::Request;
    use super::*;

    #[test]
    fn bp_31_encode_is_json_and_a_newline() {
        let message = serde_json::json!({"cmd": "interrupt"});
        assert_eq!(encode(&message).unwrap(), "{\"cmd\":\"interrupt\"}\n");
    }

    #[test]
    fn bp_31_decode_trims_and_gives_back_what_was_encoded() {
        let Frame::Command(command) = decode("  {\"cmd\":\"shutdown\"}\r\n").unwrap() else { panic!() };
        assert!(matches!(command.request, Request::Shutdown));
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
