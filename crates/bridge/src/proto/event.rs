//! Events: the lines that the bridge sends to a server. The bridge sends no other value of `ev` (BP-12, BP-33).

use super::command::CommandId;
use super::json;
use std::io::Write;

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Details for troubleshooting.
    Debug,
    /// Output of the agent outside its messages, and changes of its state.
    Info,
    /// Data was dropped or lost.
    Warn,
}

impl LogLevel {
    /// The value of `level` on the wire.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
        }
    }
}

/// One event; it borrows its data.
#[derive(Debug, Clone, Copy)]
pub enum BridgeEvent<'a> {
    /// The bridge accepts commands. It is the first event of every connection and is sent once (BP-04).
    Ready,
    /// A line of the agent.
    Message {
        /// The line, inserted byte for byte: valid JSON (BP-11).
        data: &'a str,
    },
    /// The command failed. It is the last event of the command (BP-13).
    Error {
        /// The error message.
        text: &'a str,
    },
    /// The command is complete.
    Done {
        /// The server's id of the session; empty for an `exec`.
        session: &'a str,
    },
    /// The result of an `exec`. Its `done` follows in the same buffer (BP-21).
    ExecResult {
        /// The exit code; 128+N after signal N, 124 after the timeout.
        exit_code: i32,
        /// Standard output as text; bytes that are not UTF-8 are replaced.
        stdout: &'a str,
        /// Standard error as text; bytes that are not UTF-8 are replaced.
        stderr: &'a str,
        /// Whether output was truncated at the limit (BP-23).
        truncated: bool,
    },
    /// A range of events is lost. Only connections that sent `replay` receive this event.
    Gap {
        /// The first missing number.
        from: u64,
        /// The last missing number.
        to: u64,
    },
    /// A log line. Only connections with `log` enabled receive it (DECISIONS 18).
    Log {
        /// The level.
        level: LogLevel,
        /// The log text.
        text: &'a str,
        /// The time, in milliseconds since 1970.
        ts: u64,
    },
}

impl BridgeEvent<'_> {
    /// The line on the wire, with its newline. `id` is the id of the command that the event belongs to.
    pub fn encode(self, id: Option<&CommandId>) -> Vec<u8> {
        let mut line = Vec::with_capacity(self.size_hint());
        self.append(id, &mut line);
        line
    }

    /// Appends the encoded event to `line`, for events that must be written together.
    pub fn append(self, id: Option<&CommandId>, line: &mut Vec<u8>) {
        match self {
            BridgeEvent::Ready => line.extend_from_slice(b"{\"ev\":\"ready\""),
            BridgeEvent::Message { data } => {
                line.extend_from_slice(b"{\"ev\":\"message\",\"data\":");
                line.extend_from_slice(data.as_bytes());
            }
            BridgeEvent::Error { text } => push_string(line, "{\"ev\":\"error\",\"error\":", text),
            BridgeEvent::Done { session } => push_string(line, "{\"ev\":\"done\",\"sessionId\":", session),
            BridgeEvent::ExecResult { exit_code, stdout, stderr, truncated } => {
                push_number(line, "{\"ev\":\"exec_result\",\"exitCode\":", i64::from(exit_code));
                push_string(line, ",\"stdout\":", stdout);
                push_string(line, ",\"stderr\":", stderr);
                if truncated {
                    line.extend_from_slice(b",\"truncated\":true");
                }
            }
            BridgeEvent::Gap { from, to } => {
                // A write to a Vec cannot fail.
                let _ = write!(line, "{{\"ev\":\"gap\",\"from\":{from},\"to\":{to}");
            }
            BridgeEvent::Log { level, text, ts } => {
                push_string(line, "{\"ev\":\"log\",\"level\":", level.name());
                push_string(line, ",\"text\":", text);
                push_number(line, ",\"ts\":", i64::try_from(ts).unwrap_or(i64::MAX));
            }
        }
        if let Some(id) = id {
            line.extend_from_slice(b",\"id\":");
            line.extend_from_slice(id.as_json().as_bytes());
        }
        line.extend_from_slice(b"}\n");
    }

    fn size_hint(self) -> usize {
        match self {
            BridgeEvent::Message { data } => data.len() + 64,
            BridgeEvent::ExecResult { stdout, stderr, .. } => stdout.len() + stderr.len() + 128,
            _ => 128,
        }
    }
}

fn push_string(line: &mut Vec<u8>, before: &str, text: &str) {
    line.extend_from_slice(before.as_bytes());
    // Serialising a string to memory cannot fail. If it did, the line must still be JSON.
    if serde_json::to_writer(&mut *line, text).is_err() {
        line.extend_from_slice(json::quote("").as_bytes());
    }
}

fn push_number(line: &mut Vec<u8>, before: &str, number: i64) {
    // A write to a Vec cannot fail.
    let _ = write!(line, "{before}{number}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bp_11_data_is_the_line_byte_for_byte() {
        let data = r#"{ "a":1e400,"a":12345678901234567890,"s":"\u0000\ud800","n":2.50 }"#;
        let line = BridgeEvent::Message { data }.encode(None);
        assert_eq!(String::from_utf8(line).unwrap(), format!("{{\"ev\":\"message\",\"data\":{data}}}\n"));
    }

    #[test]
    fn bp_01_every_event_is_one_line_of_json() {
        let nasty = "a\nb\r\u{2028}\"\\\0";
        for event in [
            BridgeEvent::Ready,
            BridgeEvent::Error { text: nasty },
            BridgeEvent::Done { session: nasty },
            BridgeEvent::ExecResult { exit_code: -1, stdout: nasty, stderr: nasty, truncated: true },
            BridgeEvent::Log { level: LogLevel::Info, text: nasty, ts: u64::MAX },
            BridgeEvent::Gap { from: 1, to: u64::MAX },
        ] {
            let line = event.encode(None);
            assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1));
            serde_json::from_slice::<serde_json::Value>(&line).unwrap();
        }
    }
}
