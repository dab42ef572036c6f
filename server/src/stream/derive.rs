//! Server-sent events derived from agent messages: text deltas, tool calls and their results, the end of a turn.

use super::{Frame, StreamEvent, TurnSummary};
use serde_json::Value;

/// Event names reserved for the server. Block types of these names are dropped, so that an agent can neither end the
/// stream of its client nor forge an event of the server.
const RESERVED: [&str; 12] = [
    "session_start",
    "session_end",
    "message",
    "text_delta",
    "thinking_delta",
    "tool_use",
    "tool_result",
    "turn_complete",
    "error",
    "done",
    "gap",
    "permission",
];

/// Derives the frames of a message, in order. In the stream they precede the message itself.
pub fn derive_frames(message: &Value) -> Vec<Frame> {
    match message["type"].as_str() {
        Some("stream_event") => delta(&message["event"]).into_iter().collect(),
        Some("assistant") => blocks(message).iter().filter_map(block).collect(),
        Some("user") => tool_results(message),
        Some("result") => vec![turn_complete(message)],
        _ => Vec::new(),
    }
}

/// Returns the content blocks of a message.
pub(super) fn blocks(message: &Value) -> &[Value] {
    message["message"]["content"].as_array().map_or(&[], Vec::as_slice)
}

fn delta(event: &Value) -> Option<Frame> {
    let delta = &event["delta"];
    if event["type"] != "content_block_delta" {
        return None;
    }
    match delta["type"].as_str()? {
        "text_delta" => {
            let delta = delta["text"].as_str()?.to_owned();
            Some(Frame::of(&StreamEvent::TextDelta { delta }))
        }
        "thinking_delta" => {
            let delta = delta["thinking"].as_str()?.into();
            Some(Frame::of(&StreamEvent::ThinkingDelta { delta }))
        }
        other => pass_through(other, delta),
    }
}

fn block(block: &Value) -> Option<Frame> {
    match block["type"].as_str()? {
        // The text is in the `text_delta` frames and in the message.
        "text" => None,
        "tool_use" => {
            let part = |name: &str| block[name].clone();
            let call = StreamEvent::ToolUse { id: part("id"), name: part("name"), input: part("input") };
            Some(Frame::of(&call))
        }
        "thinking" => Some(Frame::of(&StreamEvent::ThinkingDelta { delta: block["thinking"].clone() })),
        other => pass_through(other, block),
    }
}

/// Forwards a block or delta of an unknown type under the name of its type.
fn pass_through(name: &str, data: &Value) -> Option<Frame> {
    let is_word = |name: &str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let is_reserved = RESERVED.iter().any(|reserved| name.starts_with(reserved));
    (is_word(name) && !is_reserved).then(|| Frame::new(name.to_owned(), data))
}

/// Derives one frame for each tool result. If the message has one result only, `tool_use_result` contains its complete
/// output, and the block can contain a shortened form.
fn tool_results(message: &Value) -> Vec<Frame> {
    let extra = &message["tool_use_result"];
    let output = [&extra["stdout"], &extra["content"]].into_iter().find(|value| !value.is_null());
    let results: Vec<&Value> =
        blocks(message).iter().filter(|block| block["type"] == "tool_result").collect();
    if results.is_empty() && extra.is_object() {
        return vec![tool_result(&extra["tool_use_id"], output.unwrap_or(&Value::Null), &extra["is_error"])];
    }
    let frame = |block: &Value| {
        let content = output.filter(|_| results.len() == 1).unwrap_or(&block["content"]);
        tool_result(&block["tool_use_id"], content, &block["is_error"])
    };
    results.iter().map(|block| frame(block)).collect()
}

fn tool_result(id: &Value, content: &Value, is_error: &Value) -> Frame {
    let is_error = is_error.as_bool().unwrap_or(false);
    Frame::of(&StreamEvent::ToolResult { tool_use_id: id.clone(), content: content.clone(), is_error })
}

fn turn_complete(message: &Value) -> Frame {
    Frame::of(&StreamEvent::TurnComplete(TurnSummary::of_message(message)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn derived(message: &Value) -> Vec<(String, Value)> {
        let read = |frame: Frame| (frame.event.into_owned(), serde_json::from_str(&frame.data).unwrap());
        derive_frames(message).into_iter().map(read).collect()
    }

    fn single(event: &str, data: Value) -> Vec<(String, Value)> {
        vec![(event.to_owned(), data)]
    }

    fn derived_from_delta(delta: Value) -> Vec<(String, Value)> {
        derived(
            &json!({ "type": "stream_event", "event": { "type": "content_block_delta", "delta": delta } }),
        )
    }

    fn derived_from_block(block: Value) -> Vec<(String, Value)> {
        derived(&json!({ "type": "assistant", "message": { "content": [block] } }))
    }

    #[test]
    fn deltas_are_derived() {
        assert_eq!(
            derived_from_delta(json!({ "type": "text_delta", "text": "a\n" })),
            single("text_delta", json!({ "delta": "a\n" }))
        );
        assert_eq!(
            derived_from_delta(json!({ "type": "thinking_delta", "thinking": "b" })),
            single("thinking_delta", json!({ "delta": "b" }))
        );
        let other = json!({ "type": "input_json_delta", "partial_json": "{" });
        assert_eq!(derived_from_delta(other.clone()), single("input_json_delta", other));
        assert!(derived(&json!({ "type": "stream_event", "event": { "type": "message_stop" } })).is_empty());
    }

    #[test]
    fn assistant_blocks_are_derived() {
        assert!(derived_from_block(json!({ "type": "text", "text": "a" })).is_empty());
        assert_eq!(
            derived_from_block(
                json!({ "type": "tool_use", "id": "1", "name": "Bash", "input": { "command": "id" }, "x": 1 })
            ),
            single("tool_use", json!({ "id": "1", "name": "Bash", "input": { "command": "id" } }))
        );
        assert_eq!(
            derived_from_block(json!({ "type": "thinking", "thinking": "b", "signature": "s" })),
            single("thinking_delta", json!({ "delta": "b" }))
        );
        let other = json!({ "type": "server_tool_use", "n": 1 });
        assert_eq!(derived_from_block(other.clone()), single("server_tool_use", other));
    }

    #[test]
    fn reserved_and_malformed_names_are_dropped() {
        for name in ["done", "error", "session_start", "permission_request", "a\nb", "", "a b", "done\r"] {
            assert!(derived_from_block(json!({ "type": name })).is_empty(), "{name:?}");
            assert!(derived_from_delta(json!({ "type": name })).is_empty(), "{name:?}");
        }
    }

    #[test]
    fn tool_results_are_derived() {
        let block =
            json!({ "type": "tool_result", "tool_use_id": "1", "content": "short", "is_error": true });
        let message = |extra: Value| json!({ "type": "user", "message": { "content": [block] }, "tool_use_result": extra });
        let expected = |content: &str| {
            single("tool_result", json!({ "tool_use_id": "1", "content": content, "is_error": true }))
        };
        assert_eq!(derived(&message(Value::Null)), expected("short"));
        assert_eq!(derived(&message(json!({ "stdout": "whole", "content": "x" }))), expected("whole"));
        assert_eq!(derived(&message(json!({ "content": "whole" }))), expected("whole"));
        let alone = json!({ "type": "user", "tool_use_result": { "tool_use_id": "2", "stdout": "o" } });
        assert_eq!(
            derived(&alone),
            single("tool_result", json!({ "tool_use_id": "2", "content": "o", "is_error": false }))
        );
        assert!(derived(&json!({ "type": "user", "message": { "content": "hi" } })).is_empty());
    }

    #[test]
    fn turn_complete_contains_fields_of_result() {
        let result = json!({ "type": "result", "num_turns": 2, "result": "r", "subtype": "success" });
        assert_eq!(derived(&result), single("turn_complete", json!({ "numTurns": 2, "result": "r" })));
        assert_eq!(derived(&json!({ "type": "result" })), single("turn_complete", json!({})));
    }

    /// Generates nested JSON in which the relevant keys and values are frequent.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "(assistant|user|result|stream_event|content_block_delta|tool_use|tool_result|text|done|.{0,6})"
                .prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map(
                    "(type|message|content|event|delta|tool_use_result|stdout|text|.{0,4})",
                    inner,
                    0..6
                )
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn derived_frames_fit_in_one_line_and_have_no_reserved_names(message in any_json()) {
            for frame in derive_frames(&message) {
                prop_assert!(!frame.event.contains(['\r', '\n', ' ']) && !frame.data.contains(['\r', '\n']));
                prop_assert!(frame.event != "done" && frame.event != "error" && frame.event != "session_start");
            }
        }
    }
}
