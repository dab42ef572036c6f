//! Files of a workspace for a server (KC-31). They are accessed through the mounts of the sandbox itself, so that a
//! server sees what the agent sees; only below the workspace, following no link, and without blocking on any file that
//! an agent has created.
//!
//! | module | contents |
//! |---|---|
//! | [`list`] | names of a directory, a part at a time |
//! | [`walk`] | names of a directory and everything below it, a part at a time |
//! | [`read`] | a range of a regular file |
//! | [`mod@write`] | replaces a whole file |
//! | [`remove`] | removes a file or a directory |
//! | [`unserved`] | the same for a session that no supervisor serves |

mod list;
mod read;
mod remove;
pub mod unserved;
mod walk;
mod write;

pub use list::{DirectoryEntry, DirectoryListing};
pub use read::FileChunk;
pub use walk::TreeListing;

use saggar_bridge::control::files::FileRequest;
use saggar_policy::{WorkspacePattern, protect};
use saggar_sys::beneath::FileKind;
use saggar_sys::error::{Code, Error, Result};
use serde_json::{Value, json};
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
    protected: Vec<WorkspacePattern>,
}

impl Workspace {
    /// The workspace at `root`, a descriptor of its sandbox. It must be used with the user id of the sandbox's
    /// programs.
    pub fn new(root: OwnedFd, protected: Vec<WorkspacePattern>) -> Self {
        Workspace { root, protected }
    }

    /// Performs a request; the result is that of the method on the control socket (saggar-control(7)).
    ///
    /// # Errors
    /// Those of the method that it calls.
    pub fn perform(&self, request: &FileRequest) -> Result<Value> {
        match request {
            FileRequest::List { path, after, limit } => {
                self.list(path, *after, *limit).map(|listing| json!(listing))
            }
            FileRequest::Walk { path, after, limit, exclude } => {
                self.walk(path, after.as_deref(), *limit, exclude).map(|listing| json!(listing))
            }
            FileRequest::Read { path, offset, limit, encoding } => {
                self.read(path, *offset, *limit, *encoding).map(|chunk| json!(chunk))
            }
            FileRequest::Write { path, content, parents, part } => {
                self.write(path, content, *parents, part.as_ref()).map(|()| json!({}))
            }
            FileRequest::Remove { path, recursive } => self.remove(path, *recursive).map(|()| json!({})),
        }
    }

    /// Why this path is protected, if it is.
    fn protection(&self, path: &Path) -> Option<&'static str> {
        let is_named = self.protected.iter().any(|entry| entry.covers(path));
        protect::protection_reason(path).or(is_named.then_some("the policy names it"))
    }

    fn check_unprotected(&self, verb: &str, path: &Path) -> Result<()> {
        match self.protection(path) {
            Some(why) => {
                let message =
                    format!("{verb} {}: it is protected: {why}", super::diff::text::show_path(path));
                Err(Error::new(Code::Refused, message))
            }
            None => Ok(()),
        }
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
const AGENT_ERRNOS: [i32; 13] = [
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
    libc::ENOTEMPTY,
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
