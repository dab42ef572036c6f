//! Entries of `files.hide` and `protect.paths`: paths below the workspace, and patterns of such paths (saggar-policy(5)).

use super::paths::{normalize, path_objection};
use super::value::{BadValue, text_value};
use globset::{GlobBuilder, GlobSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The characters that make an entry a pattern.
const PATTERN_CHARACTERS: [char; 4] = ['*', '?', '[', '{'];
/// Longest entry in bytes: that of a path (PATH_MAX).
const MAX_LENGTH: usize = 4096;

/// A path below the workspace, or a pattern of such paths.
#[derive(Debug, Clone)]
pub struct WorkspacePattern {
    /// As it is written, without `.` and doubled slashes.
    text: PathBuf,
    pattern: Option<GlobSet>,
}

impl WorkspacePattern {
    /// The entry as it is written. It is the path, relative to the workspace, unless this is a pattern.
    pub fn text(&self) -> &Path {
        &self.text
    }

    /// Whether it has to be searched for.
    pub fn has_wildcards(&self) -> bool {
        self.pattern.is_some()
    }

    /// Whether it names this path, relative to the workspace. A pattern also names the path that is written like it.
    pub fn matches(&self, path: &Path) -> bool {
        let is_matched = |pattern: &GlobSet| !path.as_os_str().is_empty() && pattern.is_match(path);
        path == self.text || self.pattern.as_ref().is_some_and(is_matched)
    }

    /// Whether it names this path, relative to the workspace, or a directory above it.
    pub fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|path| self.matches(path))
    }
}

/// A pattern without a slash matches names at any depth.
fn compile(text: &str) -> Result<GlobSet, globset::Error> {
    let anchored = if text.contains('/') { text.to_owned() } else { format!("**/{text}") };
    let glob = GlobBuilder::new(&anchored).literal_separator(true).backslash_escape(true).build()?;
    // A set of one: unlike a matcher, it reports a pattern that is too large.
    GlobSet::builder().add(glob).build()
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
        let pattern = match normalized.contains(PATTERN_CHARACTERS) {
            true => Some(compile(&normalized).map_err(|error| {
                let why = error.kind();
                BadValue(format!(
                    "{text:?} is no pattern: {why}; write \\ before a character that is part of a name"
                ))
            })?),
            false => None,
        };
        Ok(WorkspacePattern { pattern, text: path })
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
    fn what_is_no_pattern_is_refused() {
        let nested = format!("{}a{}", "{".repeat(1000), "}".repeat(1000));
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
            prop_assert!(pattern.matches(pattern.text()));
            let path: PathBuf = path.iter().filter(|name| !matches!(name.as_str(), "." | "..")).collect();
            prop_assert!(!pattern.matches(&path) || pattern.covers(&path.join("below")));
        }
    }
}
