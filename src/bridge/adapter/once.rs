//! An agent that somebody else starts, once, with words of its own: the program of a container. What would take
//! another start is refused before anything has been done about it.

use super::{Abort, Adapter, Context, Heard, Query, Transport};

/// The translator inside, for an agent that cannot be started anew.
#[derive(Debug)]
pub struct Once(Box<dyn Adapter>);

impl Once {
    /// Wraps a translator.
    pub fn new(adapter: Box<dyn Adapter>) -> Self {
        Once(adapter)
    }
}

impl Adapter for Once {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn transport(&self) -> Transport {
        self.0.transport()
    }

    fn arguments(&self, _resume: Option<&str>, _flags: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn flags(&self, query: &Query) -> Result<Vec<String>, String> {
        let flags = self.0.flags(query)?;
        match flags.first() {
            None => Ok(flags),
            Some(flag) => {
                let flag = flag.split('=').next().unwrap_or_default();
                Err(format!("query: {flag} is for the start of the agent, and a container starts it once"))
            }
        }
    }

    fn greets(&self) -> bool {
        self.0.greets()
    }

    fn hears_resume(&self) -> bool {
        self.0.hears_resume()
    }

    fn started(&mut self) {
        self.0.started();
    }

    fn query(&mut self, query: &Query, context: Context<'_>) -> Vec<u8> {
        self.0.query(query, context)
    }

    fn opening(&self) -> bool {
        self.0.opening()
    }

    fn resume(&mut self, line: &str) -> Vec<u8> {
        self.0.resume(line)
    }

    fn abort(&mut self) -> Abort {
        self.0.abort()
    }

    fn answer(&mut self, line: &str) -> Vec<u8> {
        self.0.answer(line)
    }

    fn takes_modes(&self) -> bool {
        self.0.takes_modes()
    }

    fn hear<'a>(&mut self, line: &'a str, in_turn: bool) -> Heard<'a> {
        self.0.hear(line, in_turn)
    }
}

#[cfg(test)]
mod tests {
    use super::super::StreamJson;
    use super::*;
    use crate::bridge::proto::{Command, Request};

    fn query(fields: &str) -> Query {
        let line = format!("{{\"cmd\":\"query\",\"prompt\":\"p\",\"sessionId\":\"s\"{fields}}}");
        match Command::parse(line.into_bytes().into()).unwrap().unwrap().request {
            Request::Query(query) => *query,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_would_take_another_start_is_refused_and_the_rest_is_passed_on() {
        let once = Once::new(Box::new(StreamJson::new()));
        assert!(once.arguments(Some("x"), &[]).is_empty());
        assert_eq!(once.flags(&query(",\"model\":\"m\"")), Ok(Vec::new()));
        let refused = once.flags(&query(",\"maxTurns\":3")).unwrap_err();
        assert!(refused.contains("--max-turns"), "{refused}");
    }
}
