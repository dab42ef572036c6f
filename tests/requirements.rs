//! docs/requirements.md: each row that sources and manual pages cite is there, and so is each test that it names.
//!
//! Rows are cited as `KC-09` in comments and as `kc_09_…` in the names of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::source::{files_below, top};

/// The kinds of rows.
const KINDS: [&str; 4] = ["AM", "BP", "KC", "RB"];

/// Where rows are cited.
const CITING: [&str; 8] = ["src", "crates", "server", "tests", "benches", "fuzz/fuzz_targets", "man", "docs"];

/// The targets whose tests rows name, and the directories of their modules.
const TARGETS: [(&str, &str); 11] = [
    ("lib", "src"),
    ("bridge", "crates/bridge/src"),
    ("policy", "crates/policy/src"),
    ("sandbox", "crates/sandbox/src"),
    ("session", "crates/session/src"),
    ("mailbox", "crates/mailbox/src"),
    ("remote", "crates/remote/src"),
    ("processes", "crates/mailbox/tests"),
    ("integration", "tests"),
    ("server", "server/tests/server"),
    ("variants", "tests/vm"),
];

/// Each row's id, and the last cell of its line: the tests that prove it, or why there are none.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let cells =
        page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    cells
        .filter(|(id, _)| {
            KINDS.iter().any(|kind| id.strip_prefix(kind).is_some_and(|rest| rest.starts_with('-')))
        })
        .map(|(id, rest)| (id, rest.rsplit_once(" | ").map_or("", |(_, proof)| proof)))
        .collect()
}

fn page() -> String {
    fs::read_to_string(top().join("docs/requirements.md")).unwrap()
}

/// The ids that a text cites in either way.
fn cited(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for kind in KINDS {
        for prefix in [format!("{kind}-"), format!("{}_", kind.to_lowercase())] {
            for (at, _) in text.match_indices(&prefix) {
                let rest = &text[at + prefix.len()..];
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                if digits == 2 && !text[..at].ends_with(char::is_alphanumeric) {
                    found.insert(format!("{kind}-{}", &rest[..digits]));
                }
            }
        }
    }
    found
}

/// The tests that a cell names: `TARGET MODULE::NAME` between backquotes.
fn named(proof: &str) -> Vec<(&str, &str)> {
    let spans = proof.split('`').skip(1).step_by(2);
    spans
        .filter_map(|span| span.split_once(' '))
        .filter(|(target, _)| TARGETS.iter().any(|(name, _)| name == target))
        .collect()
}

/// The source of a module, which may be one within a file.
fn source(directory: &Path, modules: &[&str]) -> Option<String> {
    let path: PathBuf = modules.iter().collect();
    let files = [directory.join(&path).with_extension("rs"), directory.join(&path).join("mod.rs")];
    if let Some(text) = files.iter().find_map(|file| fs::read_to_string(file).ok()) {
        return Some(text);
    }
    let (last, above) = modules.split_last()?;
    source(directory, above).filter(|text| text.contains(&format!("mod {last} {{")))
}

/// Whether a source has a test of this name: with the attribute, or with a caller (`as_each_caller!`).
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let begins = format!("fn {name}(");
    lines.iter().enumerate().filter(|(_, line)| line.starts_with(&begins)).any(|(at, line)| {
        let mut above =
            lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        line.starts_with(&format!("{begins}caller)")) || above.any(|line| *line == "#[test]")
    })
}

fn exists(target: &str, test: &str) -> bool {
    let Some((_, directory)) = TARGETS.iter().find(|(name, _)| *name == target) else { return false };
    let mut modules: Vec<&str> = test.split("::").collect();
    let name = modules.pop().unwrap_or_default();
    if modules.is_empty() {
        modules.push(target);
    }
    source(&top().join(directory), &modules).is_some_and(|text| has_test(&text, name))
}

#[test]
fn ids_are_found_in_comments_and_names() {
    let text = "(BP-01 to BP-03), fn kc_09_x, fn a_rb_14_b, XBP-04, kc_1_x, RB-010";
    assert_eq!(cited(text).into_iter().collect::<Vec<_>>(), ["BP-01", "BP-03", "KC-09", "RB-14"]);
}

#[test]
fn cited_rows_exist_once() {
    let page = page();
    let mut known = BTreeSet::new();
    for (id, _) in rows(&page) {
        assert!(known.insert(id.to_owned()), "{id} is there twice");
    }
    let mut missing: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in CITING.iter().flat_map(|directory| files_below(top().join(directory))) {
        // The test above has ids that are none.
        if file.ends_with("tests/requirements.rs") {
            continue;
        }
        for id in cited(&fs::read_to_string(&file).unwrap_or_default()).difference(&known) {
            missing.entry(id.clone()).or_default().push(file.clone());
        }
    }
    assert!(missing.is_empty(), "not in docs/requirements.md: {missing:#?}");
}

#[test]
fn rows_name_tests_that_exist_or_say_that_there_are_none() {
    let page = page();
    let mut wrong = Vec::new();
    for (id, proof) in rows(&page) {
        let tests = named(proof);
        if tests.is_empty() && !["no test", "not implemented"].iter().any(|none| proof.starts_with(none)) {
            wrong.push(format!("{id} names no test"));
        }
        let gone = tests.iter().filter(|(target, test)| !exists(target, test));
        wrong.extend(gone.map(|(target, test)| format!("{id}: there is no {target} {test}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
