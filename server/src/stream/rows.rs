//! Database rows of agent messages.

use super::TurnSummary;
use super::derive::blocks;
use super::mcp_status::failed_servers;
use crate::store::{NewEvent, RecordedRow};
use serde_json::{Value, json};

/// Returns the rows that store a message: the message itself if it is an `assistant` or `result` message, and an event
/// for each of its parts.
pub fn database_rows(message: &Value, raw: &str) -> Vec<RecordedRow> {
    let mut rows = Vec::new();
    match message["type"].as_str() {
        Some("assistant") => {
            rows.push(RecordedRow::Message(raw.to_owned()));
            rows.extend(blocks(message).iter().filter_map(block));
        }
        Some("user") => rows.extend(tool_results(message)),
        Some("system") if message["subtype"] == "init" => {
            rows.extend(failed_servers(message).into_iter().map(RecordedRow::Event));
        }
        Some("result") => {
            rows.push(RecordedRow::Message(raw.to_owned()));
            rows.push(event("turn_complete", &json!(TurnSummary::of_message(message))));
        }
        _ => {}
    }
    rows
}

fn event(kind: &'static str, data: &Value) -> RecordedRow {
    RecordedRow::Event(NewEvent::new(kind, data))
}

fn block(block: &Value) -> Option<RecordedRow> {
    Some(match block["type"].as_str()? {
        "text" => event("text", &json!({ "text": block["text"] })),
        "tool_use" => event(
            "tool_start",
            &json!({ "toolName": block["name"], "toolId": block["id"], "input": block["input"] }),
        ),
        "thinking" => event("reasoning", &json!({ "thinking": block["thinking"] })),
        _ => return None,
    })
}

fn tool_results(message: &Value) -> Vec<RecordedRow> {
    let extra = &message["tool_use_result"];
    let results = blocks(message).iter().filter(|block| block["type"] == "tool_result");
    let row = |block: &Value| {
        let stdout = if extra["stdout"].is_null() { &block["content"] } else { &extra["stdout"] };
        let data = json!({ "toolId": block["tool_use_id"], "stdout": stdout, "stderr": extra["stderr"] });
        event("tool_result", &data)
    };
    results.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(message: &Value) -> Vec<String> {
        let text = |row| match row {
            RecordedRow::Message(content) => format!("message {content}"),
            RecordedRow::Event(NewEvent { kind, data }) => format!("{kind} {data}"),
            RecordedRow::Usage(_) => unreachable!(),
        };
        database_rows(message, "RAW").into_iter().map(text).collect()
    }

    #[test]
    fn assistant_message_is_stored_whole_and_by_block() {
        let content = json!([
            { "type": "thinking", "thinking": "t" },
            { "type": "text", "text": "a" },
            { "type": "tool_use", "id": "1", "name": "Bash", "input": {} },
            { "type": "new" },
        ]);
        assert_eq!(
            stored(&json!({ "type": "assistant", "message": { "content": content } })),
            [
                "message RAW",
                r#"reasoning {"thinking":"t"}"#,
                r#"text {"text":"a"}"#,
                r#"tool_start {"input":{},"toolId":"1","toolName":"Bash"}"#,
            ]
        );
    }

    #[test]
    fn mcp_servers_without_a_connection_are_stored() {
        let servers = json!([{ "name": "a", "status": "failed" }]);
        let message = |subtype| json!({ "type": "system", "subtype": subtype, "mcp_servers": servers });
        assert_eq!(stored(&message("init")), [r#"mcp_status {"action":"error","error":"a: failed"}"#]);
        assert!(stored(&message("status")).is_empty());
    }

    #[test]
    fn results_are_stored_and_deltas_are_not() {
        let block = json!({ "type": "tool_result", "tool_use_id": "1", "content": "c" });
        assert_eq!(
            stored(&json!({ "type": "user", "message": { "content": [block] } })),
            [r#"tool_result {"stderr":null,"stdout":"c","toolId":"1"}"#]
        );
        assert_eq!(
            stored(&json!({ "type": "result", "num_turns": 1, "result": "r" })),
            ["message RAW", r#"turn_complete {"numTurns":1,"result":"r"}"#]
        );
        let piece = json!({ "type": "content_block_delta", "delta": { "type": "text_delta", "text": "a" } });
        assert!(stored(&json!({ "type": "stream_event", "event": piece })).is_empty());
    }
}
