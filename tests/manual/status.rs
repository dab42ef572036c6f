//! Exit statuses, codes and status events of saggar(1) against the code.

use super::page::Page;
use saggar::error::Code;
use saggar::supervise::status::ExitReason;
use std::collections::BTreeSet;

/// Every reason; a new one does not compile until it is here.
fn reasons() -> Vec<ExitReason> {
    use ExitReason::{Exit, Oom, Policy, Runtime, Signal, Timeout};
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
        "findings",
        "paused",
        "resumed",
        "updated",
        "api",
        "mailbox",
        "refused",
        "unreachable",
        "published",
        "port_unreachable",
        "relay",
        "oom",
        "limit",
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

#[test]
fn tables_of_exit_statuses_are_those_of_the_code() {
    use saggar::error::status;
    for (name, own, programs) in [("saggar.1", status::OF_RUNS, "N"), ("saggar-oci.8", status::OF_OCI, "0")] {
        let signals = format!("{}+N", status::SIGNAL_BASE);
        let numbers =
            own.iter().map(u8::to_string).chain([programs.to_owned(), signals]).collect::<BTreeSet<_>>();
        let source = std::fs::read_to_string(format!("{}/man/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let section = source.split(".Sh EXIT STATUS").nth(1).unwrap().split("\n.Sh ").next().unwrap();
        let tags = section.lines().filter_map(|line| line.strip_prefix(".It ")?.split(' ').next());
        let is_status = |tag: &&str| tag.contains("+N") || *tag == "N" || tag.parse::<u8>().is_ok();
        let listed: BTreeSet<_> = tags.filter(is_status).map(str::to_owned).collect();
        assert_eq!(listed, numbers, "{name}");
    }
}
