use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;

fn seed_time() -> Timestamp {
    "2024-03-28T10:00:00Z".parse().unwrap()
}

fn draft(message_type: MessageType, content: &str, signal: Option<Signal>) -> Draft {
    Draft { message_type, to: "codex".into(), content: content.into(), signal }
}

#[test]
fn am_02_ids_are_those_of_the_seed() {
    let golden = [
        (
            MessageType::Task,
            "claude",
            "codex",
            "Add email validation to LoginForm",
            "0776580431460a14cb7425428db065c7d1bc009300729e57fea1915ee0eb3aa5",
        ),
        (
            MessageType::Result,
            "codex",
            "claude",
            "Added validateEmail function...",
            "7e5464a00cbcc793751b71d168e74ff517c48fe9ad11777127477e0bd4b869af",
        ),
        (
            MessageType::Signal,
            "claude",
            "",
            "Looks good",
            "658aa2a5a2122349e2b7754456eeafd3206cf91632024696d1acd820a21b42e7",
        ),
        (
            MessageType::Chat,
            "codex",
            "claude",
            "€\n\"q\"",
            "db6d7ce7f53e7e730c4875f7873306b3de8505de7664a941d7d6bcd170ab8f8d",
        ),
    ];
    for (message_type, from, to, content, id) in golden {
        assert_eq!(message_id(message_type, from, to, content), id);
    }
}

#[test]
fn am_01_line_has_all_fields_in_the_order_of_the_seed() {
    let text = "<a & b>\u{0}\u{2028}";
    let message = Message::new(7, "claude", draft(MessageType::Task, text, None), seed_time()).unwrap();
    let line = String::from_utf8(message.to_line().unwrap()).unwrap();
    let expected = format!(
        "{{\"id\":\"{}\",\"run_id\":7,\"type\":\"task\",\"from\":\"claude\",\"to\":\"codex\",\
         \"content\":\"<a & b>\\u0000\u{2028}\",\"signal\":\"\",\"timestamp\":\"2024-03-28T10:00:00Z\"}}\n",
        message.id
    );
    assert_eq!(line, expected);
}

#[test]
fn reader_accepts_the_lines_of_the_seed_and_unknown_fields() {
    let line = r#"{"type":"signal","from":"codex","signal":"DONE","content":"Validation complete","timestamp":"2024-03-28T10:03:30Z","more":[1]}"#;
    let message = parse_line(line.as_bytes(), 3).unwrap();
    assert_eq!((message.run_id, message.to.as_str(), message.signal), (3, "", Some(Signal::Done)));
    assert_eq!(message.id, message_id(MessageType::Signal, "codex", "", "Validation complete"));
    let foreign = r#"{"id":"abc...","run_id":9,"type":"task","from":"a","to":null,"content":"c","timestamp":"2024-03-28T12:00:00.5+02:00"}"#;
    let message = parse_line(foreign.as_bytes(), 3).unwrap();
    assert_eq!((message.id.as_str(), message.run_id), ("abc...", 9));
    assert_eq!(message.timestamp.as_second(), seed_time().as_second());
}

#[test]
fn am_05_reader_reports_lines_that_are_no_messages() {
    let good = r#"{"type":"task","from":"a","content":"c","timestamp":"2024-03-28T10:00:00Z"}"#;
    assert!(parse_line(good.as_bytes(), 1).is_ok());
    for bad in [
        "",
        "[1]",
        "null",
        "{",
        &good.replace("task", "bogus"),
        &good.replace("}", ",\"signal\":\"MAYBE\"}"),
        &good.replace("2024", "yesterday"),
        r#"["id",1,"task","a","b","c","","2024-03-28T10:00:00Z"]"#,
    ] {
        assert!(parse_line(bad.as_bytes(), 1).is_err(), "{bad}");
    }
    assert!(parse_line(b"{\"type\":\"task\xff\"}", 1).is_err());
}

#[test]
fn am_06_signal_is_required_for_signals_only() {
    for message_type in MessageType::ALL {
        for signal in [None, Some(Signal::Done), Some(Signal::Pass), Some(Signal::Fail)] {
            let is_valid = (message_type == MessageType::Signal) == signal.is_some();
            let made = Message::new(1, "claude", draft(message_type, "text", signal), seed_time());
            assert_eq!(made.is_ok(), is_valid, "{message_type} {signal:?}");
        }
        let empty = Message::new(1, "a", draft(message_type, "", None), seed_time());
        assert_eq!(empty.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(Message::new(1, "claude", Draft::signal(Signal::Pass, ""), seed_time()).is_ok());
}

#[test]
fn agent_names_are_safe_as_file_names() {
    for good in ["a", "claude", "claude-2", "_x.y", &"n".repeat(64)] {
        check_agent_name(good).unwrap();
    }
    for bad in ["", ".", "..", "-rf", "a/b", "a b", "é", "a\n", &"n".repeat(65)] {
        let error = check_agent_name(bad).unwrap_err();
        assert!(error.hint().is_some() && !error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn am_20_content_is_limited_to_16_mib() {
    let largest = "x".repeat(MAX_CONTENT);
    assert!(Message::new(1, "a", draft(MessageType::Chat, &largest, None), seed_time()).is_ok());
    let larger = largest + "x";
    assert!(Message::new(1, "a", draft(MessageType::Chat, &larger, None), seed_time()).is_err());
}

#[test]
fn signal_in_a_message_of_another_type_has_no_effect() {
    let line =
        r#"{"type":"task","from":"a","content":"c","signal":"PASS","timestamp":"2024-03-28T10:00:00Z"}"#;
    let message = parse_line(line.as_bytes(), 1).unwrap();
    assert_eq!((message.signal, message.effective_signal()), (Some(Signal::Pass), None));
}

#[test]
fn am_07_broadcast_is_for_every_agent_but_its_sender() {
    let message = Message::new(1, "a", Draft::signal(Signal::Done, "x"), seed_time()).unwrap();
    assert!(message.is_for("b") && message.is_for("c") && !message.is_for("a"));
}

pub(crate) fn any_message() -> impl Strategy<Value = Message> {
    let name = "[A-Za-z0-9_][A-Za-z0-9._-]{0,9}";
    let times = 0i64..4_000_000_000;
    (name, prop_oneof![Just(String::new()), name.prop_map(String::from)], any::<String>(), 0usize..7, times)
        .prop_map(|(from, to, content, kind, time)| {
            let (message_type, signal) = match kind {
                0..3 => (MessageType::Signal, Some(Signal::ALL[kind])),
                _ => (
                    [MessageType::Task, MessageType::Result, MessageType::Review, MessageType::Chat]
                        [kind - 3],
                    None,
                ),
            };
            let content = if signal.is_none() && content.is_empty() { "x".to_owned() } else { content };
            let draft = Draft { message_type, to, content, signal };
            Message::new(1, &from, draft, Timestamp::from_second(time).unwrap()).unwrap()
        })
}

proptest! {
    #[test]
    fn am_20_any_message_round_trips_as_one_line(message in any_message()) {
        let line = message.to_line().unwrap();
        let (last, text) = line.split_last().unwrap();
        prop_assert_eq!(*last, b'\n');
        prop_assert!(!text.contains(&b'\n'));
        prop_assert_eq!(parse_line(text, 1).unwrap(), message);
    }
}
