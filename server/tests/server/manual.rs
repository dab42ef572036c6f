//! The manual page saggar-server(8) names the options and routes of the program.

use crate::support::DOCUMENT;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("man/saggar-server.8");
    fs::read_to_string(page).unwrap()
}

#[test]
fn page_lists_the_options_of_help() {
    let help = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_saggar-server")).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let help = help(&["--help"]) + &help(&["relay", "--help"]);
    let of_help: BTreeSet<&str> = help
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("--"))
        .filter(|option| !["help", "version"].contains(option))
        .collect();
    let page = page();
    let of_page: BTreeSet<&str> = page
        .split_whitespace()
        .filter_map(|word| word.strip_prefix('-'))
        .filter(|word| word.len() > 1)
        .collect();
    assert!(of_help.len() >= 8, "{of_help:?}");
    for option in &of_help {
        assert!(page.contains(&format!(".It Fl -{option}")), "the page lacks --{option}");
    }
    let of_page: Vec<_> = of_page.into_iter().filter(|word| page.contains(&format!("Fl -{word}"))).collect();
    // Options of `saggar session create`, which the text mentions.
    let of_saggar = ["session", "policy"];
    for option in of_page.into_iter().filter(|option| !of_saggar.contains(option)) {
        assert!(of_help.contains(option), "the page has --{option}, which does not exist");
    }
}

#[test]
fn page_lists_every_route() {
    let paths = DOCUMENT["paths"].as_object().unwrap().keys();
    assert!(paths.len() >= 10, "{paths:?}");
    let page = page();
    for path in paths {
        // `/api/sessions/{id}/pause` is `/api/sessions/ Ns Ar id Ns Cm /pause` in the page.
        let parts: Vec<&str> = path.split(['{', '}', '*']).collect();
        let is_line = |line: &str| parts.iter().all(|part| part.is_empty() || line.contains(part));
        assert!(
            page.lines().any(|line| line.starts_with(".It Cm") && is_line(line)),
            "the page lacks {path}"
        );
    }
}
