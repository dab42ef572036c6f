//! Files of a workspace for a server (KC-31): through the mounts of the sandbox itself, so that a server sees what the
//! agent sees, below the workspace alone, over no link, and without waiting for anything that an agent has put there.
//!
//! | module | what it is |
//! |---|---|
//! | [`list`] | names of a directory, some at a time |
//! | [`read`] | a piece of a regular file |
//! | [`write`] | a whole file in the place of another |
//! | [`content`] | bytes as text, or as base64 (pure) |

pub mod content;
mod list;
mod read;
mod write;

pub use list::{Entry, Listing};
pub use read::Piece;

use super::beneath::Kind;
use crate::error::{Code, Error, Result};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// The longest path.
const LONGEST: usize = 4096;

/// A workspace, as the programs in its sandbox see it.
#[derive(Debug)]
pub struct Workspace {
    root: OwnedFd,
    /// What the policy protects beside what always is.
    protected: Vec<PathBuf>,
}

impl Workspace {
    /// The workspace that `root`, a descriptor of its sandbox, leads to; to be used by the user that its programs are.
    pub fn new(root: OwnedFd, protected: Vec<PathBuf>) -> Self {
        Workspace { root, protected }
    }
}

/// A path as a server names it: below the workspace, without `..`. Empty, or `.`, is the workspace itself.
fn plain(path: &str) -> Result<PathBuf> {
    let wrong = |why: &str| {
        Err(Error::new(Code::Invalid, format!("path {} {why}", crate::text::quoted(path)))
            .hint("name it from the workspace on"))
    };
    if path.len() > LONGEST || path.contains('\0') {
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

/// Error numbers that say how the workspace is.
const OF_THE_AGENT: [i32; 12] = [
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

/// Why a file is not as it would have to be. What an agent has made of it is no failure of ours.
fn refused(verb: &str, path: &Path, error: &io::Error) -> Error {
    let path = super::diff::text::path(path);
    let (code, why) = match error.raw_os_error() {
        Some(libc::ELOOP) => (Code::Refused, "a link is on the way, and none is followed".to_owned()),
        Some(libc::EXDEV) => (Code::Refused, "it leads out of the workspace".to_owned()),
        Some(libc::EAGAIN) => (Code::Refused, "a program holds it, or moves it about".to_owned()),
        Some(number) if !OF_THE_AGENT.contains(&number) => (Code::System, error.to_string()),
        _ => (Code::Refused, error.to_string()),
    };
    Error::new(code, format!("{verb} {path}: {why}"))
}

/// Something is there, and is not what was asked for.
fn is_a(kind: Kind) -> io::Error {
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
            assert_eq!(plain(path).unwrap(), Path::new(found), "{path}");
        }
        for path in ["..", "a/../b", "/etc/shadow", "/", "a\0b", &"x/".repeat(3000)] {
            assert_eq!(plain(path).unwrap_err().code(), Code::Invalid, "{path}");
        }
    }
}
