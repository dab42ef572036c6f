//! What the demo agent says: messages of the shapes that an SDK of Claude Code gives.

use crate::bridge::proto::Event;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// The demo agent's mouth. A server that does not listen any more is no error: the input ends then, too.
#[derive(Debug)]
pub(super) struct Speaker<W> {
    output: W,
    session: String,
    partials: bool,
    count: u64,
}

impl<W: Write> Speaker<W> {
    pub(super) fn new(output: W) -> Self {
        Speaker { output, session: String::new(), partials: false, count: 0 }
    }

    pub(super) fn ready(&mut self) {
        self.event(Event::Ready);
    }

    pub(super) fn done(&mut self, session: &str) {
        self.event(Event::Done { session });
    }

    pub(super) fn error(&mut self, text: &str) {
        self.event(Event::Error { text });
    }

    /// A message that is JSON already.
    pub(super) fn message(&mut self, data: &str) {
        self.event(Event::Message { data });
    }

    /// The first message of every turn.
    pub(super) fn begin(&mut self, session: &str, partials: bool) {
        (self.session, self.partials) = (session.to_owned(), partials);
        let cwd = std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default();
        self.say(json!({
            "type": "system", "subtype": "init", "cwd": cwd, "tools": ["Bash"], "mcp_servers": [],
            "model": "demo", "permissionMode": "default",
        }));
    }

    /// A piece of an answer, for those who asked for pieces.
    pub(super) fn partial(&mut self, text: &str) {
        if self.partials {
            self.say(json!({
                "type": "stream_event", "parent_tool_use_id": null,
                "event": {
                    "type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta", "text": text},
                },
            }));
        }
    }

    /// An answer.
    pub(super) fn text(&mut self, text: &str) {
        self.assistant(json!({"type": "text", "text": text}));
    }

    /// A tool call; gives its id.
    pub(super) fn tool_use(&mut self, command: &str) -> String {
        let id = self.name("toolu");
        self.assistant(json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}));
        id
    }

    /// What a tool call gave.
    pub(super) fn tool_result(&mut self, tool: &str, output: &str, is_error: bool) {
        self.say(json!({
            "type": "user", "parent_tool_use_id": null,
            "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": tool, "content": output, "is_error": is_error},
            ]},
        }));
    }

    /// Asks whether a command may run; gives the id of the question.
    pub(super) fn ask(&mut self, command: &str) -> String {
        let id = self.name("ask");
        let tool = self.name("toolu");
        self.say(json!({
            "type": "control_request", "request_id": id,
            "request": {
                "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": command},
                "tool_use_id": tool,
            },
        }));
        id
    }

    /// Takes a question back.
    pub(super) fn take_back(&mut self, request: &str) {
        self.say(json!({"type": "control_cancel_request", "request_id": request}));
    }

    /// The last message of a turn.
    pub(super) fn result(&mut self, text: &str, took: Duration) {
        self.end(json!({"subtype": "success", "is_error": false, "result": text}), took);
    }

    /// The same, of a turn that was interrupted.
    pub(super) fn interrupted(&mut self, took: Duration) {
        self.end(
            json!({"subtype": "error_during_execution", "is_error": true, "errors": ["interrupted"]}),
            took,
        );
    }

    fn end(&mut self, mut message: Value, took: Duration) {
        message["type"] = "result".into();
        message["duration_ms"] = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into();
        message["num_turns"] = 1.into();
        message["total_cost_usd"] = 0.into();
        self.say(message);
    }

    fn assistant(&mut self, block: Value) {
        let id = self.name("msg");
        self.say(json!({
            "type": "assistant", "parent_tool_use_id": null,
            "message": {
                "id": id, "type": "message", "role": "assistant", "model": "demo", "content": [block],
                "stop_reason": null,
            },
        }));
    }

    fn say(&mut self, mut message: Value) {
        message["session_id"] = self.session.as_str().into();
        message["uuid"] = self.name("uuid").into();
        self.message(&message.to_string());
    }

    /// A name that nothing else has in this process.
    fn name(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("demo-{kind}-{}-{}", std::process::id(), self.count)
    }

    fn event(&mut self, event: Event<'_>) {
        let line = event.encode(None);
        let _ = self.output.write_all(&line).and_then(|()| self.output.flush());
    }
}
