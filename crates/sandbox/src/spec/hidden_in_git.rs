//! git's view of files that the policy hides. A program finds an empty file there, and `git add -A` would record that the
//! file was emptied. A filter of the sandbox's own answers git with what the index has in place of what covers such a file
//! (gitattributes(5)). It says nothing of a file of that name that is not covered.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// git's settings for the whole system. Where a git looks for them was decided when it was built.
pub const CONFIG_VARIABLE: &str = "GIT_CONFIG_SYSTEM";
/// The value of [`CONFIG_VARIABLE`].
pub const CONFIG_PATH: &str = "/etc/gitconfig";
const ATTRIBUTES_PATH: &str = "/etc/gitattributes";

/// What covers a file is of another file system than the work tree; `%f` is the file's path, quoted, and the command
/// runs at the top of the work tree. A diff takes an empty file as it is, past the filter, and so shows nothing. The
/// settings that this file replaces for a git below /usr/local stay in force.
const CONFIG: &str = r#"[include]
	path = /usr/local/etc/gitconfig
[core]
	attributesFile = /etc/gitattributes
[sparse]
	expectFilesOutsideOfPatterns = true
[filter "saggar-hidden"]
	clean = "if test \"$(stat -c %d -- %f)\" = \"$(stat -c %d .)\"; then cat; else git cat-file blob :%f 2>/dev/null || cat; fi"
[diff "saggar-hidden"]
	command = true
"#;

/// The files that tell git of hidden paths, which are relative to the workspace: path and content.
pub(super) fn files<'a>(hidden: impl Iterator<Item = &'a Path>) -> Vec<(PathBuf, String)> {
    let attributes: String = hidden.map(attribute_lines).collect();
    if attributes.is_empty() {
        return Vec::new();
    }
    vec![(CONFIG_PATH.into(), CONFIG.to_owned()), (ATTRIBUTES_PATH.into(), attributes)]
}

/// A pattern is relative to the top of a work tree, and that can be any directory above the path.
fn attribute_lines(path: &Path) -> String {
    let mut lines = String::new();
    let mut rest = path.components();
    while !rest.as_path().as_os_str().is_empty() {
        let _ = writeln!(lines, "{} filter=saggar-hidden diff=saggar-hidden", pattern(rest.as_path()));
        rest.next();
    }
    lines
}

/// A pattern that matches this path alone: in double quotes, with escapes as in C (gitattributes(5)), of which the pattern
/// has its own (gitignore(5)).
fn pattern(path: &Path) -> String {
    let mut quoted = String::from("\"/");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'*' | b'?' | b'[' => {
                let _ = write!(quoted, "\\\\{}", char::from(*byte));
            }
            b'\\' => quoted.push_str("\\\\\\\\"),
            b'"' => quoted.push_str("\\\""),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            _ => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_path_is_named_from_every_directory_above_it() {
        let files = files([Path::new("a/b/.env"), Path::new("key")].into_iter());
        let lines: Vec<&str> = files[1].1.lines().collect();
        assert_eq!(
            lines,
            [
                "\"/a/b/.env\" filter=saggar-hidden diff=saggar-hidden",
                "\"/b/.env\" filter=saggar-hidden diff=saggar-hidden",
                "\"/.env\" filter=saggar-hidden diff=saggar-hidden",
                "\"/key\" filter=saggar-hidden diff=saggar-hidden"
            ]
        );
        assert!(super::files(std::iter::empty()).is_empty());
    }

    #[test]
    fn a_pattern_matches_nothing_but_its_path() {
        let path = Path::new(OsStr::from_bytes(b"a b\"*\\\n\xff"));
        assert_eq!(pattern(path), r#""/a b\"\\*\\\\\012\377""#);
    }
}
