//! Whatever a server of the second dialect and an agent that asks write: nothing is taken for permission that does
//! not say so, and what is cleaned is still JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::bridge::proto::json;
use saggar::bridge::proto::permission::{AgentControlLine, ParsedResponse, PermissionVerdict, parse_response};
use saggar::bridge::proto::sdk_dialect::{SdkMessage, classify_line, clean_content, parse_sdk_message, selects_sdk_dialect};

fuzz_target!(|data: &[u8]| {
    let said = parse_sdk_message(data);
    assert!(!selects_sdk_dialect(data) || matches!(said, Ok(SdkMessage::User(_) | SdkMessage::ControlRequest(_))));
    if let Ok(SdkMessage::Response(response)) = said
        && let ParsedResponse::Complete(answer) = parse_response(response, true)
        && answer.verdict == PermissionVerdict::Allow
    {
        let body = json::scan(answer.body, &["behavior"]).expect("an object");
        assert_eq!(body.fields[0].and_then(json::parse_string).as_deref(), Some("allow"));
        assert!(body.repeated.is_none(), "two words, and one of them counted");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = classify_line(text);
    if let AgentControlLine::Question(ask) = AgentControlLine::parse(text) {
        for line in [ask.encode_denial("no"), ask.encode_allowance(), ask.encode_cancel()] {
            assert!(json::scan(&line, &["type"]).is_ok(), "an answer that is no JSON ends the agent: {line}");
        }
        let outward = ask.encode_sdk("s", "id");
        assert!(outward.ends_with(b"}\n") && !outward[..outward.len() - 1].contains(&b'\n') || text.contains('\n'));
    }
    // Only JSON is ever cleaned.
    if json::scan(&format!("{{\"c\":{text}}}"), &["c"]).is_ok()
        && let Some(cleaned) = clean_content(text.trim())
    {
        assert!(json::scan(&format!("{{\"c\":{cleaned}}}"), &["c"]).is_ok());
    }
});
