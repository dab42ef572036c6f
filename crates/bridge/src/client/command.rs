//! Commands, as a client sends them.

use serde_json::{Map, Value, json};
use std::time::Duration;

/// A command to the bridge (saggar-bridge(7), COMMANDS), or the answer to a request of the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCommand(Map<String, Value>);

impl ClientCommand {
    fn new(name: &str) -> Self {
        ClientCommand(Map::new()).with("cmd", name)
    }

    /// Runs one turn with a prompt, a text or any other JSON, in the conversation that the server calls `session`.
    pub fn query(prompt: impl Into<Value>, session: &str) -> Self {
        ClientCommand::new("query").with("prompt", prompt).with("sessionId", session)
    }

    /// Starts the agent with its conversation, and runs no turn.
    pub fn resume(session: &str) -> Self {
        ClientCommand::new("resume").with("sessionId", session)
    }

    /// Aborts the running or waiting turn of this connection.
    pub fn interrupt() -> Self {
        ClientCommand::new("interrupt")
    }

    /// Ends the agent and the bridge.
    pub fn shutdown() -> Self {
        ClientCommand::new("shutdown")
    }

    /// Runs a shell command beside the agent, for at most `timeout`, or 30 seconds.
    pub fn exec(command: &str, timeout: Option<Duration>) -> Self {
        let exec = ClientCommand::new("exec").with("command", command);
        match timeout {
            Some(timeout) => exec.with("timeout", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            None => exec,
        }
    }

    /// Changes settings of this connection; name them with [`ClientCommand::with`].
    pub fn set() -> Self {
        ClientCommand::new("set")
    }

    /// Has all events after this number sent, and all later ones with their numbers; 0 for all.
    pub fn replay(after: u64) -> Self {
        ClientCommand::new("replay").with("after", after)
    }

    /// Answers a permission request of the agent: the whole `control_request` message, or the data of the event that has
    /// it, and what is answered, such as `{"behavior":"allow"}`.
    pub fn answer(request: &Value, answer: Value) -> Self {
        let response =
            json!({ "subtype": "success", "request_id": request["request_id"], "response": answer });
        ClientCommand(Map::new()).with("type", "control_response").with("response", response)
    }

    /// The command with another field, such as `model` of a query.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0.insert(field.to_owned(), value.into());
        self
    }

    /// The command with an id, a string or a number, which each of its events will have. Commands with ids run concurrently.
    #[must_use]
    pub fn with_id(self, id: impl Into<Value>) -> Self {
        self.with("id", id)
    }

    /// The line on the wire, with its newline.
    pub fn encode(&self) -> Vec<u8> {
        // JSON of strings, numbers and maps with text keys is always written.
        let mut line = serde_json::to_vec(&self.0).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{BridgeCommand, CommandBody};
    use std::borrow::Cow;

    /// What the bridge takes a command for.
    fn received(command: &ClientCommand) -> BridgeCommand {
        let line = command.encode();
        let line = line.strip_suffix(b"\n").unwrap().to_vec();
        BridgeCommand::parse(Cow::Owned(line)).unwrap().unwrap()
    }

    #[test]
    fn the_bridge_reads_what_a_client_writes() {
        let query = received(&ClientCommand::query("a\n\u{2028}\"b", "s").with("model", "m").with_id(7));
        assert_eq!(query.id.unwrap().as_json(), "7");
        let CommandBody::Query(query) = query.body else { panic!("no query") };
        assert_eq!(serde_json::from_str::<String>(query.prompt()).unwrap(), "a\n\u{2028}\"b");
        assert_eq!(query.session(), "s");
        let body = |command: &ClientCommand| received(command).body;
        assert!(
            matches!(body(&ClientCommand::resume("s")), CommandBody::Resume(resume) if resume.session == "s")
        );
        assert!(matches!(body(&ClientCommand::interrupt()), CommandBody::Interrupt));
        assert!(matches!(body(&ClientCommand::shutdown()), CommandBody::Shutdown));
        assert!(matches!(body(&ClientCommand::replay(41)), CommandBody::Replay(41)));
        assert!(matches!(body(&ClientCommand::set().with("log", true)), CommandBody::Set(_)));
        let CommandBody::Exec(exec) = body(&ClientCommand::exec("true", Some(Duration::from_millis(1500))))
        else {
            panic!("no exec")
        };
        assert_eq!((exec.command.as_str(), exec.timeout), ("true", Duration::from_millis(1500)));
        let answer = ClientCommand::answer(
            &json!({ "request_id": "r1" }),
            json!({ "behavior": "deny", "message": "no" }),
        );
        assert!(matches!(body(&answer), CommandBody::Response(response) if response.request_id == "r1"));
    }
}
