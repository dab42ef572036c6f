//! Entries of `files.hide` and `protect.paths`: paths below the workspace, and patterns of such paths (saggar-policy(5)).

use super::paths::{normalize, path_objection};
use super::value::{BadValue, text_value};
use globset::{Glob, GlobBuilder, GlobSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The characters that make an entry a pattern.
const PATTERN_CHARACTERS: [char; 4] = ['*', '?', '[', '{'];
/// Longest entry in bytes: that of a path (PATH_MAX).
const MAX_LENGTH: usize = 4096;

/// A path below the workspace, or a pattern of such paths.
#[derive(Debug, Clone)]
pub struct WorkspacePattern {
    /// As it is written, without `.` and doubled slashes; a pattern without another slash keeps `./`.
    text: PathBuf,
    wildcards: Option<Wildcards>,
}

#[derive(Debug, Clone)]
struct Wildcards {
    /// The pattern, and the path that is written like it.
    globs: [Glob; 2],
    matched: GlobSet,
    /// The directories that what it matches can be in, for a pattern that begins at the workspace.
    above: GlobSet,
}

impl WorkspacePattern {
    /// The entry as it is written. It is the path, relative to the workspace, unless this is a pattern.
    pub fn text(&self) -> &Path {
        &self.text
    }

    /// Whether it has to be searched for.
    pub fn has_wildcards(&self) -> bool {
        self.wildcards.is_some()
    }

    /// Whether it names this path, relative to the workspace.
    pub fn matches(&self, path: &Path) -> bool {
        match &self.wildcards {
            Some(wildcards) => !path.as_os_str().is_empty() && wildcards.matched.is_match(path),
            None => path == self.text,
        }
    }

    /// Whether it names this path, relative to the workspace, or a directory above it.
    pub fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|path| self.matches(path))
    }

    /// Whether what it names can be below this path, relative to the workspace. A pattern that matches at any depth needs no
    /// directory, and so has none.
    pub fn can_be_below(&self, path: &Path) -> bool {
        match &self.wildcards {
            Some(wildcards) => wildcards.above.is_match(path),
            None => path != self.text && self.text.starts_with(path),
        }
    }
}

impl Wildcards {
    fn compile(text: &str) -> Result<Self, globset::Error> {
        let (pattern, literal) = match text.strip_prefix("./") {
            Some(name) => (name.to_owned(), name),
            None if text.contains('/') => (text.to_owned(), text),
            None => (format!("**/{text}"), text),
        };
        let globs = [glob(&pattern)?, glob(&escape(literal))?];
        Ok(Wildcards { matched: set(&globs)?, above: Wildcards::above(&pattern), globs })
    }

    /// A directory that is not known, as of a slash between braces, can be any one.
    fn above(pattern: &str) -> GlobSet {
        let directories = Path::new(pattern).ancestors().skip(1).map(Path::to_string_lossy);
        let globs: Result<Vec<Glob>, _> =
            directories.filter(|text| !text.is_empty() && *text != "**").map(|text| glob(&text)).collect();
        let any = || glob("**").and_then(|any| set(&[any])).unwrap_or_else(|_| GlobSet::empty());
        globs.and_then(|globs| set(&globs)).unwrap_or_else(|_| any())
    }
}

fn glob(text: &str) -> Result<Glob, globset::Error> {
    let mut builder = GlobBuilder::new(text);
    builder.literal_separator(true).backslash_escape(true).empty_alternates(true).build()
}

/// The glob of this text alone. That of [`globset::escape`] has no escape for a backslash.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Unlike a single matcher, a set reports a pattern that is too large.
fn set(globs: &[Glob]) -> Result<GlobSet, globset::Error> {
    let mut builder = GlobSet::builder();
    for glob in globs {
        builder.add(glob.clone());
    }
    builder.build()
}

/// The patterns of a list, which are compared with a path together.
#[derive(Debug)]
pub struct PatternSet {
    set: GlobSet,
    /// For each glob of the set, the place of its pattern in the list.
    places: Vec<usize>,
}

impl PatternSet {
    /// The patterns of these entries; paths are left out.
    ///
    /// # Errors
    /// Fails if they are too large together.
    pub fn new<'a>(entries: impl Iterator<Item = &'a WorkspacePattern>) -> Result<Self, BadValue> {
        let (mut globs, mut places) = (Vec::new(), Vec::new());
        for (place, entry) in entries.enumerate() {
            for glob in entry.wildcards.iter().flat_map(|wildcards| &wildcards.globs) {
                globs.push(glob.clone());
                places.push(place);
            }
        }
        let set =
            set(&globs).map_err(|error| BadValue(format!("the patterns are too large together: {error}")))?;
        Ok(PatternSet { set, places })
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The places in the list of the patterns that match this path, which is relative to the workspace and not empty.
    pub fn matching(&self, path: &Path) -> impl Iterator<Item = usize> {
        self.set.matches(path).into_iter().filter_map(|glob| self.places.get(glob).copied())
    }
}

/// The reason why a pattern would not match what it seems to. Names are bytes, and so is what brackets stand for.
fn bracket_objection(text: &str) -> Option<&'static str> {
    let (_, rest) = text.split_once('[')?;
    let (inside, _) = rest.rsplit_once(']')?;
    (!inside.is_ascii()).then_some("has a character outside of ASCII between brackets; use {é,è} instead")
}

impl FromStr for WorkspacePattern {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| Err(BadValue(format!("{text:?} {why}; write a path below the workspace")));
        let path = normalize(Path::new(text));
        match path_objection(Path::new(text)) {
            Some(why) => return bad(why),
            None if path.is_absolute() => return bad("is absolute"),
            None if path.as_os_str().is_empty() => return bad("is the workspace itself"),
            None if text.len() > MAX_LENGTH => return bad("has more than 4096 bytes"),
            None => {}
        }
        // It came from UTF-8.
        let normalized = path.to_string_lossy();
        if !normalized.contains(PATTERN_CHARACTERS) {
            return Ok(WorkspacePattern { text: path, wildcards: None });
        }
        if let Some(why) = bracket_objection(&normalized) {
            return Err(BadValue(format!("{text:?} {why}")));
        }
        let is_of_top = Path::new(text).components().next() == Some(Component::CurDir);
        let written = match is_of_top && !normalized.contains('/') {
            true => format!("./{normalized}"),
            false => normalized.into_owned(),
        };
        let wildcards = Wildcards::compile(&written).map_err(|error| {
            let why = error.kind();
            BadValue(format!(
                "{text:?} is no pattern: {why}; write \\ before a character that is part of a name"
            ))
        })?;
        Ok(WorkspacePattern { text: written.into(), wildcards: Some(wildcards) })
    }
}

impl PartialEq for WorkspacePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for WorkspacePattern {}

impl fmt::Display for WorkspacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.display())
    }
}

impl serde::Serialize for WorkspacePattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

text_value!(WorkspacePattern, { "type": "string", "description": "a path below the workspace, or a pattern of paths with *, **, ?, [a-z] and {a,b}; a pattern without a slash matches names at any depth", "pattern": "^[^/]" });

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn entry(text: &str) -> WorkspacePattern {
        text.parse().unwrap()
    }

    #[test]
    fn grammar_of_patterns() {
        for (pattern, matched, unmatched) in [
            ("*.env", &[".env", "a.env", "a/b/.env", "*.env"][..], &[".env.local", "a.env/b", "env"][..]),
            (".env*", &[".env", ".env.local", "a/.env"], &["a.env"]),
            ("conf/*.key", &["conf/a.key"], &["a.key", "x/conf/a.key", "conf/a/b.key"]),
            ("**/*.key", &["a.key", "a/b/c.key"], &["a.keys"]),
            ("conf/**", &["conf/a", "conf/a/b"], &["conf", "x/conf/a"]),
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["b", "x/a/b"]),
            ("key?", &["key1", "a/keys"], &["key", "key12"]),
            ("key[0-9]", &["key1", "key[0-9]"], &["keya", "key0-9"]),
            ("key[!0-9]", &["keya"], &["key1"]),
            ("*.{pem,key}", &["a.pem", "d/a.key"], &["a.pem,key"]),
            (r"\*.env", &["*.env", "a/*.env"], &["a.env"]),
            ("app/[slug]/page.tsx", &["app/[slug]/page.tsx", "app/s/page.tsx"], &["app/slug/page.tsx"]),
            ("./a//*.x", &["a/b.x"], &["b.x"]),
            ("./*.x", &["a.x"], &["a/b.x"]),
            (".env{,.local}", &[".env", "a/.env.local"], &[".env.x"]),
            ("{a/b,c}", &["a/b", "c"], &["x/c"]),
            ("**", &["a", "a/b"], &[]),
        ] {
            let entry = entry(pattern);
            assert!(entry.has_wildcards(), "{pattern}");
            for path in matched {
                assert!(entry.matches(Path::new(path)), "{pattern} does not match {path}");
            }
            for path in unmatched {
                assert!(!entry.matches(Path::new(path)), "{pattern} matches {path}");
            }
            assert!(!entry.matches(Path::new("")), "{pattern} matches the workspace");
        }
        // A name is bytes.
        assert!(entry("*.env").matches(Path::new(OsStr::from_bytes(b"\xff.env"))));
    }

    #[test]
    fn path_names_itself_alone() {
        for (text, path) in [("./a//b/", "a/b"), (".git/hooks", ".git/hooks"), ("..a", "..a")] {
            let entry = entry(text);
            assert!(entry.text() == Path::new(path) && entry.matches(Path::new(path)), "{text}");
        }
        let entry = entry(r"a\b/c");
        assert!(!entry.has_wildcards() && entry.matches(Path::new(r"a\b/c")));
        assert!(!entry.matches(Path::new("ab/c")) && !entry.matches(Path::new(r"x/a\b/c")));
    }

    #[test]
    fn what_is_below_is_covered() {
        let secrets = entry("secret*");
        for covered in ["secrets", "secrets/a", "a/secret/b/c"] {
            assert!(secrets.covers(Path::new(covered)), "{covered}");
        }
        assert!(!secrets.covers(Path::new("a/b")) && !secrets.covers(Path::new("")));
        assert!(entry("a/b").covers(Path::new("a/b/c")) && !entry("a/b").covers(Path::new("a/bc")));
    }

    #[test]
    fn directories_of_what_is_named() {
        for (text, above, other) in [
            ("ci/build/x", &["ci", "ci/build"][..], &["ci/build/x", "c", "x"][..]),
            ("ci/**", &["ci"], &["c", "x/ci"]),
            ("a*/**/b/c", &["a", "ax", "a/x/y", "a/b"], &["b"]),
            ("**/a/b", &["a", "x/a"], &["x", "b"]),
            ("*.lock", &[], &["a", "a/b"]),
            ("{a/b,c}/d", &["a/b", "c", "anything"], &[]),
        ] {
            let entry = entry(text);
            assert!(above.iter().all(|path| entry.can_be_below(Path::new(path))), "{text}");
            assert!(other.iter().all(|path| !entry.can_be_below(Path::new(path))), "{text}");
        }
    }

    #[test]
    fn patterns_of_a_list_are_found_by_their_place() {
        let list = ["*.a", "b", "x/*", "*.{a,b}"].map(entry);
        let set = PatternSet::new(list.iter()).unwrap();
        let matching = |path: &str| {
            let mut places: Vec<usize> = set.matching(Path::new(path)).collect();
            places.sort_unstable();
            places.dedup();
            places
        };
        assert_eq!(matching("x/n.a"), [0, 2, 3]);
        assert_eq!(matching("b"), [0_usize; 0]);
        assert_eq!((matching("*.a"), matching("c.b")), (vec![0, 3], vec![3]));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let nested = format!("{}a{}", "{".repeat(1000), "}".repeat(1000));
        for text in ["[é].env", "a[!à-è]"] {
            let error = text.parse::<WorkspacePattern>().unwrap_err().to_string();
            assert!(error.contains("ASCII"), "{error}");
        }
        assert!(entry("[a]é").matches(Path::new("aé")));
        for text in ["[a", "a/{b", "{a}}", "[z-a]", &nested] {
            let error = text.parse::<WorkspacePattern>().unwrap_err().to_string();
            assert!(error.contains("is no pattern") && error.contains('\\'), "{error}");
        }
        assert!("*".repeat(5000).parse::<WorkspacePattern>().is_err());
        assert!("a".repeat(5000).parse::<WorkspacePattern>().is_err());
        for text in ["", "/a", "../a", "a/../b", ".", "a\0b"] {
            assert!(text.parse::<WorkspacePattern>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_text_is_a_pattern_or_refused(text in r"[a*?\[\]{},!/\\.-]{1,24}", path in vec("[a-c.*]{1,3}", 1..4)) {
            let Ok(pattern) = text.parse::<WorkspacePattern>() else { return Ok(()) };
            let written = pattern.text().strip_prefix(".").unwrap_or(pattern.text());
            prop_assert!(pattern.matches(written));
            let path: PathBuf = path.iter().filter(|name| !matches!(name.as_str(), "." | "..")).collect();
            prop_assert!(!pattern.matches(&path) || pattern.covers(&path.join("below")));
        }
    }
}
