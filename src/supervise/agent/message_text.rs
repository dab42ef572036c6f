//! What a person reads of an agent's messages: its text, as it is streamed if it is, and the tools that it calls.

use crate::bridge::proto::json;
use crate::text;
use serde_json::Value;

/// A part of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConversationPart {
    /// A piece of the answer, escaped for a terminal.
    Text(String),
    /// The agent calls a tool.
    ToolCall {
        /// The name of the tool.
        name: String,
        /// `[NAME] INPUT` on one line, shortened; not escaped.
        summary: String,
    },
    /// The result of a tool goes to the agent, which processes it.
    ToolResult,
}

/// Converts the messages of one connection.
#[derive(Debug, Default)]
pub(crate) struct MessageText {
    /// Text of the current answer has already been streamed.
    is_streamed: bool,
}

impl MessageText {
    /// Converts the next message.
    pub(crate) fn parts(&mut self, message: &Value) -> Vec<ConversationPart> {
        match message["type"].as_str() {
            Some("stream_event") => {
                let piece = message["event"]["delta"]["text"].as_str();
                self.is_streamed |= piece.is_some();
                piece
                    .map(|piece| ConversationPart::Text(text::prose(piece).into_owned()))
                    .into_iter()
                    .collect()
            }
            Some("assistant") => self.answer_parts(message),
            Some("user") => vec![ConversationPart::ToolResult],
            _ => Vec::new(),
        }
    }

    /// The parts of a whole answer: its text unless it has been streamed, the end of its line, and its tool calls.
    fn answer_parts(&mut self, message: &Value) -> Vec<ConversationPart> {
        let mut parts = Vec::new();
        let mut has_text = false;
        let is_streamed = std::mem::take(&mut self.is_streamed);
        for block in message["message"]["content"].as_array().into_iter().flatten() {
            match (block["type"].as_str(), block["text"].as_str()) {
                (Some("text"), Some(text)) => {
                    has_text = true;
                    if !is_streamed {
                        parts.push(ConversationPart::Text(text::prose(text).into_owned()));
                    }
                }
                (Some("tool_use"), _) => {
                    let name = block["name"].as_str().unwrap_or("tool").to_owned();
                    let summary = format!("[{name}] {}", json::shorten(&block["input"].to_string()));
                    parts.push(ConversationPart::ToolCall { name, summary });
                }
                _ => {}
            }
        }
        if has_text {
            parts.push(ConversationPart::Text("\n".into()));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(piece: &str) -> ConversationPart {
        ConversationPart::Text(piece.into())
    }

    #[test]
    fn streamed_text_is_shown_once() {
        let mut reader = MessageText::default();
        let answer =
            json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": "ab" }] } });
        for piece in ["a", "b"] {
            let event = json!({ "type": "stream_event", "event": { "delta": { "text": piece } } });
            assert_eq!(reader.parts(&event), [text(piece)]);
        }
        assert_eq!(reader.parts(&answer), [text("\n")]);
        assert_eq!(reader.parts(&answer), [text("ab"), text("\n")]);
    }

    #[test]
    fn tools_are_summarised_and_text_is_escaped() {
        let mut reader = MessageText::default();
        let content = json!([
            { "type": "text", "text": "a\u{1b}[2J" },
            { "type": "tool_use", "name": "Bash", "input": { "command": "ls" } },
        ]);
        let answer = json!({ "type": "assistant", "message": { "content": content } });
        let call =
            ConversationPart::ToolCall { name: "Bash".into(), summary: r#"[Bash] {"command":"ls"}"#.into() };
        assert_eq!(reader.parts(&answer), [text("a\\u{1b}[2J"), call, text("\n")]);
        assert_eq!(reader.parts(&json!({ "type": "user" })), [ConversationPart::ToolResult]);
        assert_eq!(reader.parts(&json!({ "type": "result" })), []);
    }
}
