//! Messages of the demo agent, in the format of a Claude Code SDK.

use crate::bridge::proto::BridgeEvent;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Writes the events of the demo agent. Write errors are ignored: if the server has closed the output, the input ends
/// too.
#[derive(Debug)]
pub(super) struct EventWriter<W> {
    output: W,
    session: String,
    partials: bool,
    count: u64,
}

impl<W: Write> EventWriter<W> {
    pub(super) fn new(output: W) -> Self {
        EventWriter { output, session: String::new(), partials: false, count: 0 }
    }

    pub(super) fn ready(&mut self) {
        self.write_event(BridgeEvent::Ready);
    }

    pub(super) fn done(&mut self, session: &str) {
        self.write_event(BridgeEvent::Done { session });
    }

    pub(super) fn error(&mut self, text: &str) {
        self.write_event(BridgeEvent::Error { text });
    }

    /// Writes a message that is already JSON.
    pub(super) fn message(&mut self, data: &str) {
        self.write_event(BridgeEvent::Message { data });
    }

    /// Writes the first message of every turn.
    pub(super) fn begin(&mut self, session: &str, partials: bool) {
        (self.session, self.partials) = (session.to_owned(), partials);
        let cwd = std::env::current_dir().map(|dir| dir.display().to_string()).unwrap_or_default();
        self.write_message(json!({
            "type": "system", "subtype": "init", "cwd": cwd, "tools": ["Bash"], "mcp_servers": [],
            "model": "demo", "permissionMode": "default",
        }));
    }

    /// Writes a part of a reply, if partial messages were requested.
    pub(super) fn partial(&mut self, text: &str) {
        if self.partials {
            self.write_message(json!({
                "type": "stream_event", "parent_tool_use_id": null,
                "event": {
                    "type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta", "text": text},
                },
            }));
        }
    }

    /// Writes a reply.
    pub(super) fn text(&mut self, text: &str) {
        self.assistant(json!({"type": "text", "text": text}));
    }

    /// Writes a tool call; returns its id.
    pub(super) fn tool_use(&mut self, command: &str) -> String {
        let id = self.unique_id("toolu");
        self.assistant(json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}));
        id
    }

    /// Writes the result of a tool call.
    pub(super) fn tool_result(&mut self, tool: &str, output: &str, is_error: bool) {
        self.write_message(json!({
            "type": "user", "parent_tool_use_id": null,
            "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": tool, "content": output, "is_error": is_error},
            ]},
        }));
    }

    /// Requests permission for a command; returns the id of the request.
    pub(super) fn request_permission(&mut self, command: &str) -> String {
        let id = self.unique_id("ask");
        let tool = self.unique_id("toolu");
        self.write_message(json!({
            "type": "control_request", "request_id": id,
            "request": {
                "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": command},
                "tool_use_id": tool,
            },
        }));
        id
    }

    /// Cancels a permission request.
    pub(super) fn cancel_request(&mut self, request: &str) {
        self.write_message(json!({"type": "control_cancel_request", "request_id": request}));
    }

    /// Writes the last message of a turn.
    pub(super) fn result(&mut self, text: &str, took: Duration) {
        self.finish_turn(json!({"subtype": "success", "is_error": false, "result": text}), took);
    }

    /// Writes the last message of an interrupted turn.
    pub(super) fn interrupted(&mut self, took: Duration) {
        self.finish_turn(
            json!({"subtype": "error_during_execution", "is_error": true, "errors": ["interrupted"]}),
            took,
        );
    }

    fn finish_turn(&mut self, mut message: Value, took: Duration) {
        message["type"] = "result".into();
        message["duration_ms"] = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into();
        message["num_turns"] = 1.into();
        message["total_cost_usd"] = 0.into();
        self.write_message(message);
    }

    fn assistant(&mut self, block: Value) {
        let id = self.unique_id("msg");
        self.write_message(json!({
            "type": "assistant", "parent_tool_use_id": null,
            "message": {
                "id": id, "type": "message", "role": "assistant", "model": "demo", "content": [block],
                "stop_reason": null,
            },
        }));
    }

    fn write_message(&mut self, mut message: Value) {
        message["session_id"] = self.session.as_str().into();
        message["uuid"] = self.unique_id("uuid").into();
        self.message(&message.to_string());
    }

    /// An id that is unique in this process.
    fn unique_id(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("demo-{kind}-{}-{}", std::process::id(), self.count)
    }

    fn write_event(&mut self, event: BridgeEvent<'_>) {
        let line = event.encode(None);
        let _ = self.output.write_all(&line).and_then(|()| self.output.flush());
    }
}
