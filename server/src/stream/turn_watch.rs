//! The end of a turn, found in the events of its session.

use super::{event_turn_id, parse_message};
use saggar_bridge::client::{EventBody, ReceivedEvent};
use serde_json::Value;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnConclusion {
    /// Without an error.
    Completed,
    /// With this error, of the bridge or in the result of the agent.
    Failed(String),
}

/// Looks for one turn in the events of its session, in order, from any source.
#[derive(Debug)]
pub struct TurnWatch {
    turn: String,
    number: u64,
    has_begun: bool,
    has_gap: bool,
    failure: Option<String>,
}

impl TurnWatch {
    /// Looks for the turn with this command id in the events after this number.
    pub fn new(turn: String, after: u64) -> Self {
        TurnWatch { turn, number: after, has_begun: false, has_gap: false, failure: None }
    }

    /// The command id of the turn.
    pub fn turn(&self) -> &str {
        &self.turn
    }

    /// The number of the last event that was added.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether an event of the turn was added.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether events are lost that can have been those of the turn.
    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// Adds an event. Returns how the turn ended if the event ends it.
    pub fn add(&mut self, event: &ReceivedEvent) -> Option<TurnConclusion> {
        self.number = event.number().unwrap_or(self.number);
        if let EventBody::Gap(_, to) = event.body() {
            self.has_gap = true;
            self.number = self.number.max(*to);
        }
        if event_turn_id(event) != Some(self.turn.as_str()) {
            return None;
        }
        self.has_begun = true;
        match event.body() {
            EventBody::Message => {
                let message = parse_message(event.message().unwrap_or_default());
                if message["type"] == "result" {
                    self.failure = (message["is_error"] == true).then(|| error_text(&message));
                }
                None
            }
            EventBody::Done(_) => {
                Some(self.failure.take().map_or(TurnConclusion::Completed, TurnConclusion::Failed))
            }
            EventBody::Error(text) => Some(TurnConclusion::Failed(text.clone())),
            _ => None,
        }
    }
}

/// The error of a result: its text, else the list of errors, else the kind.
fn error_text(result: &Value) -> String {
    if let Some(text) = result["result"].as_str().filter(|text| !text.is_empty()) {
        return text.to_owned();
    }
    let errors = result["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let errors: Vec<&str> = errors.iter().filter_map(Value::as_str).collect();
    if errors.is_empty() {
        return result["subtype"].as_str().unwrap_or("the result of the turn is an error").to_owned();
    }
    errors.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conclusion(lines: &[&str]) -> (TurnWatch, Option<TurnConclusion>) {
        let mut watch = TurnWatch::new("turn-a".into(), 4);
        let event = |line: &&str| ReceivedEvent::parse(line.as_bytes().to_vec()).unwrap();
        let found = lines.iter().find_map(|line| watch.add(&event(line)));
        (watch, found)
    }

    fn failed(text: &str) -> Option<TurnConclusion> {
        Some(TurnConclusion::Failed(text.into()))
    }

    const DONE: &str = r#"{"ev":"done","sessionId":"s","id":"turn-a","seq":9}"#;

    #[test]
    fn turn_ends_with_its_own_terminal_event() {
        let others = [
            r#"{"ev":"done","sessionId":"s","id":"replay","seq":5}"#,
            r#"{"ev":"message","data":{"type":"result","is_error":true},"id":"turn-b","seq":6}"#,
            r#"{"ev":"error","error":"x","id":"turn-b","seq":7}"#,
        ];
        let (watch, found) = conclusion(&others);
        assert_eq!((watch.number(), watch.has_begun(), found), (7, false, None));
        let (watch, found) = conclusion(&[others[2], DONE]);
        assert_eq!((watch.number(), watch.has_begun(), found), (9, true, Some(TurnConclusion::Completed)));
        let error = r#"{"ev":"error","error":"the agent exited","id":"turn-a","seq":8}"#;
        assert_eq!(conclusion(&[error]).1, failed("the agent exited"));
    }

    #[test]
    fn result_that_is_an_error_fails_the_turn() {
        let result = |fields: &str| {
            format!(r#"{{"ev":"message","data":{{"type":"result",{fields}}},"id":"turn-a","seq":8}}"#)
        };
        for (fields, expected) in [
            (r#""is_error":true,"result":"quota""#, "quota"),
            (r#""is_error":true,"result":"","errors":["a","b"]"#, "a; b"),
            (r#""is_error":true,"subtype":"error_max_turns""#, "error_max_turns"),
        ] {
            assert_eq!(conclusion(&[&result(fields), DONE]).1, failed(expected));
        }
        let success = result(r#""is_error":false,"result":"ok""#);
        assert_eq!(conclusion(&[&success, DONE]).1, Some(TurnConclusion::Completed));
    }

    #[test]
    fn lost_events_are_noticed() {
        let (watch, found) = conclusion(&[r#"{"ev":"gap","from":5,"to":12}"#]);
        assert_eq!((watch.number(), watch.has_gap(), watch.has_begun(), found), (12, true, false, None));
    }
}
