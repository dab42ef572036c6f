use super::*;
use proptest::prelude::*;
use saggar_sys::testing::cases;

fn parse(line: &str) -> Result<Option<BridgeCommand>, InvalidCommand> {
    BridgeCommand::parse(Cow::Borrowed(line.as_bytes()))
}

fn refusal(line: &str) -> String {
    parse(line).expect_err(line).reason
}

#[test]
fn bp_07_a_query_has_a_prompt_and_a_session() {
    let line =
        r#"{"cmd":"query","prompt":["hello"],"sessionId":"s","includePartialMessages":true,"id":7,"x":1}"#;
    let command = parse(line).unwrap().unwrap();
    assert_eq!(command.id.unwrap().as_json(), "7");
    let CommandBody::Query(query) = command.body else { panic!("{line}") };
    assert_eq!((query.prompt(), query.session(), query.wants_partials()), (r#"["hello"]"#, "s", true));
    assert_eq!((query.line(), query.unknown_fields()), (line, &["x".to_owned()][..]));
}

#[test]
fn bp_20_any_json_is_a_prompt_and_options_are_found_by_name() {
    for prompt in [r#""a\u0000""#, "[]", "{\"a\":[]}", "null", "1e400", "true"] {
        let line = format!(
            r#"{{"model":"m","subagents":{{}},"effort":null,"prompt": {prompt} ,"cmd":"query","sessionId":""}}"#
        );
        let CommandBody::Query(query) = parse(&line).unwrap().unwrap().body else { panic!("{line}") };
        assert_eq!(query.prompt(), prompt);
        assert_eq!(query.field(QueryField::Model), Some("\"m\""));
        assert_eq!(query.field(QueryField::Subagents), Some("{}"));
        assert_eq!(query.field(QueryField::Effort), None);
    }
}

#[test]
fn bp_14_bp_15_each_kind_of_bad_line_says_what_is_wrong() {
    for (line, reason) in [
        (r#"{"cmd":"fly"}"#, "unknown command \"fly\""),
        (r#"{"cmd":7}"#, "cmd is not a string"),
        (r#"{"cmd":"query","sessionId":"s"}"#, "prompt is missing"),
        (r#"{"cmd":"query","prompt":"p"}"#, "sessionId is missing"),
        (r#"{"cmd":"query","prompt":"p","sessionId":3}"#, "sessionId is not a string"),
        (
            r#"{"cmd":"query","prompt":"p","sessionId":"s","includePartialMessages":1}"#,
            "neither true nor false",
        ),
        (r#"{"cmd":"query","cmd":"shutdown"}"#, "twice"),
        (r#"{"cmd":"interrupt","ev":"ready"}"#, "not both"),
        (r#"{"ev":"ready"}"#, "not an event"),
        (r#"{"cmd":"exec","command":"x","timeout":-1}"#, "positive number"),
        (r#"{"cmd":"exec","command":"x","timeout":"1"}"#, "positive number"),
        (r#"{"cmd":"exec","command":"x\u0000"}"#, "NUL"),
        (r#"{"cmd":"interrupt","id":null}"#, "id is neither"),
        (r#"{"type":"user"}"#, "second dialect"),
        (r#"{"type":"fly"}"#, "unknown type"),
        ("{}", "cmd is missing"),
        ("[]", "not a JSON object"),
        ("3", "not a JSON object"),
        ("{\"cmd\":\"a\0\"}", "not a JSON object"),
    ] {
        let found = refusal(line);
        assert!(found.contains(reason), "{line}: {found}");
    }
    let bad = BridgeCommand::parse(Cow::Borrowed(b"{\"cmd\":\"\xff\"}")).unwrap_err();
    assert!(bad.reason.contains("utf-8"));
    let deep = format!("{{\"cmd\":{}", "[".repeat(100_000));
    assert!(refusal(&deep).contains("deeper"));
}

#[test]
fn bp_15_a_bad_line_with_an_id_is_answered_with_it() {
    let bad = parse(r#"{"cmd":"fly","id":"a"}"#).unwrap_err();
    assert_eq!(
        bad.error_event(),
        b"{\"ev\":\"error\",\"error\":\"unknown command \\\"fly\\\"\",\"id\":\"a\"}\n"
    );
}

#[test]
fn bp_16_forbidden_keys_are_refused_however_written() {
    for key in ["__proto__", "constructor", "prototype", r"\u005f_proto__"] {
        let line = format!(r#"{{"cmd":"interrupt","{key}":1}}"#);
        assert!(refusal(&line).contains("not allowed"), "{line}");
    }
    assert!(parse(r#"{"cmd":"query","sessionId":"s","prompt":{"__proto__":1}}"#).is_ok());
}

#[test]
fn bp_17_blank_lines_are_nothing_and_white_space_around_a_command_is_accepted() {
    for blank in ["", " ", "\r", "\t \r"] {
        assert!(parse(blank).unwrap().is_none());
    }
    assert!(parse(" {\"cmd\":\"interrupt\"} \r").unwrap().is_some());
}

#[test]
fn bp_22_the_exec_timeout_has_a_default_and_a_ceiling() {
    let exec = |rest: &str| match parse(&format!(r#"{{"cmd":"exec","command":"x"{rest}}}"#)) {
        Ok(Some(BridgeCommand { body: CommandBody::Exec(exec), .. })) => exec.timeout,
        other => panic!("{other:?}"),
    };
    assert_eq!(exec(""), Duration::from_secs(30));
    assert_eq!(exec(r#","timeout":1.5"#), Duration::from_micros(1500));
    assert_eq!(exec(r#","timeout":1e18"#), MAX_EXEC_TIMEOUT);
}

#[test]
fn rb_29_only_a_plain_allow_deny_or_error_is_an_answer() {
    let line = |response: &str| format!(r#"{{"response":{response},"type":"control_response"}}"#);
    for good in [
        r#"{"subtype":"success","request_id":"r","response":{"behavior":"allow","updatedInput":{}}}"#,
        r#"{"response":{"behavior":"deny","message":"no"},"request_id":"r","subtype":"success"}"#,
        r#"{"subtype":"error","request_id":"r","error":"x"}"#,
    ] {
        let CommandBody::Response(answer) = parse(&line(good)).unwrap().unwrap().body else {
            panic!("{good}")
        };
        assert_eq!((answer.request_id.as_str(), answer.line), ("r", line(good)));
    }
    for bad in [
        "null",
        "[]",
        r#"{"subtype":"success","request_id":"r"}"#,
        r#"{"subtype":"success","request_id":"r","response":null}"#,
        r#"{"subtype":"success","request_id":"r","response":{"behavior":"maybe"}}"#,
        r#"{"subtype":"success","request_id":"r","response":{"behavior":"deny","behavior":"allow"}}"#,
        r#"{"subtype":"success","request_id":1,"response":{"behavior":"allow"}}"#,
        r#"{"subtype":"fly","request_id":"r","response":{"behavior":"allow"}}"#,
    ] {
        assert!(refusal(&line(bad)).starts_with("control_response: "), "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2000), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_bytes_are_a_command_a_blank_or_one_error(line in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = BridgeCommand::parse(Cow::Owned(line));
    }
}
