//! A reply in the API's own shapes: one JSON message, or the events of a stream.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::http::EventStream;
use super::record::Recorder;
use super::script::Reply;

/// The whole message, for a request that does not stream.
pub(super) fn message(id: &str, model: &Value, reply: &Reply) -> Value {
    let (block, stop_reason) = match reply {
        Reply::Text(text) => (json!({"type": "text", "text": text}), "end_turn"),
        Reply::Endless => (json!({"type": "text", "text": "only a stream has no end"}), "end_turn"),
        Reply::ToolUse { name, input } => {
            (json!({"type": "tool_use", "id": tool_use_id(id), "name": name, "input": input}), "tool_use")
        }
    };
    let mut message = empty_message(id, model);
    message["content"] = json!([block]);
    message["stop_reason"] = json!(stop_reason);
    message
}

/// The events of a stream; an endless one ends with the peer (an error) or when the recorder says stop.
pub(super) fn stream<W: Write>(
    mut to: EventStream<'_, W>,
    id: &str,
    model: &Value,
    reply: &Reply,
    recorder: &Recorder,
) -> io::Result<()> {
    send(&mut to, json!({"type": "message_start", "message": empty_message(id, model)}))?;
    let (block, deltas, stop_reason) = match reply {
        Reply::Text(text) => (text_block(), words(text).collect(), "end_turn"),
        Reply::Endless => (text_block(), Vec::new(), "end_turn"),
        Reply::ToolUse { name, input } => (
            json!({"type": "tool_use", "id": tool_use_id(id), "name": name, "input": {}}),
            vec![json!({"type": "input_json_delta", "partial_json": input.to_string()})],
            "tool_use",
        ),
    };
    send(&mut to, json!({"type": "content_block_start", "index": 0, "content_block": block}))?;
    send(&mut to, json!({"type": "ping"}))?;
    for delta in deltas {
        send(&mut to, json!({"type": "content_block_delta", "index": 0, "delta": delta}))?;
    }
    if *reply == Reply::Endless {
        for count in 0.. {
            let delta = text_delta(&format!("part {count} "));
            send(&mut to, json!({"type": "content_block_delta", "index": 0, "delta": delta}))?;
            if recorder.stopped_before_next_part() {
                break;
            }
        }
    }
    send(&mut to, json!({"type": "content_block_stop", "index": 0}))?;
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
    send(&mut to, json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}))?;
    send(&mut to, json!({"type": "message_stop"}))?;
    to.finish()
}

/// Writes an event under the name that its `type` says.
fn send<W: Write>(to: &mut EventStream<'_, W>, event: Value) -> io::Result<()> {
    to.event(event["type"].as_str().unwrap_or_default(), &event)
}

fn empty_message(id: &str, model: &Value) -> Value {
    json!({
        "id": id, "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 11, "output_tokens": 1},
    })
}

fn text_block() -> Value {
    json!({"type": "text", "text": ""})
}

fn text_delta(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}

/// One delta for each word, so that partial messages have parts.
fn words(text: &str) -> impl Iterator<Item = Value> + '_ {
    text.split_inclusive(' ').map(text_delta)
}

fn tool_use_id(message_id: &str) -> String {
    format!("toolu_{message_id}")
}
