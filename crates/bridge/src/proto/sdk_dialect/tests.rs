use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::VecDeque;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn rb_10_the_oldest_goes_when_there_is_no_room_and_rb_11_a_member_does_not_grow_younger() {
    let mut seen = SeenUuids::new(2000);
    for number in 0..2001 {
        assert!(seen.insert(&format!("u{number}")));
        assert!(number == 0 || !seen.insert("u1"), "added again");
    }
    assert!(!seen.contains("u0") && seen.contains("u1") && seen.contains("u2000"));
    assert_eq!(seen.len(), 2000);
    seen.insert("u2001");
    assert!(!seen.contains("u1"), "it was the oldest, however often it was added");
    assert!(!seen.insert(&"x".repeat(1 << 20)), "a megabyte is no uuid");
    assert!(!SeenUuids::new(0).insert("a"));
}

proptest! {
    #![proptest_config(config(2000))]

    /// RB-10, RB-11 against a simple model of the set.
    #[test]
    fn rb_11_the_set_is_a_queue_without_repetitions(
        adds in proptest::collection::vec((0u8..30, 0u8..10), 0..200), limit in 1usize..20,
    ) {
        let (mut seen, mut model) = (SeenUuids::new(limit), VecDeque::new());
        for (number, forget) in adds {
            let uuid = number.to_string();
            let is_new = !model.contains(&uuid);
            prop_assert_eq!(seen.contains(&uuid), !is_new);
            prop_assert_eq!(seen.insert(&uuid), is_new);
            if is_new {
                if model.len() == limit {
                    model.pop_front();
                }
                model.push_back(uuid.clone());
            }
            if forget == 0 {
                seen.remove_newest(&uuid);
                model.pop_back_if(|newest| *newest == uuid);
            }
            prop_assert_eq!(seen.len(), model.len());
            prop_assert_eq!(seen.is_empty(), model.is_empty());
        }
    }

    /// Arbitrary bytes are parsed or ignored, and never yield a message that they do not contain.
    #[test]
    fn rb_13_any_bytes_are_read_or_ignored(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (parse_sdk_message(&bytes), selects_sdk_dialect(&bytes));
    }

    #[test]
    fn rb_13_any_tokens_are_read_or_ignored(tokens in proptest::collection::vec(proptest::sample::select(&[
        "{", "}", "[", "]", ",", ":", "\"type\"", "\"user\"", "\"control_request\"", "\"control_response\"",
        "\"request\"", "\"response\"", "\"request_id\"", "\"requestId\"", "\"subtype\"", "\"success\"", "\"allow\"",
        "\"behavior\"", "\"message\"", "\"content\"", "\"mediaType\"", "\"image\"", "\"source\"", "\"uuid\"", "1",
        "null", "\"\"", "\"\\ud800\"", "\"__proto__\"", "\"cmd\"", " ",
    ][..]), 0..40)) {
        let line = tokens.concat();
        let said = parse_sdk_message(line.as_bytes());
        if let Ok(said) = &said {
            // A parsed line is JSON and contains what was parsed.
            let value: Value = serde_json::from_str(&line.replace("\\ud800", "?")).unwrap();
            let kind = match said {
                SdkMessage::Response(_) => "control_response",
                SdkMessage::Cancel(_) => "control_cancel_request",
                SdkMessage::ControlRequest(_) => "control_request",
                SdkMessage::User(_) => "user",
                SdkMessage::Other(kind) => kind,
            };
            prop_assert_eq!(&value["type"], kind);
        }
        if selects_sdk_dialect(line.as_bytes()) {
            prop_assert!(matches!(said, Ok(SdkMessage::ControlRequest(_) | SdkMessage::User(_))));
        }
    }

    /// RB-15: cleaned content is the same JSON except for the one key; content without that key is borrowed.
    #[test]
    fn rb_15_nothing_but_the_key_changes(
        blocks in proptest::collection::vec((0u8..5, "[a-z{}\"\\\\ mediaType]{0,12}"), 1..8),
    ) {
        let mut expected = Vec::new();
        let mut given = Vec::new();
        for (kind, text) in &blocks {
            let (before, after) = match kind {
                0 => (json!({"type": "image", "source": {"type": "base64", "mediaType": text, "data": text}}),
                      json!({"type": "image", "source": {"type": "base64", "media_type": text, "data": text}})),
                1 => same(json!({"type": "image", "source": {"media_type": text, "mediaType": text}})),
                2 => same(json!({"type": "text", "text": text, "source": {"mediaType": text}})),
                3 => same(json!({"type": "image", "source": {"media_type": text}, "mediaType": text})),
                _ => same(json!({"type": "tool_result", "content": [{"type": "image", "source": {"mediaType": text}}]})),
            };
            given.push(before);
            expected.push(after);
        }
        let given = Value::Array(given).to_string();
        let cleaned = clean_content(&given).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&cleaned).unwrap(), Value::Array(expected));
        if blocks.iter().all(|(kind, _)| *kind != 0) {
            prop_assert!(matches!(cleaned, Cow::Borrowed(_)));
            prop_assert_eq!(&*cleaned, &given);
        }
    }
}

fn same(value: Value) -> (Value, Value) {
    (value.clone(), value)
}

#[test]
fn rb_15_every_byte_beside_the_key_stays() {
    let given = r#"[ {"n":2.50,"source" : { "data":"AA\/=" , "mediaType"  :  "image/png","x":1e400},"type":"image"} ,{"type":"text","text":"mediaType"}]"#;
    assert_eq!(clean_content(given).unwrap(), given.replacen("\"mediaType\"  :", "\"media_type\"  :", 1));
}

#[test]
fn rb_14_what_says_nothing_is_no_message() {
    for nothing in ["null", "\"\"", "[]", "[ \t]", "{}", "{\"a\":1}", "0", "false", "true", "7"] {
        assert_eq!(clean_content(nothing), None, "{nothing}");
    }
    for something in ["\" \"", "\"a\"", "[1]", "[{}]", r#"[{"type":"text","text":""}]"#] {
        assert!(
            matches!(clean_content(something), Some(Cow::Borrowed(same)) if same == something),
            "{something}"
        );
    }
    let user = |message: &str| match parse_sdk_message(
        format!(r#"{{"type":"user","uuid":"u"{message}}}"#).as_bytes(),
    ) {
        Ok(SdkMessage::User(user)) => {
            assert_eq!(user.uuid.as_deref(), Some("u"));
            user.content.map(Cow::into_owned)
        }
        other => panic!("{other:?}"),
    };
    for none in
        ["", r#","message":null"#, r#","message":{}"#, r#","message":{"content":""}"#, r#","message":7"#]
    {
        assert_eq!(user(none), None, "{none}");
    }
    assert_eq!(user(r#","message":{"role":"user","content":"hi"}"#).as_deref(), Some("\"hi\""));
}

#[test]
fn rb_01_to_03_the_conversation_crosses_and_nothing_else() {
    for (line, crosses) in [
        (r#"{"type":"user","uuid":"u"}"#, true),
        (r#"{"message":{"type":"result"},"type":"assistant","uuid":"u"}"#, true),
        (r#"{"type":"system","subtype":"local_command","uuid":"u"}"#, true),
        (r#"{"type":"user","isVirtual":false,"uuid":"u"}"#, true),
        (r#"{"type":"user","isVirtual":null,"uuid":"u"}"#, true),
        (r#"{"type":"user","isVirtual":0.0,"uuid":"u"}"#, true),
        (r#"{"type":"user","isVirtual":true,"uuid":"u"}"#, false),
        (r#"{"type":"assistant","isVirtual":1,"uuid":"u"}"#, false),
        (r#"{"type":"assistant","isVirtual":{},"uuid":"u"}"#, false),
        (r#"{"type":"system","subtype":"local_command","isVirtual":true,"uuid":"u"}"#, true),
        (r#"{"type":"system","subtype":"init","uuid":"u"}"#, false),
        (r#"{"type":"system","uuid":"u"}"#, false),
        (r#"{"type":"result","subtype":"success","uuid":"u"}"#, false),
        (r#"{"type":"stream_event","uuid":"u"}"#, false),
        (r#"{"type":"tool_result","uuid":"u"}"#, false),
        (r#"{"type":"progress","uuid":"u"}"#, false),
        (r#"{"type":"control_response","uuid":"u"}"#, false),
        (r#"{"uuid":"u"}"#, false),
    ] {
        assert_eq!(
            classify_line(line),
            ClassifiedLine { is_eligible: crosses, uuid: Some("u".into()) },
            "{line}"
        );
    }
    assert_eq!(classify_line("[]"), ClassifiedLine { is_eligible: false, uuid: None });
}

#[test]
fn rb_04_rb_05_answers_come_first_then_requests_then_messages_and_rb_16_either_spelling_will_do() {
    let answer = r#"{"type":"control_response","uuid":"u","response":{"a":1},"request":{"subtype":"x"}}"#;
    assert_eq!(parse_sdk_message(answer.as_bytes()), Ok(SdkMessage::Response(r#"{"a":1}"#)));
    for (ids, expected) in [
        (r#""requestId":"camel""#, "\"camel\""),
        (r#""request_id":"snake""#, "\"snake\""),
        (r#""requestId":"camel","request_id":"snake""#, "\"snake\""),
        (r#""request_id":"snake","requestId":"camel""#, "\"snake\""),
        (r#""request_id":7.50"#, "7.50"),
        (r#""request_id":"\u0041\/é""#, r#""\u0041\/é""#),
    ] {
        let line = format!(r#"{{{ids},"type":"control_request","request":{{"subtype":"interrupt"}}}}"#);
        let Ok(SdkMessage::ControlRequest(request)) = parse_sdk_message(line.as_bytes()) else {
            panic!("{line}")
        };
        assert_eq!((request.request_id, request.subtype.as_str()), (expected, "interrupt"));
        assert!(selects_sdk_dialect(line.as_bytes()));
    }
    for ignored in ["{}", "[]", "3", "null", "{\"type\":7}", "{", "\"user\"", "{\"a\":1}"] {
        assert!(
            parse_sdk_message(ignored.as_bytes()).is_err() && !selects_sdk_dialect(ignored.as_bytes()),
            "{ignored}"
        );
    }
    for other in ["assistant", "result", "keep_alive"] {
        let line = format!(r#"{{"type":"{other}"}}"#);
        assert_eq!(parse_sdk_message(line.as_bytes()), Ok(SdkMessage::Other(other.into())));
        assert!(!selects_sdk_dialect(line.as_bytes()));
    }
}

#[test]
fn decision_18_a_command_or_an_event_is_never_of_the_second_dialect() {
    for line in [
        r#"{"cmd":"query","type":"user"}"#,
        r#"{"type":"user","cmd":null}"#,
        r#"{"type":"user","ev":"x"}"#,
        r#"{"type":"user","__proto__":{}}"#,
        r#"{"type":"control_response","response":{}}"#,
    ] {
        assert!(!selects_sdk_dialect(line.as_bytes()), "{line}");
    }
    assert!(selects_sdk_dialect(br#" {"type":"user"}"#));
}

#[test]
fn rb_36_rb_37_the_closing_result_is_exactly_this() {
    let mut result: Value = serde_json::from_slice(&closing_result("s\"1")).unwrap();
    let uuid = result["uuid"].take();
    let uuid = uuid.as_str().unwrap();
    let parts: Vec<&str> = uuid.split('-').collect();
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    assert!(parts[2].starts_with('4') && "89ab".contains(&parts[3][..1]), "{uuid}");
    assert_eq!(
        result,
        json!({
            "type": "result", "subtype": "success", "duration_ms": 0, "duration_api_ms": 0, "is_error": false,
            "num_turns": 0, "result": "", "stop_reason": null, "total_cost_usd": 0,
            "usage": {
                "input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            },
            "modelUsage": {}, "permission_denials": [], "session_id": "s\"1", "uuid": null,
        })
    );
}

#[test]
fn rb_17_rb_18_rb_24_replies_are_exactly_these() {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(
        text(control::initialize_response("s", "\"r\"", 7)),
        concat!(
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"r","response":{"#,
            r#""commands":[],"output_style":"normal","available_output_styles":["normal"],"models":[],"#,
            r#""account":{},"pid":7}},"session_id":"s"}"#,
            "\n"
        )
    );
    assert_eq!(
        text(control::success_response("s", "7.50")),
        "{\"type\":\"control_response\",\"response\":{\"subtype\":\"success\",\"request_id\":7.50},\"session_id\":\"s\"}\n"
    );
    let unknown: Value =
        serde_json::from_slice(&control::unknown_subtype_response("s", "\"r\"", "fly\"")).unwrap();
    assert_eq!(unknown["response"]["error"], "REPL bridge does not handle control_request subtype: fly\"");
}
