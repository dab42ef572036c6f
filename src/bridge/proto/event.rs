//! Events: what a server hears. No other `ev` than these ever leaves (BP-12, BP-33).

use super::command::Id;
use super::json;
use std::io::Write;

/// How loud a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For those who look for a fault.
    Debug,
    /// What the agent says beside its messages, and what becomes of it.
    Info,
    /// Something was left out or lost.
    Warn,
}

impl LogLevel {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
        }
    }
}

/// One event, borrowing what it carries.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// The bridge takes commands; first on every connection, once (BP-04).
    Ready,
    /// A line of the agent.
    Message {
        /// The line itself, put in byte for byte: valid JSON (BP-11).
        data: &'a str,
    },
    /// The command failed; nothing more follows for it (BP-13).
    Error {
        /// What happened, for people.
        text: &'a str,
    },
    /// The command is complete.
    Done {
        /// The server's name for the conversation; empty for an `exec`.
        session: &'a str,
    },
    /// What an `exec` left behind. Its `done` follows in the same buffer (BP-21).
    ExecResult {
        /// The exit code; 128+N after signal N, 124 after the timeout.
        exit_code: i32,
        /// What it wrote, as text; bytes that are not UTF-8 are replaced.
        stdout: &'a str,
        /// The same, of its other stream.
        stderr: &'a str,
        /// Whether output was cut off at the limit (BP-23).
        truncated: bool,
    },
    /// These events are lost; only on connections that asked for what they missed.
    Gap {
        /// The first number that is missing.
        from: u64,
        /// The last one.
        to: u64,
    },
    /// Something for the log; only on connections that asked (DECISIONS 18).
    Log {
        /// How loud.
        level: LogLevel,
        /// What was said.
        text: &'a str,
        /// When, in milliseconds since 1970.
        ts: u64,
    },
}

impl Event<'_> {
    /// The line on the wire, with its newline; `id` is that of the command it belongs to.
    pub fn encode(self, id: Option<&Id>) -> Vec<u8> {
        let mut line = Vec::with_capacity(self.size_hint());
        self.append(id, &mut line);
        line
    }

    /// The same, after what already stands in `line`: for events that must leave together.
    pub fn append(self, id: Option<&Id>, line: &mut Vec<u8>) {
        match self {
            Event::Ready => line.extend_from_slice(b"{\"ev\":\"ready\""),
            Event::Message { data } => {
                line.extend_from_slice(b"{\"ev\":\"message\",\"data\":");
                line.extend_from_slice(data.as_bytes());
            }
            Event::Error { text } => string(line, "{\"ev\":\"error\",\"error\":", text),
            Event::Done { session } => string(line, "{\"ev\":\"done\",\"sessionId\":", session),
            Event::ExecResult { exit_code, stdout, stderr, truncated } => {
                number(line, "{\"ev\":\"exec_result\",\"exitCode\":", i64::from(exit_code));
                string(line, ",\"stdout\":", stdout);
                string(line, ",\"stderr\":", stderr);
                if truncated {
                    line.extend_from_slice(b",\"truncated\":true");
                }
            }
            Event::Gap { from, to } => {
                // Writing to a Vec cannot fail.
                let _ = write!(line, "{{\"ev\":\"gap\",\"from\":{from},\"to\":{to}");
            }
            Event::Log { level, text, ts } => {
                string(line, "{\"ev\":\"log\",\"level\":", level.name());
                string(line, ",\"text\":", text);
                number(line, ",\"ts\":", i64::try_from(ts).unwrap_or(i64::MAX));
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
            Event::Message { data } => data.len() + 64,
            Event::ExecResult { stdout, stderr, .. } => stdout.len() + stderr.len() + 128,
            _ => 128,
        }
    }
}

fn string(line: &mut Vec<u8>, before: &str, text: &str) {
    line.extend_from_slice(before.as_bytes());
    // A string is written to memory: neither can fail. Were it to, the line must still be JSON.
    if serde_json::to_writer(&mut *line, text).is_err() {
        line.extend_from_slice(json::quote("").as_bytes());
    }
}

fn number(line: &mut Vec<u8>, before: &str, number: i64) {
    // Writing to a Vec cannot fail.
    let _ = write!(line, "{before}{number}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bp_11_data_is_the_line_byte_for_byte() {
        let data = r#"{ "a":1e400,"a":12345678901234567890,"s":"\u0000\ud800","n":2.50 }"#;
        let line = Event::Message { data }.encode(None);
        assert_eq!(String::from_utf8(line).unwrap(), format!("{{\"ev\":\"message\",\"data\":{data}}}\n"));
    }

    #[test]
    fn bp_01_every_event_is_one_line_of_json() {
        let nasty = "a\nb\r\u{2028}\"\\\0";
        for event in [
            Event::Ready,
            Event::Error { text: nasty },
            Event::Done { session: nasty },
            Event::ExecResult { exit_code: -1, stdout: nasty, stderr: nasty, truncated: true },
            Event::Log { level: LogLevel::Info, text: nasty, ts: u64::MAX },
            Event::Gap { from: 1, to: u64::MAX },
        ] {
            let line = event.encode(None);
            assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1));
            serde_json::from_slice::<serde_json::Value>(&line).unwrap();
        }
    }
}
