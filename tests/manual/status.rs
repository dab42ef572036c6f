//! Exit statuses, codes and status events of saggar(1) against the code.

use super::page::Page;
use saggar::error::Code;
use saggar::supervise::status::Reason;
use std::collections::BTreeSet;

/// Every reason; a new one does not compile until it is here.
fn reasons() -> Vec<Reason> {
    use Reason::{Exit, Oom, Policy, Runtime, Signal, Timeout};
    let all = vec![Exit, Signal, Oom, Timeout, Policy, Runtime];
    for reason in &all {
        match reason {
            Exit | Signal | Oom | Timeout | Policy | Runtime => {}
        }
    }
    all
}

/// Every code; a new one does not compile until it is here.
fn codes() -> Vec<Code> {
    use Code::{Ended, Exists, Invalid, NotExecutable, NotFound, Refused, State, System, Unsupported, Usage};
    let all =
        vec![Usage, Invalid, Unsupported, Refused, System, NotFound, NotExecutable, Exists, State, Ended];
    for code in &all {
        match code {
            Usage | Invalid | Unsupported | Refused | System | NotFound | NotExecutable | Exists | State
            | Ended => assert!(Code::ALL.contains(code)),
        }
    }
    all
}

#[test]
fn every_event_and_every_reason_is_in_status_events_and_no_other() {
    let mut names: BTreeSet<String> = [
        "started",
        "quarantined",
        "reported",
        "left",
        "paused",
        "resumed",
        "updated",
        "api",
        "refused",
        "unreachable",
        "published",
        "unanswered",
        "relay",
        "oom",
        "exec",
        "exited",
    ]
    .map(str::to_owned)
    .into();
    names.extend(reasons().iter().map(|reason| {
        let name = serde_json::to_value(reason).unwrap();
        name.as_str().unwrap().to_owned()
    }));
    let page = Page::read("saggar.1");
    let listed = page.tags_in("STATUS EVENTS", "Cm");
    page.agrees("status events and reasons", &listed, &names.iter().map(String::as_str).collect());
}

#[test]
fn every_code_is_in_exit_status_with_its_status_and_no_other() {
    let page = Page::read("saggar.1");
    let names = codes().iter().map(|code| code.name()).collect();
    page.agrees("codes", &page.tags_in("EXIT STATUS", "Cm"), &names);
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/man/saggar.1")).unwrap();
    // An event may have the name of a code.
    let section = source.split(".Sh EXIT STATUS").nth(1).unwrap();
    for code in codes() {
        let entry = section.split(&format!("\n.It Cm {}\n", code.name())).nth(1).unwrap_or_default();
        let line = entry.lines().next().unwrap_or_default();
        let status = format!("({})", code.exit_status());
        assert!(line.ends_with(&status), "{}: {line:?} does not end in {status}", code.name());
    }
}
