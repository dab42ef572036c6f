//! Messages of agents as JSON values.

use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The part of a message that decides whether it is stored.
#[derive(Deserialize)]
struct MessageHead<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

/// Parses a message. The bridge forwards messages that [`Value`] cannot hold, such as an escape of half a surrogate pair,
/// which JavaScript writes for text that was cut, or a number beyond its range. Of these, only the type is returned.
pub fn parse_message(raw: &str) -> Value {
    serde_json::from_str(raw).unwrap_or_else(|_| match serde_json::from_str::<MessageHead<'_>>(raw) {
        Ok(head) => json!({ "type": head.kind }),
        Err(_) => Value::Null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_of_a_message_beyond_a_value_is_known() {
        let deep = format!(r#"{{"type":"assistant","x":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        for raw in [r#"{"type":"assistant","x":"\ud83d"}"#, r#"{"x":1e999,"type":"assistant"}"#, &deep] {
            assert_eq!(parse_message(raw), json!({ "type": "assistant" }), "{raw}");
        }
        assert_eq!(parse_message(r#"{"type":"result","n":1}"#)["n"], 1);
        assert_eq!(parse_message("x"), Value::Null);
    }
}
