//! Scripted agents: one with the `stream-json` protocol and the key order of the real agent, one with the bridge's own
//! protocol.

use crate::proto::json::quote;
use crate::proto::{LineSplitter, SplitLine};
use serde_json::Value;

/// The protocol of a scripted agent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speech {
    StreamJson,
    Relay,
}

/// An agent that its prompts control: `quick` is answered at once, `wait` runs until it is told to finish or is
/// interrupted, and any other prompt is written as a raw line.
pub(super) struct Script {
    speech: Speech,
    lines: LineSplitter,
    said: Vec<u8>,
    /// Every line that it received.
    pub(super) told: Vec<Value>,
    /// A turn runs.
    pub(super) working: bool,
    /// The prompt of the turn, repeated in each of its messages.
    prompt: String,
    /// It ignores interrupts and the close of its input.
    pub(super) stubborn: bool,
    /// It rejects this control request.
    pub(super) refuses: Option<&'static str>,
}

impl Script {
    fn new(speech: Speech) -> Script {
        Script {
            speech,
            lines: LineSplitter::new(1 << 20),
            said: Vec::new(),
            told: Vec::new(),
            working: false,
            prompt: String::new(),
            stubborn: false,
            refuses: None,
        }
    }

    pub(super) fn stream_json() -> Script {
        Script::new(Speech::StreamJson)
    }

    pub(super) fn stubborn() -> Script {
        Script { stubborn: true, ..Script::stream_json() }
    }

    pub(super) fn strict() -> Script {
        Script { refuses: Some("set_permission_mode"), ..Script::stream_json() }
    }

    pub(super) fn relay() -> Script {
        let mut script = Script::new(Speech::Relay);
        script.say(r#"{"ev":"ready"}"#);
        script
    }

    pub(super) fn say(&mut self, line: &str) {
        self.said.extend_from_slice(line.as_bytes());
        self.said.push(b'\n');
    }

    pub(super) fn speak(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.said)
    }

    /// Takes at most this many bytes of the output.
    pub(super) fn speak_some(&mut self, bytes: usize) -> Vec<u8> {
        let rest = self.said.split_off(bytes.min(self.said.len()));
        std::mem::replace(&mut self.said, rest)
    }

    pub(super) fn hear(&mut self, mut bytes: &[u8]) {
        while let Some(split) = self.lines.next(&mut bytes) {
            let SplitLine::Line(line) = split else { panic!("the agent was told a line too long") };
            let line: Value =
                serde_json::from_slice(&line).expect("a line that is not JSON ends the real agent");
            match self.speech {
                Speech::StreamJson => self.stream_json_line(&line),
                Speech::Relay => self.relay_line(&line),
            }
            self.told.push(line);
        }
    }

    /// Ends the running turn.
    pub(super) fn finish(&mut self, subtype: &str) {
        assert!(std::mem::take(&mut self.working), "no turn is on");
        match self.speech {
            // `type` is not the first key, as with the real agent.
            Speech::StreamJson => self.say(&format!(
                r#"{{"duration_api_ms":1,"prompt":{},"is_error":false,"subtype":"{subtype}","type":"result"}}"#,
                quote(&self.prompt)
            )),
            Speech::Relay => self.say(r#"{"ev":"done","sessionId":"s"}"#),
        }
    }

    fn stream_json_line(&mut self, line: &Value) {
        match line["type"].as_str() {
            Some("user") => {
                let prompt = match &line["message"]["content"] {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                self.working = true;
                self.prompt.clone_from(&prompt);
                self.say(r#"{"type":"system","subtype":"init","session_id":"agent-1","tools":[]}"#);
                self.say(
                    r#"{"event":{"type":"message_start"},"type":"stream_event","session_id":"agent-1"}"#,
                );
                if prompt.starts_with('{') || prompt.starts_with('!') {
                    self.say(prompt.trim_start_matches('!'));
                }
                self.say(&format!(
                    r#"{{"message":{{"role":"assistant"}},"prompt":{},"type":"assistant","session_id":"agent-1"}}"#,
                    quote(&prompt)
                ));
                if !prompt.starts_with("wait") {
                    self.finish("success");
                }
            }
            Some("control_request") => {
                let subtype = line["request"]["subtype"].as_str().unwrap().to_owned();
                if self.stubborn && subtype == "interrupt" {
                    return;
                }
                let id = &line["request_id"];
                if self.refuses == Some(&subtype) {
                    return self.say(&format!(
                        r#"{{"response":{{"error":"not here","request_id":{id},"subtype":"error"}},"type":"control_response"}}"#
                    ));
                }
                self.say(&format!(
                    r#"{{"response":{{"request_id":{id},"subtype":"success"}},"type":"control_response"}}"#
                ));
                if subtype == "interrupt" && self.working {
                    self.finish("error_during_execution");
                }
            }
            _ => {}
        }
    }

    fn relay_line(&mut self, line: &Value) {
        match line["cmd"].as_str() {
            Some("query") => {
                self.working = true;
                let prompt = line["prompt"].as_str().unwrap_or_default();
                self.prompt = prompt.to_owned();
                if prompt.starts_with("fail") {
                    self.working = false;
                    self.say(r#"{"ev":"error","error":"the sdk failed"}"#);
                    return self.say(r#"{"ev":"done","sessionId":"s"}"#);
                }
                self.say(&format!(
                    r#"{{"ev":"message","data":{{"type":"assistant","n":2.50,"prompt":{}}}}}"#,
                    quote(prompt)
                ));
                if !prompt.starts_with("wait") {
                    self.finish("success");
                }
            }
            Some("resume") => self.say(r#"{"ev":"done","sessionId":"s"}"#),
            Some("interrupt") if self.working => self.finish("interrupted"),
            _ => {}
        }
    }
}
