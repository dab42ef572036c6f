//! The demo agent in a pair run: it answers the prompt of its turn by messages, as a model would by calls of tools.
//!
//! What it sends in each iteration is in `demo.json` of its folder, or made up. A turn that is cut off and asked for again,
//! or whose connection is lost, sends the same messages, of which the mailbox keeps one each.

use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The script in the agent's folder: for each iteration, the arguments of calls of `send_to_agent`.
const SCRIPT: &str = "demo.json";
const VERSION: &str = "2025-11-25";
/// Most connections to the mailbox in one turn.
const MAX_CONNECTIONS: u32 = 3;

/// A turn, as the prompt of a pair run names it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PairTurn<'a> {
    role: &'a str,
    other: &'a str,
    /// From 1.
    iteration: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedMessage {
    #[serde(default)]
    to: String,
    message_type: String,
    content: String,
    #[serde(default)]
    signal: String,
}

impl<'a> PairTurn<'a> {
    /// The turn of a prompt such as `You are codex, the worker, and work with claude. Iteration 2 of 5.`; `None` for
    /// another prompt.
    pub(super) fn of_prompt(prompt: &'a str) -> Option<Self> {
        let (_, rest) = prompt.lines().next()?.strip_prefix("You are ")?.split_once(", ")?;
        let (role, rest) = rest.split_once(", and work with ")?;
        let (other, rest) = rest.split_once(". Iteration ")?;
        let (iteration, _) = rest.split_once(" of ")?;
        Some(PairTurn { role, other, iteration: iteration.parse().ok().filter(|number| *number > 0)? })
    }

    /// Sends the messages of the turn; returns what the agent says of it.
    pub(super) fn take(&self, folder: Option<&Path>, socket: &Path) -> Result<String, String> {
        let messages = match folder.map(|folder| folder.join(SCRIPT)).filter(|script| script.exists()) {
            Some(script) => self.scripted(&script)?,
            None => self.made_up(),
        };
        let mut connections = 1;
        loop {
            match send_all(&messages, socket) {
                Ok(()) => {
                    return Ok(format!("Iteration {}: {} messages sent.", self.iteration, messages.len()));
                }
                // A process of the mailbox that has died is replaced; meanwhile its socket takes connections.
                Err(ClientError::Lost(_)) if connections < MAX_CONNECTIONS => connections += 1,
                Err(ClientError::Lost(why) | ClientError::Refused(why)) => return Err(why),
            }
        }
    }

    fn scripted(&self, script: &Path) -> Result<Vec<ScriptedMessage>, String> {
        let fail = |why: &dyn std::fmt::Display| format!("{}: {why}", script.display());
        let text = std::fs::read(script).map_err(|e| fail(&e))?;
        let mut script: Vec<Vec<ScriptedMessage>> = serde_json::from_slice(&text).map_err(|e| fail(&e))?;
        let index = self.iteration - 1;
        Ok(if index < script.len() { script.swap_remove(index) } else { Vec::new() })
    }

    fn made_up(&self) -> Vec<ScriptedMessage> {
        let message = |message_type: &str, content: String| ScriptedMessage {
            to: self.other.to_owned(),
            message_type: message_type.to_owned(),
            content,
            signal: String::new(),
        };
        let signal = |signal: &str, content: &str| ScriptedMessage {
            to: String::new(),
            message_type: "signal".to_owned(),
            content: content.to_owned(),
            signal: signal.to_owned(),
        };
        let draft = || message("result", format!("Version {} of the work.", self.iteration));
        match (self.role, self.iteration) {
            ("the reviewer", 1) => vec![message("review", "Please check the input as well.".to_owned())],
            ("the reviewer", _) => vec![signal("PASS", "Looks good.")],
            (_, 1) => vec![draft()],
            ("the worker", _) => vec![draft(), signal("DONE", "The work is complete.")],
            _ => vec![signal("DONE", "The work is complete."), signal("PASS", "Looks good.")],
        }
    }
}

/// Sends messages to the mailbox.
fn send_all(messages: &[ScriptedMessage], socket: &Path) -> Result<(), ClientError> {
    let mut client = MailboxClient::connect(socket)?;
    messages.iter().try_for_each(|message| client.send(message))
}

/// Why a message was not sent, as text for people.
#[derive(Debug)]
enum ClientError {
    /// The connection was closed, or could not be made.
    Lost(String),
    /// The mailbox does not take the message.
    Refused(String),
}

/// A client of the mailbox of this sandbox (saggar-mailbox(7)).
struct MailboxClient {
    output: UnixStream,
    input: BufReader<UnixStream>,
    last_id: u64,
}

impl MailboxClient {
    fn connect(socket: &Path) -> Result<Self, ClientError> {
        let fail = |e: std::io::Error| ClientError::Lost(format!("connect to {}: {e}", socket.display()));
        let output = UnixStream::connect(socket).map_err(fail)?;
        let input = BufReader::new(output.try_clone().map_err(fail)?);
        let mut client = MailboxClient { output, input, last_id: 0 };
        let info = json!({ "name": "saggar-demo", "version": env!("CARGO_PKG_VERSION") });
        client.request(
            "initialize",
            &json!({ "protocolVersion": VERSION, "capabilities": {}, "clientInfo": info }),
        )?;
        client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(client)
    }

    fn send(&mut self, message: &ScriptedMessage) -> Result<(), ClientError> {
        let ScriptedMessage { to, message_type, content, signal } = message;
        let arguments =
            json!({ "to": to, "message_type": message_type, "content": content, "signal": signal });
        let result =
            self.request("tools/call", &json!({ "name": "send_to_agent", "arguments": arguments }))?;
        match result["isError"].as_bool() {
            Some(false) | None => Ok(()),
            Some(true) => {
                let text = result["content"][0]["text"].as_str().unwrap_or("send_to_agent failed");
                Err(ClientError::Refused(text.to_owned()))
            }
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value, ClientError> {
        self.last_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }))?;
        let lost = |why: &dyn std::fmt::Display| ClientError::Lost(format!("read from the mailbox: {why}"));
        let mut line = String::new();
        match self.input.read_line(&mut line) {
            Ok(0) => return Err(lost(&"the connection was closed")),
            Ok(_) => {}
            Err(error) => return Err(lost(&error)),
        }
        let mut answer: Value = serde_json::from_str(&line)
            .map_err(|e| ClientError::Refused(format!("read from the mailbox: {e}")))?;
        match answer["error"]["message"].as_str() {
            Some(error) => Err(ClientError::Refused(error.to_owned())),
            None => Ok(answer["result"].take()),
        }
    }

    fn write(&mut self, message: &Value) -> Result<(), ClientError> {
        self.output
            .write_all(format!("{message}\n").as_bytes())
            .map_err(|e| ClientError::Lost(format!("write to the mailbox: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_what_its_prompt_names() {
        let prompt = "You are codex, the worker, and work with claude. Iteration 12 of 20.\n\nThe task:";
        assert_eq!(
            PairTurn::of_prompt(prompt),
            Some(PairTurn { role: "the worker", other: "claude", iteration: 12 })
        );
        for other in
            ["", "You are codex", "You are a, the worker, and work with b. Iteration 0 of 2.", "run: You are"]
        {
            assert_eq!(PairTurn::of_prompt(other), None, "{other}");
        }
    }
}
