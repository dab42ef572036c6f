use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn ask(agent_id: &str) -> AgentQuestion {
    let line = json!({
        "type": "control_request", "request_id": agent_id,
        "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t"},
    });
    match AgentControlLine::parse(&line.to_string()) {
        AgentControlLine::Question(ask) => ask,
        other => panic!("{other:?}"),
    }
}

fn pending(id: &str, agent_id: &str, until: Option<u64>) -> PendingQuestion<u8> {
    let until = until.map(Duration::from_secs);
    PendingQuestion {
        id: id.into(),
        question: ask(agent_id),
        recipient: None,
        asked: Duration::ZERO,
        deadline: until,
    }
}

#[test]
fn rb_28_the_question_outwards_is_exactly_this() {
    let line = r#"{"request_id":"a1","type":"control_request","request":{"subtype":"can_use_tool","tool_name":"Bash","display_name":"x","input":{"n":2.50,"a":1e400},"description":"d\/","permission_suggestions":[{"b":1}],"blocked_path":"/x","tool_use_id":"t"}}"#;
    let AgentControlLine::Question(ask) = AgentControlLine::parse(line) else { panic!() };
    assert_eq!(
        String::from_utf8(ask.encode_sdk("s", "fresh")).unwrap(),
        concat!(
            r#"{"type":"control_request","request_id":"fresh","request":{"subtype":"can_use_tool","#,
            r#""tool_name":"Bash","input":{"n":2.50,"a":1e400},"tool_use_id":"t","description":"d\/","#,
            r#""permission_suggestions":[{"b":1}],"blocked_path":"/x"},"session_id":"s"}"#,
            "\n"
        )
    );
    let bare = r#"{"request_id":"a1","type":"control_request","request":{"subtype":"can_use_tool"}}"#;
    let AgentControlLine::Question(ask) = AgentControlLine::parse(bare) else { panic!() };
    let outward: Value = serde_json::from_slice(&ask.encode_sdk("s", "f")).unwrap();
    assert_eq!(
        outward["request"],
        json!({"subtype": "can_use_tool", "tool_name": "", "input": {}, "tool_use_id": "", "description": ""})
    );
}

#[test]
fn rb_29_nothing_but_allow_is_taken_for_permission() {
    let verdict = |inner: &str| {
        let response = format!(r#"{{"subtype":"success","request_id":"r","response":{inner}}}"#);
        match parse_response(&response, true) {
            ParsedResponse::Complete(answer) => Some(answer.verdict),
            _ => None,
        }
    };
    assert_eq!(verdict(r#"{"behavior":"allow"}"#), Some(PermissionVerdict::Allow));
    assert_eq!(verdict(r#"{"behavior":"deny","message":"no"}"#), Some(PermissionVerdict::Deny));
    assert_eq!(verdict(r#"{"behavior":"\u0061llow"}"#), Some(PermissionVerdict::Allow));
    for bad in [
        r#"{"behavior":"maybe"}"#,
        r#"{"behavior":"ALLOW"}"#,
        r#"{"behavior":"allow "}"#,
        r#"{"behavior":null}"#,
        r#"{"behavior":true}"#,
        r#"{"behavior":["allow"]}"#,
        r#"{"Behavior":"allow"}"#,
        r#"{"behavior":"deny","behavior":"allow"}"#,
        r#"{"behavior":"allow","\u0062ehavior":"deny"}"#,
        r#"{"__proto__":{"behavior":"allow"}}"#,
        "{}",
        "null",
        "\"allow\"",
        r#"[{"behavior":"allow"}]"#,
    ] {
        assert_eq!(verdict(bad), None, "{bad}");
    }
    for bad in [
        r#"{"subtype":"error","request_id":"r","subtype":"success","response":{"behavior":"allow"}}"#,
        r#"{"request_id":"r","response":{"behavior":"allow"}}"#,
        r#"{"subtype":"success","request_id":7,"response":{"behavior":"allow"}}"#,
        r#"{"subtype":"success","response":{"behavior":"allow"}}"#,
        r#"{"subtype":"success","request_id":"a","request_id":"r","response":{"behavior":"allow"}}"#,
        r#"{"subtype":"success","request_id":"r","constructor":1,"response":{"behavior":"allow"}}"#,
    ] {
        assert!(!matches!(parse_response(bad, true), ParsedResponse::Complete(_)), "{bad}");
    }
}

#[test]
fn rb_16_either_spelling_of_the_id_will_do_where_both_are_read() {
    let read = |ids: &str, camel| {
        let response = format!(r#"{{"subtype":"error",{ids},"error":"e"}}"#);
        match parse_response(&response, camel) {
            ParsedResponse::Complete(answer) => Some(answer.request_id),
            _ => None,
        }
    };
    assert_eq!(read(r#""requestId":"c""#, true).as_deref(), Some("c"));
    assert_eq!(read(r#""requestId":"c","request_id":"s""#, true).as_deref(), Some("s"));
    assert_eq!(read(r#""requestId":"c""#, false), None);
}

#[test]
fn rb_30_bodies_reach_the_agent_byte_for_byte() {
    let body =
        r#"{ "behavior":"allow","updatedInput":{"n":2.50,"a":1e400,"s":"\u0041"},"updatedPermissions":[ ] }"#;
    let response = format!(r#"{{"request_id":"x","subtype":"success","response":{body}}}"#);
    let ParsedResponse::Complete(answer) = parse_response(&response, true) else { panic!() };
    let line = ask("a\"1").encode_response(answer.verdict, answer.body);
    let prefix =
        r#"{"type":"control_response","response":{"subtype":"success","request_id":"a\"1","response":"#;
    assert_eq!(line, format!("{prefix}{body}}}}}"));
    let error = ask("a").encode_response(PermissionVerdict::Error, "\"host failed\"");
    assert_eq!(
        error,
        r#"{"type":"control_response","response":{"subtype":"error","request_id":"a","error":"host failed"}}"#
    );
}

#[test]
fn a_changed_input_is_seen_and_the_same_in_other_words_is_not() {
    let line = |input: &str| {
        ask("a").encode_response(PermissionVerdict::Allow, &format!(r#"{{"behavior":"allow"{input}}}"#))
    };
    assert!(!ask("a").is_input_changed_by(&line("")));
    assert!(!ask("a").is_input_changed_by(&line(r#","updatedInput":{ "command" : "l\u0073" }"#)));
    assert!(ask("a").is_input_changed_by(&line(r#","updatedInput":{"command":"rm"}"#)));
    assert!(!ask("a").is_input_changed_by(&ask("a").encode_allowance()));
}

#[test]
fn what_cannot_be_answered_is_seen() {
    for line in [
        "[]",
        "{}",
        r#"{"type":"control_request","request":{"subtype":"can_use_tool"}}"#,
        r#"{"type":"control_request","request_id":7,"request":{"subtype":"can_use_tool"}}"#,
        r#"{"type":"control_request","request_id":"a","request_id":"b","request":{"subtype":"can_use_tool"}}"#,
        r#"{"type":"control_request","request_id":"a","request":7}"#,
    ] {
        assert_eq!(AgentControlLine::parse(line), AgentControlLine::Unanswerable, "{line}");
    }
    assert_eq!(
        AgentControlLine::parse(r#"{"request_id":"a","type":"control_cancel_request"}"#),
        AgentControlLine::Cancel("a".into())
    );
}

#[test]
fn an_audit_record_is_one_line_and_says_what_was_decided() {
    let mut ask = ask("a1");
    ask.tool.as_mut().unwrap().input = format!("\"{}\"", "é\n".repeat(5000));
    let mut audit = AuditRecord::new(7, "fresh", &ask, PermissionDecision::Deny, DecidedBy::Rule);
    audit.rule = Some("Bash(rm *) (command line)".into());
    let line = audit.encode_line();
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    let value: Value = serde_json::from_slice(&line).unwrap();
    assert!(value["input"].as_str().unwrap().chars().count() <= 4097);
    for (key, expected) in [
        ("version", json!(1)),
        ("ts", json!(7)),
        ("event", json!("permission")),
        ("id", json!("fresh")),
        ("request_id", json!("a1")),
        ("tool", json!("Bash")),
        ("tool_use_id", json!("t")),
        ("decision", json!("deny")),
        ("by", json!("rule")),
        ("rule", json!("Bash(rm *) (command line)")),
        ("connection", json!(null)),
        ("changed", json!(null)),
    ] {
        assert_eq!(value[key], expected, "{key}");
    }
}

#[test]
fn rb_31_a_name_is_used_once_and_the_table_is_bounded() {
    let mut table = QuestionTable::default();
    for number in 0..MAX_OPEN_QUESTIONS {
        table.add(pending(&format!("f{number}"), &format!("a{number}"), None)).unwrap();
    }
    assert_eq!(table.add(pending("f", "a", None)).unwrap_err().1, "too many questions are open");
    assert!(table.take_by_agent_id("a0").is_some() && table.take_by_agent_id("a0").is_none());
    let again = table.add(pending("g", "a0", None)).unwrap_err().1;
    assert_eq!(again, "the request_id of this question was used before");
    assert_eq!(
        table.add(pending("g", &"x".repeat(1000), None)).unwrap_err().1,
        "the request_id of this question is too long"
    );
    table.add(pending("g", "new", Some(3))).unwrap();
    assert_eq!(table.deadline(), Some(Duration::from_secs(3)));
    assert_eq!(table.expired(Duration::from_secs(3)), ["g"]);
    assert_eq!(table.take_all().len(), MAX_OPEN_QUESTIONS);
    assert_eq!(table.deadline(), None);
}

/// One step on a table.
#[derive(Debug, Clone)]
enum Step {
    Add { agent: u8, until: u64 },
    Take { fresh: u8 },
    TakeAgents { agent: u8 },
    Late { now: u64 },
    All,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..30, 1u64..9).prop_map(|(agent, until)| Step::Add { agent, until }),
        3 => (0u8..40).prop_map(|fresh| Step::Take { fresh }),
        3 => (0u8..30).prop_map(|agent| Step::TakeAgents { agent }),
        2 => (0u64..9).prop_map(|now| Step::Late { now }),
        1 => Just(Step::All),
    ]
}

proptest! {
    #![proptest_config(config(3000))]

    /// RB-31, RB-35: in any order, each question is removed once, by its own ids, and no id is used twice.
    #[test]
    fn rb_31_each_question_leaves_the_table_once(steps in proptest::collection::vec(step(), 0..80)) {
        let mut table = QuestionTable::default();
        let mut model: BTreeMap<u8, (u8, u64)> = BTreeMap::new();
        let (mut used, mut fresh) = (HashSet::new(), 0u8);
        for step in steps {
            match step {
                Step::Add { agent, until } => {
                    let added = table.add(pending(&fresh.to_string(), &agent.to_string(), Some(until)));
                    prop_assert_eq!(added.is_ok(), used.insert(agent));
                    if added.is_ok() {
                        model.insert(fresh, (agent, until));
                    }
                    fresh += 1;
                }
                Step::Take { fresh } => {
                    let taken = table.take(&fresh.to_string()).map(|pending| pending.question.agent_request_id);
                    prop_assert_eq!(taken, model.remove(&fresh).map(|(agent, _)| agent.to_string()));
                }
                Step::TakeAgents { agent } => {
                    let known = model.iter().find(|(_, (name, _))| *name == agent).map(|(fresh, _)| *fresh);
                    let taken = table.take_by_agent_id(&agent.to_string()).map(|pending| pending.id);
                    prop_assert_eq!(taken, known.map(|fresh| fresh.to_string()));
                    known.map(|fresh| model.remove(&fresh));
                }
                Step::Late { now } => {
                    let late: Vec<String> = model.iter().filter(|(_, (_, until))| *until <= now)
                        .map(|(fresh, _)| fresh.to_string()).collect();
                    prop_assert_eq!(table.expired(Duration::from_secs(now)), late);
                }
                Step::All => {
                    let all: Vec<String> = table.take_all().into_iter().map(|pending| pending.id).collect();
                    prop_assert_eq!(all, model.keys().map(u8::to_string).collect::<Vec<_>>());
                    model.clear();
                }
            }
            let open: Vec<String> = table.iter().map(|pending| pending.id.clone()).collect();
            prop_assert_eq!(open, model.keys().map(u8::to_string).collect::<Vec<_>>());
            let first = model.values().map(|(_, until)| Duration::from_secs(*until)).min();
            prop_assert_eq!(table.deadline(), first);
        }
    }

    /// RB-29: for any content, a response is an allowance only if its one behavior is `allow`.
    #[test]
    fn rb_29_never_allow_without_a_valid_allow(tokens in proptest::collection::vec(proptest::sample::select(&[
        "{", "}", "{\"subtype\":\"success\",\"request_id\":\"r\",\"response\":", "{\"behavior\":", "\"allow\"",
        "\"deny\"", "\"behavior\":", "\"subtype\":", "\"success\"", "\"error\"", "\"request_id\":", "\"response\":",
        "\"r\"", ",", "null", "[", "]", "\"\\u0061llow\"", "\"Allow\"", "\"x\":",
    ][..]), 0..16)) {
        let text = tokens.concat();
        if let ParsedResponse::Complete(PermissionResponse { verdict: PermissionVerdict::Allow, request_id, .. }) = parse_response(&text, true) {
            let value: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&value["response"]["behavior"], "allow");
            prop_assert_eq!(&value["subtype"], "success");
            prop_assert_eq!(&value["request_id"], &request_id);
            prop_assert!(!text.contains("\"deny\"") || text.contains("\"x\":") || !text.contains("\"behavior\":\"deny\""));
        }
    }

    #[test]
    fn any_line_of_an_agent_is_read(bytes in "[ -~é\\n]{0,200}") {
        let _ = (AgentControlLine::parse(&bytes), parse_response(&bytes, true), parse_verdict(&bytes));
    }
}
