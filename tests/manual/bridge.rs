//! saggar-bridge(7) against the protocol.

use super::page::Page;
use saggar::bridge::proto::{BridgeCommand, BridgeEvent, CommandBody, LogLevel};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// One valid line of each command.
const COMMANDS: [&str; 7] = [
    r#"{"cmd":"query","prompt":1,"sessionId":"s"}"#,
    r#"{"cmd":"resume","sessionId":"s"}"#,
    r#"{"cmd":"interrupt"}"#,
    r#"{"cmd":"shutdown"}"#,
    r#"{"cmd":"exec","command":"true"}"#,
    r#"{"cmd":"set"}"#,
    r#"{"cmd":"replay","after":0}"#,
];

/// The name of a request on the wire; a new kind does not compile until it has one here.
fn name(request: &CommandBody) -> &'static str {
    match request {
        CommandBody::Query(_) => "query",
        CommandBody::Resume(_) => "resume",
        CommandBody::Interrupt => "interrupt",
        CommandBody::Shutdown => "shutdown",
        CommandBody::Exec(_) => "exec",
        CommandBody::Set(_) => "set",
        CommandBody::Replay(_) => "replay",
        CommandBody::Response(_) => "control_response",
    }
}

/// One of each event; a new kind does not compile until it is here.
fn events() -> Vec<BridgeEvent<'static>> {
    let all = vec![
        BridgeEvent::Ready,
        BridgeEvent::Message { data: "1" },
        BridgeEvent::Error { text: "" },
        BridgeEvent::Done { session: "" },
        BridgeEvent::ExecResult { exit_code: 0, stdout: "", stderr: "", truncated: true },
        BridgeEvent::Gap { from: 1, to: 2 },
        BridgeEvent::Log { level: LogLevel::Info, text: "", ts: 0 },
    ];
    for event in &all {
        match event {
            BridgeEvent::Ready
            | BridgeEvent::Message { .. }
            | BridgeEvent::Error { .. }
            | BridgeEvent::Done { .. }
            | BridgeEvent::ExecResult { .. }
            | BridgeEvent::Gap { .. }
            | BridgeEvent::Log { .. } => {}
        }
    }
    all
}

#[test]
fn every_command_of_the_wire_has_its_entry_and_no_other() {
    let names: BTreeSet<&str> = COMMANDS
        .iter()
        .map(|line| {
            let command = BridgeCommand::parse(Cow::Borrowed(line.as_bytes())).unwrap().unwrap();
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["cmd"], name(&command.body));
            name(&command.body)
        })
        .collect();
    let page = Page::read("saggar-bridge.7");
    page.agrees("commands", &page.tags_in("COMMANDS", "Cm"), &names);
}

#[test]
fn every_event_of_the_wire_has_its_entry_with_its_fields_and_no_other() {
    let page = Page::read("saggar-bridge.7");
    let written = page.words("Va");
    let mut names = BTreeSet::new();
    for event in events() {
        let line: Value = serde_json::from_slice(&event.encode(None)).unwrap();
        names.insert(line["ev"].as_str().unwrap().to_owned());
        for field in line.as_object().unwrap().keys() {
            assert!(written.contains(field.as_str()), "saggar-bridge.7 does not explain {field}");
        }
    }
    page.agrees("events", &page.tags_in("EVENTS", "Cm"), &names.iter().map(String::as_str).collect());
}

#[test]
fn every_command_in_an_example_is_valid() {
    let source =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/man/saggar-bridge.7")).unwrap();
    let lines: Vec<&str> = source.lines().filter(|line| line.starts_with("{\"cmd\":")).collect();
    assert!(lines.len() >= 3, "the examples were not found");
    for line in lines {
        assert!(BridgeCommand::parse(Cow::Borrowed(line.as_bytes())).is_ok(), "{line}");
    }
}
