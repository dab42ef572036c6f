//! The text of the repository, for tests that read it: its files, and Rust code apart from comments and literals.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of Cargo.toml.
pub(crate) fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The regular files at any depth below `directory`, in any order.
pub(crate) fn files_below(directory: PathBuf) -> Vec<PathBuf> {
    let (mut directories, mut files) = (vec![directory], Vec::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files
}

/// The sources of the program and of the crates that it is made of, by the name of each.
pub(crate) const CRATES: [(&str, &str); 8] = [
    ("saggar", "src"),
    ("bridge", "crates/bridge/src"),
    ("egress", "crates/egress/src"),
    ("policy", "crates/policy/src"),
    ("remote", "crates/remote/src"),
    ("sandbox", "crates/sandbox/src"),
    ("session", "crates/session/src"),
    ("sys", "crates/sys/src"),
];

/// The Rust files of such a crate but those of `tests` and `…_tests` modules: each with its path below `src`, and its text.
pub(crate) fn crate_sources(src: &str) -> Vec<(PathBuf, String)> {
    let src = top().join(src);
    let rust =
        files_below(src.clone()).into_iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let named =
        rust.map(|file| (file.strip_prefix(&src).unwrap().to_owned(), fs::read_to_string(&file).unwrap()));
    let is_of_tests = |part: &OsStr| part == "tests" || part.to_string_lossy().ends_with("_tests");
    named.filter(|(path, _)| !path.with_extension("").iter().any(is_of_tests)).collect()
}

/// A stretch of Rust code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Code, with what makes the literal after it a raw one.
    Code(&'a str),
    /// A comment with its marks.
    Comment,
    /// A string literal: what its quotes enclose.
    Literal(&'a str),
    /// A character that could be taken for the start of something else.
    Character,
}

/// Rust code in pieces, in order.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, from) = rest.split_at(at);
        found.push(Piece::Code(before));
        let (piece, len) = piece(before, from);
        found.push(piece);
        rest = &from[len..];
    }
    found.push(Piece::Code(rest));
    found
}

/// The piece that begins with the quote or the slash of `from`, and its length; `before` is the code before it.
fn piece<'a>(before: &str, from: &'a str) -> (Piece<'a>, usize) {
    const CHARACTERS: [&str; 6] = ["'\"'", "'\\''", "'/'", "'{'", "'}'", "';'"];
    if from.starts_with("//") {
        (Piece::Comment, from.find('\n').unwrap_or(from.len()))
    } else if from.starts_with("/*") {
        (Piece::Comment, from.find("*/").map_or(from.len(), |at| at + 2))
    } else if let Some(quoted) = from.strip_prefix('"') {
        let (end, close) = literal_end(before, quoted);
        (Piece::Literal(&quoted[..end]), 1 + end + close)
    } else if let Some(character) = CHARACTERS.iter().find(|character| from.starts_with(**character)) {
        (Piece::Character, character.len())
    } else {
        // A division, or a lifetime, which has no end.
        (Piece::Code(&from[..1]), 1)
    }
}

/// Where a literal ends after its first quote, and how many bytes close it; `before` ends with what makes it a raw one.
fn literal_end(before: &str, quoted: &str) -> (usize, usize) {
    let unhashed = before.trim_end_matches('#');
    if unhashed.ends_with('r') {
        let close = format!("\"{}", &before[unhashed.len()..]);
        return (quoted.find(&close).expect("a literal ends"), close.len());
    }
    let mut escaped = false;
    let closes = |byte: u8| {
        let closes = !escaped && byte == b'"';
        escaped = !escaped && byte == b'\\';
        closes
    };
    (quoted.bytes().position(closes).expect("a literal ends"), 1)
}
