//! Whatever a server of the second dialect and an agent that asks write: nothing is taken for permission that does
//! not say so, and what is cleaned is still JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::bridge::proto::json;
use saggar::bridge::proto::permission::{Asked, Reading, Verdict, read_response};
use saggar::bridge::proto::second::{Inbound, clean, fixes, look, read};

fuzz_target!(|data: &[u8]| {
    let said = read(data);
    assert!(!fixes(data) || matches!(said, Ok(Inbound::User(_) | Inbound::Request(_))));
    if let Ok(Inbound::Answer(response)) = said
        && let Reading::Whole(answer) = read_response(response, true)
        && answer.verdict == Verdict::Allow
    {
        let body = json::scan(answer.body, &["behavior"]).expect("an object");
        assert_eq!(body.fields[0].and_then(json::string).as_deref(), Some("allow"));
        assert!(body.repeated.is_none(), "two words, and one of them counted");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = look(text);
    if let Asked::Question(ask) = Asked::read(text) {
        for line in [ask.denial("no"), ask.allowance(), ask.back()] {
            assert!(json::scan(&line, &["type"]).is_ok(), "an answer that is no JSON ends the agent: {line}");
        }
        let outward = ask.outward("s", "id");
        assert!(outward.ends_with(b"}\n") && !outward[..outward.len() - 1].contains(&b'\n') || text.contains('\n'));
    }
    // Only JSON is ever cleaned.
    if json::scan(&format!("{{\"c\":{text}}}"), &["c"]).is_ok()
        && let Some(cleaned) = clean(text.trim())
    {
        assert!(json::scan(&format!("{{\"c\":{cleaned}}}"), &["c"]).is_ok());
    }
});
