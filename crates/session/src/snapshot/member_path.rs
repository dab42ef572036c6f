//! Paths of archive members, when written and when read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest path of a member in bytes: a system call's limit, less some room for the directory above it.
pub(super) const MAX_MEMBER_PATH: usize = 4000;

/// Parses the path of a member: relative, plain names only, of bounded length.
pub(super) fn parse_member_path(bytes: &[u8]) -> Result<PathBuf, &'static str> {
    let bytes = bytes.strip_prefix(b"./").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
    if bytes.len() > MAX_MEMBER_PATH {
        return Err("its name is too long");
    }
    for part in bytes.split(|byte| *byte == b'/') {
        match part {
            b"" if bytes.first() == Some(&b'/') => return Err("its name is absolute"),
            b"" => return Err("its name has an empty part"),
            b"." => return Err("its name has a part that is ."),
            b".." => return Err("its name leads out"),
            part if part.len() > 255 => return Err("a part of its name is too long"),
            part if part.contains(&0) => return Err("its name has a NUL byte"),
            _ => {}
        }
    }
    let path = Path::new(OsStr::from_bytes(bytes));
    let first = path.components().next().map(|part| part.as_os_str().as_bytes());
    match first {
        Some(b"workspace" | b"changes" | b"home") => Ok(path.to_owned()),
        Some(b"saggar.json") if path.components().count() == 1 => Ok(path.to_owned()),
        _ => Err("it is in none of the trees of a session"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_below_a_known_tree() {
        for name in
            ["workspace", "workspace/", "./workspace/a b/c", "changes/x", "home/.claude", "saggar.json"]
        {
            assert!(parse_member_path(name.as_bytes()).is_ok(), "{name}");
        }
        assert!(parse_member_path(b"workspace/\xff").is_ok());
        for name in [
            "",
            "/",
            "/workspace/x",
            "..",
            "workspace/../../etc/passwd",
            "workspace//x",
            "workspace/./x",
            "other",
            "saggar.json/x",
            "workspace/\0",
            "../workspace",
        ] {
            assert!(parse_member_path(name.as_bytes()).is_err(), "{name:?}");
        }
        assert!(parse_member_path(format!("workspace/{}", "x".repeat(256)).as_bytes()).is_err());
        assert!(parse_member_path("workspace/x".repeat(500).as_bytes()).is_err());
    }
}
