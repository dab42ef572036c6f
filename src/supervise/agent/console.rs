//! `saggar agent DIR PROMPT`: the terminal as one more client of the bridge. It says one query on a connection
//! of its own, prints what comes back, and asks the user for permissions when there is one to ask.

use crate::bridge::proto::json;
use crate::error::{Error, Result};
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{IsTerminal, Read, Write};

/// The console's own end of its connection.
pub(super) const CONSOLE: Token = Token(1);

/// How the messages are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// The agent's own lines.
    Json,
    /// Text for people.
    Text,
}

/// What the console has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing yet.
    Going,
    /// The turn is complete.
    Done,
    /// The turn failed, and why.
    Failed(String),
}

/// The client.
#[derive(Debug)]
pub(super) struct Console {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    show: Show,
    /// Text of the present answer was already shown piece by piece.
    streamed: bool,
    asks_user: bool,
}

#[derive(Deserialize)]
struct Event<'a> {
    ev: &'a str,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    error: Option<String>,
}

impl Console {
    /// A console, and the bridge's end of its connection.
    pub(super) fn new(
        prompt: &str,
        session: &str,
        show: Show,
        registry: &Registry,
    ) -> Result<(Self, UnixStream)> {
        let fail = |e| Error::system("make a connection to the bridge", e);
        let (mut ours, theirs) = UnixStream::pair().map_err(fail)?;
        registry.register(&mut ours, CONSOLE, Interest::READABLE | Interest::WRITABLE).map_err(fail)?;
        let query = serde_json::json!({
            "cmd": "query", "prompt": prompt, "sessionId": session,
            "includePartialMessages": show == Show::Text,
        });
        let output = format!("{query}\n").into_bytes();
        let asks_user = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Ok((Console { stream: ours, input: Vec::new(), output, show, streamed: false, asks_user }, theirs))
    }

    /// Handles an event of the connection.
    pub(super) fn ready(&mut self, out: &mut impl Write) -> Result<Progress> {
        let mut chunk = [0; 65536];
        loop {
            self.flush();
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Progress::Failed("the bridge closed the connection".into())),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(Progress::Going),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::system("read from the bridge", e)),
            }
            while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                match self.event(&line, out) {
                    Progress::Going => {}
                    over => return Ok(over),
                }
            }
        }
    }

    fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn event(&mut self, line: &[u8], out: &mut impl Write) -> Progress {
        let Ok(event) = serde_json::from_slice::<Event<'_>>(line) else { return Progress::Going };
        match (event.ev, event.data) {
            ("message", Some(data)) => self.message(data.get(), out),
            ("error", _) => return Progress::Failed(event.error.unwrap_or_default()),
            ("done", _) => {
                let _ = out.flush();
                return Progress::Done;
            }
            _ => {}
        }
        Progress::Going
    }

    fn message(&mut self, data: &str, out: &mut impl Write) {
        let message: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
        if message["type"] == "control_request" && message["request"]["subtype"] == "can_use_tool" {
            self.permission(&message);
        }
        // A reader that went away (a closed pipe) ends nothing: the turn goes on in the workspace.
        let _ = match self.show {
            Show::Json => writeln!(out, "{}", json::one_line(data)).and_then(|()| out.flush()),
            Show::Text => self.text(&message, out),
        };
    }

    fn text(&mut self, message: &serde_json::Value, out: &mut impl Write) -> std::io::Result<()> {
        match message["type"].as_str() {
            Some("stream_event") => {
                if let Some(piece) = message["event"]["delta"]["text"].as_str() {
                    self.streamed = true;
                    write!(out, "{}", printable(piece))?;
                }
            }
            Some("assistant") => {
                for block in message["message"]["content"].as_array().into_iter().flatten() {
                    match (block["type"].as_str(), block["text"].as_str()) {
                        (Some("text"), Some(text)) if !self.streamed => write!(out, "{}", printable(text))?,
                        (Some("tool_use"), _) => progress(&format!(
                            "[{}] {}",
                            block["name"].as_str().unwrap_or("tool"),
                            json::shorten(&block["input"].to_string())
                        )),
                        _ => {}
                    }
                }
                let has_text = message["message"]["content"].as_array().into_iter().flatten();
                if has_text.clone().any(|block| block["type"] == "text") {
                    writeln!(out)?;
                }
                self.streamed = false;
            }
            _ => {}
        }
        out.flush()
    }

    /// Asks the user, or says no when there is none to ask.
    fn permission(&mut self, message: &serde_json::Value) {
        let request = &message["request"];
        let allowed = self.asks_user && ask(request);
        let response = if allowed {
            serde_json::json!({ "behavior": "allow", "updatedInput": request["input"] })
        } else {
            let why = if self.asks_user { "the user said no" } else { "there is no user to ask" };
            serde_json::json!({ "behavior": "deny", "message": why })
        };
        let line = serde_json::json!({
            "type": "control_response",
            "response": { "subtype": "success", "request_id": message["request_id"], "response": response },
        });
        self.output.extend_from_slice(format!("{line}\n").as_bytes());
        self.flush();
    }
}

/// One question on the terminal. Nothing else happens meanwhile: the agent waits for the answer anyway.
fn ask(request: &serde_json::Value) -> bool {
    let tool = request["tool_name"].as_str().unwrap_or("a tool");
    let input = json::shorten(&request["input"].to_string());
    say(&format!("\nallow {} {}? [y/N] ", printable(tool), printable(&input)));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && answer.trim().eq_ignore_ascii_case("y")
}

/// What goes on, on standard error, when that is a terminal.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        say(&format!("{}\n", printable(text)));
    }
}

/// Writes to the user. Standard error that is closed is no reason to stop.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Text of an agent without the control characters that would move the user's terminal about.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_agent_cannot_drive_the_terminal() {
        assert_eq!(super::printable("a\u{1b}[2Jb\u{9b}c\n\td\u{7}"), "a[2Jbc\n\td");
    }
}
