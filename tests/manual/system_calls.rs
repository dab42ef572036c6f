//! saggar-security(7) says of each system call that programs are denied why it is.

use std::collections::BTreeSet;

use serde_json::Value;

use super::page::Page;

/// The calls of a group with another answer than "allow".
fn denied(group: &Value) -> Vec<&str> {
    let refuses = |answer: &Value| answer != "allow";
    let rules = group["rules"].as_array().into_iter().flatten();
    match refuses(&group["answer"]) || rules.into_iter().any(|rule| refuses(&rule["answer"])) {
        true => group["calls"].as_array().unwrap().iter().map(|call| call.as_str().unwrap()).collect(),
        false => Vec::new(),
    }
}

#[test]
fn every_denied_call_has_its_reason_in_the_manual() {
    let filter: Value = serde_json::from_str(include_str!("../../seccomp/agent.json")).unwrap();
    let groups = filter["groups"].as_array().unwrap();
    let page = Page::read("saggar-security.7");
    let is_other = |c: char| !c.is_alphanumeric() && c != '_';
    let words: BTreeSet<&str> =
        page.subsection("System calls").flat_map(|line| line.split(is_other)).collect();
    let missing: Vec<&str> = groups.iter().flat_map(denied).filter(|call| !words.contains(call)).collect();
    assert!(missing.is_empty(), "not in the manual: {missing:?}");
}
