//! The adapter for an agent that is started once, outside the bridge, with fixed arguments: the program of a
//! container. A query that needs another start is rejected before any state changes.

use super::{AbortAction, Adapter, AdapterEvent, AgentTransport, QueryCommand, TurnContext};

/// Wraps the adapter of an agent that cannot be restarted.
#[derive(Debug)]
pub struct SingleStartAdapter(Box<dyn Adapter>);

impl SingleStartAdapter {
    /// Wraps an adapter.
    pub fn new(adapter: Box<dyn Adapter>) -> Self {
        SingleStartAdapter(adapter)
    }
}

impl Adapter for SingleStartAdapter {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn transport(&self) -> AgentTransport {
        self.0.transport()
    }

    fn start_arguments(&self, _resume: Option<&str>, _flags: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn start_flags(&self, query: &QueryCommand) -> Result<Vec<String>, String> {
        let flags = self.0.start_flags(query)?;
        match flags.first() {
            None => Ok(flags),
            Some(flag) => {
                let flag = flag.split('=').next().unwrap_or_default();
                Err(format!("query: {flag} is for the start of the agent, and a container starts it once"))
            }
        }
    }

    fn sends_ready(&self) -> bool {
        self.0.sends_ready()
    }

    fn takes_resume(&self) -> bool {
        self.0.takes_resume()
    }

    fn can_replace_process(&self, _has_conversation: bool, _agent_session: Option<&str>) -> bool {
        false
    }

    fn runs_own_turn(&self) -> bool {
        self.0.runs_own_turn()
    }

    fn on_start(&mut self) {
        self.0.on_start();
    }

    fn encode_query(&mut self, query: &QueryCommand, context: TurnContext<'_>) -> Vec<u8> {
        self.0.encode_query(query, context)
    }

    fn awaits_settings(&self) -> bool {
        self.0.awaits_settings()
    }

    fn encode_resume(&mut self, line: &str, agent_session: Option<&str>) -> Vec<u8> {
        self.0.encode_resume(line, agent_session)
    }

    fn abort_turn(&mut self) -> AbortAction {
        self.0.abort_turn()
    }

    fn encode_response(&mut self, line: &str) -> Vec<u8> {
        self.0.encode_response(line)
    }

    fn supports_modes(&self) -> bool {
        self.0.supports_modes()
    }

    fn parse_line<'a>(&mut self, line: &'a str, in_turn: bool) -> AdapterEvent<'a> {
        self.0.parse_line(line, in_turn)
    }
}

#[cfg(test)]
mod tests {
    use super::super::StreamJsonAdapter;
    use super::*;
    use crate::proto::{BridgeCommand, CommandBody};

    fn query(fields: &str) -> QueryCommand {
        let line = format!("{{\"cmd\":\"query\",\"prompt\":\"p\",\"sessionId\":\"s\"{fields}}}");
        match BridgeCommand::parse(line.into_bytes().into()).unwrap().unwrap().body {
            CommandBody::Query(query) => *query,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_would_take_another_start_is_refused_and_the_rest_is_passed_on() {
        let once = SingleStartAdapter::new(Box::new(StreamJsonAdapter::new()));
        assert!(once.start_arguments(Some("x"), &[]).is_empty());
        assert_eq!(once.start_flags(&query(",\"model\":\"m\"")), Ok(Vec::new()));
        let refused = once.start_flags(&query(",\"maxTurns\":3")).unwrap_err();
        assert!(refused.contains("--max-turns"), "{refused}");
        assert!(!once.can_replace_process(false, Some("x")));
    }
}
