//! The adapter for agents that implement the bridge's own protocol, on a socket (`bridge`) or on stdin and stdout
//! (`demo`). The agent receives each command unchanged. Its `message`, `error` and `done` are forwarded; its `ready`
//! is not, because the bridge sends its own.

use super::{AbortAction, Adapter, AdapterEvent, AgentMessage, AgentTransport, TurnContext, encode_line};
use crate::proto::json::{self, quote};
use crate::proto::{LogLevel, QueryCommand};

/// The adapter for agents that implement the bridge's command dialect.
#[derive(Debug)]
pub struct NativeAdapter {
    name: &'static str,
    transport: AgentTransport,
    /// The agent stores each conversation, and loads it on a `resume`.
    stores_conversations: bool,
    /// Number of terminal events still expected for commands that the bridge itself sent.
    internal_commands: u32,
}

impl NativeAdapter {
    /// Creates an adapter for an agent that listens on a unix socket.
    pub fn bridge() -> Self {
        NativeAdapter::new("bridge", AgentTransport::Socket)
    }

    /// Creates an adapter for an agent on stdin and stdout, such as the built-in one.
    pub fn demo() -> Self {
        NativeAdapter::new("demo", AgentTransport::Stdio)
    }

    /// Creates an adapter for the built-in agent, which stores its conversations.
    pub fn built_in_demo() -> Self {
        NativeAdapter { stores_conversations: true, ..NativeAdapter::demo() }
    }

    fn new(name: &'static str, transport: AgentTransport) -> Self {
        NativeAdapter { name, transport, stores_conversations: false, internal_commands: 0 }
    }

    fn end_command<'a>(&mut self, event: AdapterEvent<'a>) -> AdapterEvent<'a> {
        if self.internal_commands == 0 {
            return event;
        }
        self.internal_commands -= 1;
        match event {
            AdapterEvent::Failed(text) => {
                AdapterEvent::Log(LogLevel::Warn, format!("the agent could not resume: {text}"))
            }
            _ => AdapterEvent::Ignored,
        }
    }
}

impl Adapter for NativeAdapter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn transport(&self) -> AgentTransport {
        self.transport
    }

    fn start_arguments(&self, _resume: Option<&str>, _flags: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn start_flags(&self, _query: &QueryCommand) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn sends_ready(&self) -> bool {
        true
    }

    fn takes_resume(&self) -> bool {
        true
    }

    fn can_replace_process(&self, has_conversation: bool, _agent_session: Option<&str>) -> bool {
        // Nothing in the protocol shows whether the agent stores its conversation, or has it in memory alone.
        !has_conversation || self.stores_conversations
    }

    fn on_start(&mut self) {
        self.internal_commands = 0;
    }

    fn encode_query(&mut self, query: &QueryCommand, context: TurnContext<'_>) -> Vec<u8> {
        let mut lines = Vec::new();
        if context.needs_resume {
            self.internal_commands += 1;
            let line = format!("{{\"cmd\":\"resume\",\"sessionId\":{}}}", quote(query.session()));
            lines = encode_resume(&line, context.agent_session);
        }
        lines.append(&mut encode_line(query.line()));
        lines
    }

    fn awaits_settings(&self) -> bool {
        false
    }

    fn encode_resume(&mut self, line: &str, agent_session: Option<&str>) -> Vec<u8> {
        encode_resume(line, agent_session)
    }

    fn abort_turn(&mut self) -> AbortAction {
        AbortAction::Send(encode_line("{\"cmd\":\"interrupt\"}"))
    }

    fn encode_response(&mut self, line: &str) -> Vec<u8> {
        encode_line(line)
    }

    fn supports_modes(&self) -> bool {
        false
    }

    fn parse_line<'a>(&mut self, line: &'a str, _in_turn: bool) -> AdapterEvent<'a> {
        let Ok(scan) = json::scan(line, &["ev", "data", "error", "text"]) else {
            return AdapterEvent::NotJson;
        };
        let [event, data, error, text] = scan.fields;
        match (event.and_then(json::parse_string).as_deref(), data) {
            (Some("ready"), _) => AdapterEvent::Ready,
            (Some("message"), Some(data)) => AdapterEvent::Message(parse_message(data)),
            (Some("done"), _) => self.end_command(AdapterEvent::Done),
            (Some("error"), _) => {
                let text = error.and_then(json::parse_string);
                self.end_command(AdapterEvent::Failed(
                    text.unwrap_or_else(|| "the agent failed without a reason".into()),
                ))
            }
            (Some("log"), _) => {
                AdapterEvent::Log(LogLevel::Info, text.and_then(json::parse_string).unwrap_or_default())
            }
            _ => AdapterEvent::Log(
                LogLevel::Warn,
                format!("not an event of the bridge: {}", json::shorten(line)),
            ),
        }
    }
}

/// Adds the agent's own id of the session to a `resume`, if it is not that of the server: a session from a snapshot of
/// another one has a conversation that began under the name of the other.
fn encode_resume(line: &str, agent_session: Option<&str>) -> Vec<u8> {
    let session =
        json::scan(line, &["sessionId"]).ok().and_then(|scan| scan.fields[0].and_then(json::parse_string));
    match (agent_session.filter(|own| Some(*own) != session.as_deref()), line.trim_ascii().strip_prefix('{'))
    {
        (Some(own), Some(rest)) => encode_line(&format!("{{\"agentSession\":{},{rest}", quote(own))),
        _ => encode_line(line),
    }
}

fn parse_message(data: &str) -> AgentMessage<'_> {
    let mut message = AgentMessage { data, ..AgentMessage::default() };
    if let Ok(scan) = json::scan(data, &["type", "session_id"]) {
        let [kind, session] = scan.fields;
        let kind = kind.and_then(json::parse_string);
        message.is_control = matches!(kind.as_deref(), Some("control_request" | "control_cancel_request"));
        if kind.as_deref() == Some("system") {
            message.agent_session = session.and_then(json::parse_string);
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
        let AdapterEvent::Message(message) = NativeAdapter::demo().parse_line(line, true) else { panic!() };
        assert_eq!(message.data, r#"{"type":"system","session_id":"a","n":1e400}"#);
        assert_eq!(message.agent_session.as_deref(), Some("a"));
    }

    #[test]
    fn process_of_a_native_agent_is_replaced_only_without_a_conversation() {
        for adapter in [NativeAdapter::bridge(), NativeAdapter::demo()] {
            assert!(adapter.can_replace_process(false, None));
            assert!(!adapter.can_replace_process(true, Some("a")));
        }
        assert!(NativeAdapter::built_in_demo().can_replace_process(true, None));
    }

    #[test]
    fn bp_12_events_that_are_not_of_the_bridge_stay_inside() {
        for line in [r#"{"ev":"tool_use"}"#, r#"{"ev":"message"}"#, "[]", "hello", r#"{"ev":"exec_result"}"#]
        {
            assert!(
                matches!(
                    NativeAdapter::bridge().parse_line(line, true),
                    AdapterEvent::Log(..) | AdapterEvent::NotJson
                ),
                "{line}"
            );
        }
    }

    #[test]
    fn bp_08_a_fresh_process_is_told_to_resume_and_its_answer_is_swallowed() {
        let command = crate::proto::BridgeCommand::parse(
            br#"{"cmd":"query","prompt":1,"sessionId":"s","x":2.50}"#[..].into(),
        );
        let crate::proto::CommandBody::Query(query) = command.unwrap().unwrap().body else { panic!() };
        let mut relay = NativeAdapter::demo();
        let lines = relay.encode_query(&query, TurnContext { agent_session: None, needs_resume: true });
        let expected = concat!(
            "{\"cmd\":\"resume\",\"sessionId\":\"s\"}\n",
            "{\"cmd\":\"query\",\"prompt\":1,\"sessionId\":\"s\",\"x\":2.50}\n"
        );
        assert_eq!(lines, expected.as_bytes());
        for (own, line) in [
            ("s", "{\"cmd\":\"resume\",\"sessionId\":\"s\"}\n"),
            ("t\"", "{\"agentSession\":\"t\\\"\",\"cmd\":\"resume\",\"sessionId\":\"s\"}\n"),
        ] {
            let context = TurnContext { agent_session: Some(own), needs_resume: true };
            assert!(
                NativeAdapter::demo().encode_query(&query, context).starts_with(line.as_bytes()),
                "{own}"
            );
        }
        assert_eq!(relay.parse_line(r#"{"ev":"done","sessionId":"s"}"#, true), AdapterEvent::Ignored);
        assert_eq!(relay.parse_line(r#"{"ev":"done","sessionId":"s"}"#, true), AdapterEvent::Done);
    }
}
