//! Usage in agent messages.

use super::derive::blocks;
use crate::store::{NewUsage, RecordedRow, UsageKind};
use serde::Deserialize;
use serde_json::Value;

/// Maximum value of one row: millions of them can be added.
const MAX_VALUE: i64 = 1 << 40;

/// The part of a `result` message with its usage. It is parsed apart from the message: of a message that
/// [`parse_message`](super::parse_message) cannot hold, the usage still counts.
#[derive(Default, Deserialize)]
struct ResultUsage {
    #[serde(default)]
    usage: Value,
    /// A running total of the agent process.
    #[serde(default)]
    total_cost_usd: Value,
}

/// Returns the usage of a message: the tool calls of an `assistant` message, and the tokens and the cost of a `result`
/// message, which also counts as one turn. Zeros are left out.
pub fn usage_rows(message: &Value, raw: &str) -> Vec<RecordedRow> {
    let counts = match message["type"].as_str() {
        Some("assistant") => {
            let calls = blocks(message).iter().filter(|block| block["type"] == "tool_use").count();
            vec![(UsageKind::ToolCall, i64::try_from(calls).ok())]
        }
        Some("result") => result_counts(raw),
        _ => Vec::new(),
    };
    let row = |(kind, value): (UsageKind, Option<i64>)| {
        let value = value.filter(|value| *value > 0)?.min(MAX_VALUE);
        Some(RecordedRow::Usage(NewUsage { kind, value }))
    };
    counts.into_iter().filter_map(row).collect()
}

fn result_counts(raw: &str) -> Vec<(UsageKind, Option<i64>)> {
    let result: ResultUsage = serde_json::from_str(raw).unwrap_or_default();
    let tokens = |field: &str| result.usage[field].as_i64();
    vec![
        (UsageKind::InputTokens, tokens("input_tokens")),
        (UsageKind::OutputTokens, tokens("output_tokens")),
        (UsageKind::CacheCreationTokens, tokens("cache_creation_input_tokens")),
        (UsageKind::CacheReadTokens, tokens("cache_read_input_tokens")),
        (UsageKind::CostUsd, result.total_cost_usd.as_f64().and_then(to_millionths)),
        (UsageKind::Message, Some(1)),
    ]
}

/// Converts US dollars to millionths; `None` beyond the range of the table.
fn to_millionths(dollars: f64) -> Option<i64> {
    format!("{:.0}", dollars * 1e6).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::parse_message;
    use super::*;

    fn counted(raw: &str) -> Vec<(&'static str, i64)> {
        let count = |row| match row {
            RecordedRow::Usage(NewUsage { kind, value }) => (kind.name(), value),
            other => panic!("{other:?}"),
        };
        usage_rows(&parse_message(raw), raw).into_iter().map(count).collect()
    }

    #[test]
    fn result_has_tokens_cost_and_one_message() {
        let raw = r#"{"type":"result","total_cost_usd":0.0123456,"usage":{"input_tokens":3,"output_tokens":4,
            "cache_creation_input_tokens":5,"cache_read_input_tokens":6,"server_tool_use":{"x":1}}}"#;
        let expected = [
            ("input_tokens", 3),
            ("output_tokens", 4),
            ("cache_creation_tokens", 5),
            ("cache_read_tokens", 6),
            ("cost_usd", 12_346),
            ("message", 1),
        ];
        assert_eq!(counted(raw), expected);
        // Half a surrogate pair, which a parsed message cannot hold.
        let cut = raw.replacen('{', r#"{"result":"\ud83d","#, 1);
        assert_eq!(counted(&cut), expected);
    }

    #[test]
    fn zeros_and_malformed_numbers_are_not_counted() {
        for raw in [
            r#"{"type":"result"}"#,
            r#"{"type":"result","total_cost_usd":0,"usage":{"input_tokens":0}}"#,
            r#"{"type":"result","total_cost_usd":-1,"usage":{"input_tokens":-1}}"#,
            r#"{"type":"result","total_cost_usd":1e300,"usage":[1]}"#,
            r#"{"type":"result","total_cost_usd":"1","usage":{"input_tokens":"3"}}"#,
        ] {
            assert_eq!(counted(raw), [("message", 1)], "{raw}");
        }
        assert!(counted(r#"{"type":"system","usage":{"input_tokens":1}}"#).is_empty());
    }

    #[test]
    fn tool_calls_of_assistant_message_are_counted() {
        let raw = r#"{"type":"assistant","message":{"content":[{"type":"tool_use"},{"type":"text"},
            {"type":"tool_use"}],"usage":{"input_tokens":1}}}"#;
        assert_eq!(counted(raw), [("tool_call", 2)]);
        assert!(counted(r#"{"type":"assistant","message":{"content":[{"type":"text"}]}}"#).is_empty());
    }

    #[test]
    fn values_of_an_agent_cannot_overflow_a_sum() {
        let raw = r#"{"type":"result","total_cost_usd":9e12,"usage":{"input_tokens":9223372036854775807}}"#;
        let counted = counted(raw);
        assert!(counted.iter().all(|(_, value)| *value <= MAX_VALUE), "{counted:?}");
        assert_eq!(counted[0], ("input_tokens", MAX_VALUE));
    }
}
