//! A page of the manual, read as the macros that it is written in (mdoc(7)).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// One page.
#[derive(Debug)]
pub(super) struct Page {
    name: &'static str,
    source: String,
}

/// The pages, with the sections that they belong to.
pub(super) const PAGES: [&str; 13] = [
    "saggar.1",
    "saggar-session.1",
    "saggar-pair.1",
    "saggar-remote.1",
    "saggar-mcp.1",
    "saggar-policy.5",
    "saggar-bridge.7",
    "saggar-control.7",
    "saggar-security.7",
    "saggar-workspace.7",
    "saggar-mailbox.7",
    "saggar-oci.8",
    "saggar-server.8",
];

impl Page {
    /// The page of this name in `man`.
    pub(super) fn read(name: &'static str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(name);
        let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Page { name, source }
    }

    /// The words that follow a macro, up to the next macro of its line: those of `Fl`, `Va`, `Cm` or `Ev`.
    pub(super) fn words(&self, of: &str) -> BTreeSet<&str> {
        self.source.lines().flat_map(|line| after(line, of)).collect()
    }

    /// The words that follow a macro where it is the tag of a list.
    pub(super) fn tags(&self, of: &str) -> BTreeSet<&str> {
        self.source
            .lines()
            .filter_map(|line| line.strip_prefix(".It "))
            .flat_map(|tag| after(tag, of))
            .collect()
    }

    /// The same, of one section alone.
    pub(super) fn tags_in(&self, section: &str, of: &str) -> BTreeSet<&str> {
        let lines = self.source.lines().skip_while(|line| *line != format!(".Sh {section}")).skip(1);
        lines
            .take_while(|line| !line.starts_with(".Sh "))
            .filter_map(|line| line.strip_prefix(".It "))
            .flat_map(|tag| after(tag, of))
            .collect()
    }

    /// The lines of one subsection.
    pub(super) fn subsection(&self, name: &str) -> impl Iterator<Item = &str> {
        let lines = self.source.lines().skip_while(move |line| *line != format!(".Ss {name}")).skip(1);
        lines.take_while(|line| !line.starts_with(".Ss ") && !line.starts_with(".Sh "))
    }

    /// Lines of examples that call saggar.
    pub(super) fn calls(&self) -> impl Iterator<Item = &str> {
        self.source.lines().filter_map(|line| line.strip_prefix("$ saggar "))
    }

    /// Fails unless both sets are the same; says what is missing on which side.
    pub(super) fn agrees(&self, what: &str, page: &BTreeSet<&str>, program: &BTreeSet<&str>) {
        let missing: Vec<_> = program.difference(page).collect();
        let invented: Vec<_> = page.difference(program).collect();
        assert!(missing.is_empty(), "{} lacks {what}: {missing:?}", self.name);
        assert!(invented.is_empty(), "{} has {what} that the program has not: {invented:?}", self.name);
    }
}

fn after<'a>(line: &'a str, of: &str) -> Vec<&'a str> {
    // Two letters with a capital are a macro; so is the delimiter between alternatives.
    let is_macro = |word: &str| {
        let mut letters = word.chars();
        matches!((letters.next(), letters.next(), letters.next()), (Some('A'..='Z'), Some('a'..='z'), None))
    };
    let mut found = Vec::new();
    let mut inside = false;
    for word in line.trim_start_matches('.').split_whitespace() {
        if is_macro(word) {
            inside = word == of;
        } else if inside && word.chars().any(char::is_alphanumeric) {
            found.push(word);
        }
    }
    found
}
