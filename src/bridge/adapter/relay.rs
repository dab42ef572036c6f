//! Agents that speak seed 000 themselves: on a socket of their own (`bridge`), or on their stdin and stdout
//! (`demo`). They get each command as it came; their `message`, `error` and `done` are taken over, their
//! `ready` is ours.

use super::{Abort, Adapter, Context, Heard, Message, Transport, line_out};
use crate::bridge::proto::json::{self, quote};
use crate::bridge::proto::{LogLevel, Query};

/// The translator for agents that speak the bridge's own dialect.
#[derive(Debug)]
pub struct Relay {
    name: &'static str,
    transport: Transport,
    /// Terminal events still to come for commands of ours that no server knows of.
    own: u32,
}

impl Relay {
    /// For an agent that listens on a unix socket.
    pub fn bridge() -> Self {
        Relay { name: "bridge", transport: Transport::Socket, own: 0 }
    }

    /// For an agent on stdin and stdout, such as the built-in one.
    pub fn demo() -> Self {
        Relay { name: "demo", transport: Transport::Stdio, own: 0 }
    }

    fn ended<'a>(&mut self, event: Heard<'a>) -> Heard<'a> {
        if self.own == 0 {
            return event;
        }
        self.own -= 1;
        match event {
            Heard::Failed(text) => Heard::Note(LogLevel::Warn, format!("the agent could not resume: {text}")),
            _ => Heard::Nothing,
        }
    }
}

impl Adapter for Relay {
    fn name(&self) -> &'static str {
        self.name
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn arguments(&self, _resume: Option<&str>, _flags: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn flags(&self, _query: &Query) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn greets(&self) -> bool {
        true
    }

    fn hears_resume(&self) -> bool {
        true
    }

    fn started(&mut self) {
        self.own = 0;
    }

    fn query(&mut self, query: &Query, context: Context<'_>) -> Vec<u8> {
        let mut lines = Vec::new();
        if context.catch_up {
            self.own += 1;
            let session = quote(query.session());
            lines = line_out(&format!("{{\"cmd\":\"resume\",\"sessionId\":{session}}}"));
        }
        lines.append(&mut line_out(query.line()));
        lines
    }

    fn opening(&self) -> bool {
        false
    }

    fn resume(&mut self, line: &str) -> Vec<u8> {
        line_out(line)
    }

    fn abort(&mut self) -> Abort {
        Abort::Tell(line_out("{\"cmd\":\"interrupt\"}"))
    }

    fn answer(&mut self, line: &str) -> Vec<u8> {
        line_out(line)
    }

    fn takes_modes(&self) -> bool {
        false
    }

    fn hear<'a>(&mut self, line: &'a str, _in_turn: bool) -> Heard<'a> {
        let Ok(scan) = json::scan(line, &["ev", "data", "error", "text"]) else {
            return Heard::Plain;
        };
        let [event, data, error, text] = scan.fields;
        match (event.and_then(json::string).as_deref(), data) {
            (Some("ready"), _) => Heard::Ready,
            (Some("message"), Some(data)) => Heard::Message(message(data)),
            (Some("done"), _) => self.ended(Heard::Done),
            (Some("error"), _) => {
                let text = error.and_then(json::string);
                self.ended(Heard::Failed(text.unwrap_or_else(|| "the agent failed without a reason".into())))
            }
            (Some("log"), _) => Heard::Note(LogLevel::Info, text.and_then(json::string).unwrap_or_default()),
            _ => Heard::Note(LogLevel::Warn, format!("not an event of the bridge: {}", json::shorten(line))),
        }
    }
}

fn message(data: &str) -> Message<'_> {
    let mut message = Message { data, ..Message::default() };
    if let Ok(scan) = json::scan(data, &["type", "session_id"]) {
        let [kind, session] = scan.fields;
        let kind = kind.and_then(json::string);
        message.asks = matches!(kind.as_deref(), Some("control_request" | "control_cancel_request"));
        if kind.as_deref() == Some("system") {
            message.agent_session = session.and_then(json::string);
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bp_11_the_agents_data_is_taken_over_byte_for_byte() {
        let line = r#"{"data": {"type":"system","session_id":"a","n":1e400} ,"ev":"message"}"#;
        let Heard::Message(message) = Relay::demo().hear(line, true) else { panic!() };
        assert_eq!(message.data, r#"{"type":"system","session_id":"a","n":1e400}"#);
        assert_eq!(message.agent_session.as_deref(), Some("a"));
    }

    #[test]
    fn bp_12_events_that_are_not_of_the_bridge_stay_inside() {
        for line in [r#"{"ev":"tool_use"}"#, r#"{"ev":"message"}"#, "[]", "hello", r#"{"ev":"exec_result"}"#]
        {
            assert!(matches!(Relay::bridge().hear(line, true), Heard::Note(..) | Heard::Plain), "{line}");
        }
    }

    #[test]
    fn bp_08_a_fresh_process_is_told_to_resume_and_its_answer_is_swallowed() {
        let command = crate::bridge::proto::Command::parse(
            br#"{"cmd":"query","prompt":1,"sessionId":"s","x":2.50}"#[..].into(),
        );
        let crate::bridge::proto::Request::Query(query) = command.unwrap().unwrap().request else { panic!() };
        let mut relay = Relay::demo();
        let lines = relay.query(&query, Context { agent_session: None, catch_up: true });
        let expected = concat!(
            "{\"cmd\":\"resume\",\"sessionId\":\"s\"}\n",
            "{\"cmd\":\"query\",\"prompt\":1,\"sessionId\":\"s\",\"x\":2.50}\n"
        );
        assert_eq!(lines, expected.as_bytes());
        assert_eq!(relay.hear(r#"{"ev":"done","sessionId":"s"}"#, true), Heard::Nothing);
        assert_eq!(relay.hear(r#"{"ev":"done","sessionId":"s"}"#, true), Heard::Done);
    }
}
