//! saggar-control(7) against the control socket.

use super::page::Page;
use saggar::control::method::METHOD_NAMES;
use saggar::control::rpc::RpcErrorKind;
use std::collections::BTreeSet;

#[test]
fn every_method_has_its_entry_and_no_other() {
    let page = Page::read("saggar-control.7");
    page.agrees("methods", &page.tags_in("METHODS", "Cm"), &METHOD_NAMES.into());
}

#[test]
fn every_failure_has_its_entry_with_its_number_and_no_other() {
    use RpcErrorKind::{
        Busy, Greeting, Internal, Method, Params, Parse, Request, State, Unsupported, Version,
    };
    let all = [Parse, Request, Method, Params, Internal, Greeting, Version, State, Unsupported, Busy];
    for kind in all {
        // A new one does not compile until it is here.
        match kind {
            Parse | Request | Method | Params | Internal | Greeting | Version | State | Unsupported
            | Busy => {}
        }
    }
    let page = Page::read("saggar-control.7");
    let names: BTreeSet<&str> = all.iter().map(|kind| kind.name()).collect();
    page.agrees("failures", &page.tags_in("FAILURES", "Cm"), &names);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/man/saggar-control.7");
    let source = std::fs::read_to_string(path).unwrap();
    for kind in all {
        let entry = format!(".It Cm {}\n{}: ", kind.name(), kind.code());
        assert!(source.contains(&entry), "no entry {entry:?}");
    }
}
