//! The events that clients want of a message: pieces of text, calls of tools and their results, the end of a turn.

use super::Frame;
use serde_json::{Map, Value, json};

/// Names that only the server gives: an agent that writes a block of such a type cannot end the stream of its client, or
/// speak for the server.
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

/// What can be derived from a message, in its order. The message itself comes after it.
pub fn frames_of(message: &Value) -> Vec<Frame> {
    match message["type"].as_str() {
        Some("stream_event") => delta(&message["event"]).into_iter().collect(),
        Some("assistant") => blocks(message).iter().filter_map(block).collect(),
        Some("user") => tool_results(message),
        Some("result") => vec![turn_complete(message)],
        _ => Vec::new(),
    }
}

/// The blocks of the content of a message.
pub(super) fn blocks(message: &Value) -> &[Value] {
    message["message"]["content"].as_array().map_or(&[], Vec::as_slice)
}

fn delta(event: &Value) -> Option<Frame> {
    let delta = &event["delta"];
    if event["type"] != "content_block_delta" {
        return None;
    }
    match delta["type"].as_str()? {
        "text_delta" => Some(Frame::new("text_delta", &json!({ "delta": delta["text"].as_str()? }))),
        "thinking_delta" => {
            Some(Frame::new("thinking_delta", &json!({ "delta": delta["thinking"].as_str()? })))
        }
        other => of_another_type(other, delta),
    }
}

fn block(block: &Value) -> Option<Frame> {
    match block["type"].as_str()? {
        // Its text came in pieces, or is in the message.
        "text" => None,
        "tool_use" => {
            let call = json!({ "id": block["id"], "name": block["name"], "input": block["input"] });
            Some(Frame::new("tool_use", &call))
        }
        "thinking" => Some(Frame::new("thinking_delta", &json!({ "delta": block["thinking"] }))),
        other => of_another_type(other, block),
    }
}

/// A kind that this version does not know goes to clients under its own name.
fn of_another_type(name: &str, data: &Value) -> Option<Frame> {
    let is_word = |name: &str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let is_reserved = RESERVED.iter().any(|reserved| name.starts_with(reserved));
    (is_word(name) && !is_reserved).then(|| Frame::new(name.to_owned(), data))
}

/// One for each result: the block names the call, and `tool_use_result` may have more of the output.
fn tool_results(message: &Value) -> Vec<Frame> {
    let more = &message["tool_use_result"];
    let output = [&more["stdout"], &more["content"]].into_iter().find(|value| !value.is_null());
    let results: Vec<&Value> =
        blocks(message).iter().filter(|block| block["type"] == "tool_result").collect();
    if results.is_empty() && more.is_object() {
        return vec![tool_result(&more["tool_use_id"], output.unwrap_or(&Value::Null), &more["is_error"])];
    }
    let frame = |block: &Value| {
        let content = output.filter(|_| results.len() == 1).unwrap_or(&block["content"]);
        tool_result(&block["tool_use_id"], content, &block["is_error"])
    };
    results.iter().map(|block| frame(block)).collect()
}

fn tool_result(id: &Value, content: &Value, is_error: &Value) -> Frame {
    let is_error = is_error.as_bool().unwrap_or(false);
    Frame::new("tool_result", &json!({ "tool_use_id": id, "content": content, "is_error": is_error }))
}

fn turn_complete(message: &Value) -> Frame {
    Frame::new("turn_complete", &turn_summary(message))
}

/// What a `result` says, without what it does not.
pub(super) fn turn_summary(message: &Value) -> Value {
    let mut summary = Map::new();
    for (name, field) in [("numTurns", "num_turns"), ("result", "result")] {
        if let Some(value) = message.get(field) {
            summary.insert(name.to_owned(), value.clone());
        }
    }
    Value::Object(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn derived(message: &Value) -> Vec<(String, Value)> {
        let read = |frame: Frame| (frame.event.into_owned(), serde_json::from_str(&frame.data).unwrap());
        frames_of(message).into_iter().map(read).collect()
    }

    fn one(event: &str, data: Value) -> Vec<(String, Value)> {
        vec![(event.to_owned(), data)]
    }

    fn of_delta(delta: Value) -> Vec<(String, Value)> {
        derived(
            &json!({ "type": "stream_event", "event": { "type": "content_block_delta", "delta": delta } }),
        )
    }

    fn of_block(block: Value) -> Vec<(String, Value)> {
        derived(&json!({ "type": "assistant", "message": { "content": [block] } }))
    }

    #[test]
    fn pieces_of_text_and_of_thinking() {
        assert_eq!(
            of_delta(json!({ "type": "text_delta", "text": "a\n" })),
            one("text_delta", json!({ "delta": "a\n" }))
        );
        assert_eq!(
            of_delta(json!({ "type": "thinking_delta", "thinking": "b" })),
            one("thinking_delta", json!({ "delta": "b" }))
        );
        let other = json!({ "type": "input_json_delta", "partial_json": "{" });
        assert_eq!(of_delta(other.clone()), one("input_json_delta", other));
        assert!(derived(&json!({ "type": "stream_event", "event": { "type": "message_stop" } })).is_empty());
    }

    #[test]
    fn blocks_of_an_answer() {
        assert!(of_block(json!({ "type": "text", "text": "a" })).is_empty());
        assert_eq!(
            of_block(
                json!({ "type": "tool_use", "id": "1", "name": "Bash", "input": { "command": "id" }, "x": 1 })
            ),
            one("tool_use", json!({ "id": "1", "name": "Bash", "input": { "command": "id" } }))
        );
        assert_eq!(
            of_block(json!({ "type": "thinking", "thinking": "b", "signature": "s" })),
            one("thinking_delta", json!({ "delta": "b" }))
        );
        let other = json!({ "type": "server_tool_use", "n": 1 });
        assert_eq!(of_block(other.clone()), one("server_tool_use", other));
    }

    #[test]
    fn no_agent_gives_the_names_of_the_server() {
        for name in ["done", "error", "session_start", "permission_request", "a\nb", "", "a b", "done\r"] {
            assert!(of_block(json!({ "type": name })).is_empty(), "{name:?}");
            assert!(of_delta(json!({ "type": name })).is_empty(), "{name:?}");
        }
    }

    #[test]
    fn results_of_tools() {
        let block =
            json!({ "type": "tool_result", "tool_use_id": "1", "content": "short", "is_error": true });
        let message = |more: Value| json!({ "type": "user", "message": { "content": [block] }, "tool_use_result": more });
        let expected = |content: &str| {
            one("tool_result", json!({ "tool_use_id": "1", "content": content, "is_error": true }))
        };
        assert_eq!(derived(&message(Value::Null)), expected("short"));
        assert_eq!(derived(&message(json!({ "stdout": "whole", "content": "x" }))), expected("whole"));
        assert_eq!(derived(&message(json!({ "content": "whole" }))), expected("whole"));
        let alone = json!({ "type": "user", "tool_use_result": { "tool_use_id": "2", "stdout": "o" } });
        assert_eq!(
            derived(&alone),
            one("tool_result", json!({ "tool_use_id": "2", "content": "o", "is_error": false }))
        );
        assert!(derived(&json!({ "type": "user", "message": { "content": "hi" } })).is_empty());
    }

    #[test]
    fn the_end_of_a_turn_has_what_the_result_has() {
        let result = json!({ "type": "result", "num_turns": 2, "result": "r", "subtype": "success" });
        assert_eq!(derived(&result), one("turn_complete", json!({ "numTurns": 2, "result": "r" })));
        assert_eq!(derived(&json!({ "type": "result" })), one("turn_complete", json!({})));
    }

    /// Any JSON of a few levels, with the names that matter among its keys.
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
        fn whatever_an_agent_writes_makes_lines_that_are_whole(message in any_json()) {
            for frame in frames_of(&message) {
                prop_assert!(!frame.event.contains(['\r', '\n', ' ']) && !frame.data.contains(['\r', '\n']));
                prop_assert!(frame.event != "done" && frame.event != "error" && frame.event != "session_start");
            }
        }
    }
}
