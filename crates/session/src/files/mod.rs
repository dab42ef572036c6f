//! Files of a workspace for a server (KC-31). They are accessed through the mounts of the sandbox itself, so that a
//! server sees what the agent sees; only below the workspace, following no link, and without blocking on any file that
//! an agent has created.
//!
//! | module | contents |
//! |---|---|
//! | [`list`] | names of a directory, a part at a time |
//! | [`read`] | a range of a regular file |
//! | [`mod@write`] | replaces a whole file |

mod list;
mod read;
mod write;

pub use list::{DirectoryEntry, DirectoryListing};
pub use read::FileChunk;

use saggar_sys::beneath::FileKind;
use saggar_sys::error::{Code, Error, Result};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Longest path in bytes.
const MAX_PATH_LENGTH: usize = 4096;

/// A workspace, as the programs in its sandbox see it.
#[derive(Debug)]
pub struct Workspace {
    root: OwnedFd,
    /// Paths that the policy protects, in addition to the built-in ones.
    protected: Vec<PathBuf>,
}

impl Workspace {
    /// The workspace at `root`, a descriptor of its sandbox. It must be used with the user id of the sandbox's
    /// programs.
    pub fn new(root: OwnedFd, protected: Vec<PathBuf>) -> Self {
        Workspace { root, protected }
    }
}

/// Parses the path of a request: below the workspace, without `..`. An empty path, or `.`, is the workspace itself.
fn parse_workspace_path(path: &str) -> Result<PathBuf> {
    let wrong = |why: &str| {
        Err(Error::new(Code::Invalid, format!("path {} {why}", saggar_sys::text::quoted(path)))
            .hint("name it from the workspace on"))
    };
    if path.len() > MAX_PATH_LENGTH || path.contains('\0') {
        return wrong("is too long, or has a NUL");
    }
    let mut found = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => found.push(part),
            Component::CurDir => {}
            Component::ParentDir => return wrong("has .. in it"),
            Component::RootDir | Component::Prefix(_) => return wrong("is absolute"),
        }
    }
    Ok(found)
}

/// Error numbers that are caused by the state of the workspace.
const AGENT_ERRNOS: [i32; 12] = [
    libc::ENOENT,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::EACCES,
    libc::EPERM,
    libc::ENXIO,
    libc::EROFS,
    libc::EBUSY,
    libc::EINVAL,
    libc::ENOSPC,
    libc::EDQUOT,
    libc::ENAMETOOLONG,
];

/// The error of a file operation. Errors that the agent's files cause are not reported as failures of saggar.
fn file_error(verb: &str, path: &Path, error: &io::Error) -> Error {
    let path = super::diff::text::show_path(path);
    let (code, why) = match error.raw_os_error() {
        Some(libc::ELOOP) => (Code::Refused, "a link is on the way, and none is followed".to_owned()),
        Some(libc::EXDEV) => (Code::Refused, "it leads out of the workspace".to_owned()),
        Some(libc::EAGAIN) => (Code::Refused, "a program holds it, or moves it about".to_owned()),
        Some(number) if !AGENT_ERRNOS.contains(&number) => (Code::System, error.to_string()),
        _ => (Code::Refused, error.to_string()),
    };
    Error::new(code, format!("{verb} {path}: {why}"))
}

/// The file exists, and has another type than requested.
fn wrong_kind_error(kind: FileKind) -> io::Error {
    io::Error::other(format!("it is a {}", kind.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_the_workspace() {
        for (path, found) in
            [("", ""), (".", ""), ("./a//b/", "a/b"), ("a/./b", "a/b"), ("..a/b..", "..a/b..")]
        {
            assert_eq!(parse_workspace_path(path).unwrap(), Path::new(found), "{path}");
        }
        for path in ["..", "a/../b", "/etc/shadow", "/", "a\0b", &"x/".repeat(3000)] {
            assert_eq!(parse_workspace_path(path).unwrap_err().code(), Code::Invalid, "{path}");
        }
    }
}
