//! What comments, manual pages and documents cite is in the repository: pages of decisions, the code and the tests that
//! these name, and other documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::source::{files_below, top};

/// Where citations stand. `target` and the like are not below any of these.
const ROOTS: [&str; 10] = [
    "src",
    "tests",
    "benches",
    "man",
    "seccomp",
    "packaging",
    "crates",
    "examples",
    "fuzz/fuzz_targets",
    "docs",
];

/// The short form, as docs/decisions/README.md defines it. In two parts, so that this file cites none.
const DECISION: &str = concat!("DECIS", "IONS");

/// Files that are cited by name and are those of others: of the OCI runtime specification, and of agents.
const OF_OTHERS: [&str; 9] = [
    "config.md",
    "config-linux.md",
    "features.md",
    "features-linux.md",
    "runtime.md",
    "runtime-linux.md",
    "AGENTS.md",
    "CLAUDE.md",
    "SKILL.md",
];

/// Standards that are cited by a name and a number.
const STANDARDS: [&str; 3] = ["IEEE", "JSON-RPC", "TOML"];

/// The text files below `directory`, in any order.
fn files(directory: PathBuf) -> Vec<(PathBuf, String)> {
    let text = |path: PathBuf| fs::read_to_string(&path).ok().map(|text| (path, text));
    files_below(directory).into_iter().filter_map(text).collect()
}

fn all_files() -> Vec<(PathBuf, String)> {
    let below = ROOTS.iter().flat_map(|root| files(top().join(root)));
    let beside = ["ARCHITECTURE.md", "README.md", "SECURITY.md"].map(|name| top().join(name));
    below.chain(beside.map(|path| (path.clone(), fs::read_to_string(path).unwrap()))).collect()
}

/// The pages of decisions: number, file name and text.
fn pages() -> Vec<(u32, String, String)> {
    let pages = files(top().join("docs/decisions")).into_iter().filter_map(|(path, text)| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name != "README.md").then_some((name, text))
    });
    pages
        .map(|(name, text)| {
            let number = name.split('-').next().and_then(|number| number.parse().ok());
            (number.unwrap_or_else(|| panic!("{name} does not begin with a number")), name, text)
        })
        .collect()
}

/// The numbers of decisions that `text` cites: of `15, 16` and `9 and 10` both, also over the end of a line.
fn cited(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for (at, _) in text.match_indices(DECISION) {
        let mut rest = &text[at + DECISION.len()..];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/' || c == '!');
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let Ok(number) = rest[..digits].parse() else { break };
            numbers.push(number);
            rest = &rest[digits..];
            let Some(next) = rest.strip_prefix(", ").or_else(|| rest.strip_prefix(" and ")) else { break };
            rest = next;
        }
    }
    numbers
}

/// The text between single backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether `module::file::function` is a test below `tests`.
fn is_test(name: &str) -> bool {
    let Some((module, function)) = name.rsplit_once("::") else { return false };
    let path = top().join("tests").join(module.replace("::", "/"));
    let sources = [path.with_extension("rs"), path.join("mod.rs")];
    let has = |source: &PathBuf| {
        fs::read_to_string(source).is_ok_and(|text| text.contains(&format!("fn {function}(")))
    };
    sources.iter().any(has)
}

/// The comments of Rust, and the whole of anything else.
fn prose(path: &Path, text: &str) -> String {
    if path.extension().is_none_or(|extension| extension != "rs") {
        return text.to_owned();
    }
    let lines = text.lines().filter_map(|line| line.split_once("//").map(|(_, comment)| comment));
    lines.collect::<Vec<_>>().join("\n")
}

/// The file names that end in `.md`, with the directories that are written before them.
fn documents(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    text.split(move |c| !is_part(c))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.ends_with(".md"))
}

/// A name in capitals with a number, as documents are cited: `NAME 3`, `NAME, section 3`.
fn numbered(text: &str) -> impl Iterator<Item = &str> {
    let words: Vec<&str> = text.split(' ').collect();
    let pairs: Vec<_> = words.windows(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().filter_map(|(name, next)| {
        let name = name.trim_start_matches(['(', '/']).trim_end_matches(',');
        let is_name = name.len() > 3 && name.chars().all(|c| c.is_ascii_uppercase() || c == '-');
        let is_place = next == "section" || next.starts_with(|c: char| c.is_ascii_digit());
        (is_name && is_place).then_some(name)
    })
}

#[test]
fn citations_are_read_in_every_form() {
    let text =
        "(DECISIONS 2) DECISIONS 15, 16, BP-26 and DECISIONS\n/// 23 and 24).".replace("DECISIONS", DECISION);
    assert_eq!(cited(&text), [2, 15, 16, 23, 24]);
    assert_eq!(documents("see (a/B.md), C.md. Not d.mdx").collect::<Vec<_>>(), ["a/B.md", "C.md"]);
    assert_eq!(numbered("(A-NAME 3) and NAME, section 4; NAME of 5").collect::<Vec<_>>(), ["A-NAME", "NAME"]);
}

#[test]
fn every_cited_decision_has_a_page() {
    let pages: BTreeSet<u32> = pages().into_iter().map(|(number, ..)| number).collect();
    for (path, text) in all_files() {
        for number in cited(&text) {
            assert!(pages.contains(&number), "{}: no page of decision {number}", path.display());
        }
    }
}

#[test]
fn every_decision_is_in_the_index() {
    let index = fs::read_to_string(top().join("docs/decisions/README.md")).unwrap();
    let mut numbers = BTreeSet::new();
    for (number, name, text) in pages() {
        assert!(numbers.insert(number), "two pages have the number {number}");
        assert!(index.contains(&format!("({name})")), "{name} is not in the index");
        assert!(text.starts_with(&format!("# {number}. ")), "{name}: its title has another number");
        assert!(text.contains("\n\nStatus: "), "{name} has no status");
    }
}

#[test]
fn code_and_tests_that_a_decision_names_are_there() {
    for (_, name, text) in pages() {
        let is_path = |word: &&str| {
            let is_code = word.contains('/') && word.ends_with(".rs");
            is_code || ROOTS.iter().any(|root| word.starts_with(&format!("{root}/")))
        };
        for path in quoted(&text).filter(is_path) {
            assert!(top().join(path).exists(), "{name}: {path} is not there");
        }
        for tests in text.split("Tests: ").skip(1).filter_map(|rest| rest.split("\n\n").next()) {
            for test in quoted(tests).filter(|word| word.contains("::")) {
                assert!(is_test(test), "{name}: there is no test {test}");
            }
        }
    }
}

#[test]
fn no_other_document_is_cited() {
    for (path, text) in all_files() {
        let (shown, prose) = (path.display(), prose(&path, &text));
        for document in documents(&prose) {
            let name = document.rsplit('/').next().unwrap_or_default();
            let beside = path.parent().unwrap().join(document);
            let is_ours = top().join(document).exists() || beside.exists();
            // A path below a dot is an agent's: `.claude/agents/x.md`.
            let is_of_others = OF_OTHERS.contains(&name) || document.starts_with('.');
            assert!(is_ours || is_of_others, "{shown}: {document} is not in the repository");
        }
        if path.extension().is_some_and(|extension| extension == "rs") {
            for name in prose.lines().flat_map(numbered) {
                let is_known = name == DECISION || STANDARDS.contains(&name);
                assert!(is_known, "{shown}: {name} is not in the repository");
            }
        }
    }
}
