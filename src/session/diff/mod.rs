//! What an agent changed: the names that differ between its workspace and the folder that this was made from.
//!
//! ```text
//! overlay   <session>/upper/changes   against the folder that lies under it   (overlay.rs)
//! copy      <session>/workspace       against the folder it was copied from   (copied.rs)
//! ```
//! Nothing is followed and everything is bounded. What cannot be compared or must not be taken over is in the list
//! too, with the reason.

mod copied;
mod links;
mod overlay;
pub mod patch;
pub mod text;

pub(super) use overlay::{hidden_by, is_opaque, is_whiteout};

use super::beneath::{self, Kind, Meta};
use super::manifest::Manifest;
use super::workspace::{Origin, Place};
use crate::error::{Code, Error, Result};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How many names are looked at, on both sides together.
const MAX_NAMES: usize = 1_000_000;
/// How deep a tree is looked into.
const MAX_DEPTH: usize = 128;

/// What was done to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// It is there no more. Before the others: what was removed may be there again as something else.
    Deleted,
    /// It was not there.
    Added,
    /// Its content, its target or its mode is another.
    Modified,
}

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// What it is.
    pub meta: Meta,
    /// What a link says.
    pub target: Option<PathBuf>,
}

/// One name that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Below the workspace.
    pub path: PathBuf,
    /// What was done to it.
    pub act: Act,
    /// What the folder has.
    pub before: Option<Side>,
    /// What the agent left.
    pub after: Option<Side>,
    /// Why it must be taken over by nobody: what it is, or that it cannot be read.
    pub refused: Option<String>,
    /// What was done to it in the folder meanwhile.
    pub conflict: Option<String>,
    /// Why it is protected.
    pub protected: Option<String>,
    /// Where the link leads that it is, when not to an ordinary name of the folder.
    pub leads_out: Option<String>,
}

/// The trees of a workspace, open.
#[derive(Debug)]
pub struct Trees {
    /// What the agent left: the upper layer, or the copy.
    pub left: OwnedFd,
    /// The directory of that which is the session's: of an overlay the one above it.
    pub place: OwnedFd,
    /// The folder.
    pub folder: OwnedFd,
    /// What is known of its names.
    pub manifest: Manifest,
    /// What it was made of.
    pub origin: Origin,
}

impl Trees {
    /// Opens them.
    ///
    /// # Errors
    /// [`Code::Invalid`] when one is not there; [`Code::System`].
    pub fn open(session: &Path, origin: Origin) -> Result<Self> {
        let place = match origin.place {
            Place::Overlay => session.join("upper"),
            Place::Copy => session.join("workspace"),
        };
        let open = |path: &Path| beneath::root(path).map_err(|e| cannot_open(path, &e));
        let folder = open(&origin.folder)?;
        let opened = open(&place)?;
        let left = match origin.place {
            Place::Overlay => beneath::directory(opened.as_fd(), "changes"),
            Place::Copy => opened.try_clone(),
        };
        let left = left.map_err(|e| cannot_open(&place, &e))?;
        Ok(Trees { folder, left, place: opened, manifest: Manifest::load(session), origin })
    }

    /// The same trees again.
    ///
    /// # Errors
    /// [`Code::System`] when there are too many descriptors.
    pub fn try_clone(&self) -> Result<Self> {
        let again = |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::system("open the trees again", e));
        let (left, place, folder) = (again(&self.left)?, again(&self.place)?, again(&self.folder)?);
        Ok(Trees { left, place, folder, manifest: self.manifest.clone(), origin: self.origin.clone() })
    }
}

fn cannot_open(path: &Path, error: &io::Error) -> Error {
    let code = if error.kind() == io::ErrorKind::NotFound { Code::Invalid } else { Code::System };
    Error::new(code, format!("open {}: {error}", path.display()))
}

/// Every difference, in the order of the paths, a directory before what is in it.
///
/// # Errors
/// [`Code::Invalid`] for trees that are too large; [`Code::System`] naming what cannot be read in the folder.
pub fn compare(trees: &Trees) -> Result<Vec<Change>> {
    let mut found = Found { changes: Vec::new(), room: MAX_NAMES };
    let (left, folder) = (trees.left.as_fd(), trees.folder.as_fd());
    match trees.origin.place {
        Place::Overlay => overlay::compare(&mut found, left, folder, trees)?,
        Place::Copy => copied::compare(&mut found, left, folder, trees)?,
    }
    let mut changes = found.changes;
    for change in &mut changes {
        change.protected = trees.origin.protects(change);
        change.leads_out = links::leads_out(change, trees);
        if change.refused.is_none()
            && let Some(after) = &change.after
        {
            change.refused = unfit(&after.meta);
        }
    }
    bare_repositories(&mut changes);
    changes.sort_by(|one, other| (&one.path, one.act).cmp(&(&other.path, other.act)));
    Ok(changes)
}

/// Why nobody takes this over.
fn unfit(meta: &Meta) -> Option<String> {
    match meta.kind {
        Kind::Other(name) => Some(format!("it is a {name}")),
        _ if meta.has_set_id() => Some(format!("it has a set-id bit (mode {:o})", meta.mode)),
        _ => None,
    }
}

/// A bare repository is one by the names in it: git obeys the `config` of the directory that it is started in.
fn bare_repositories(changes: &mut [Change]) {
    let made: std::collections::BTreeSet<PathBuf> =
        changes.iter().filter(|change| change.after.is_some()).map(|change| change.path.clone()).collect();
    for change in changes.iter_mut().filter(|change| change.path.ends_with("config")) {
        let Some(parent) = change.path.parent() else { continue };
        let has = |name: &str| made.contains(&parent.join(name));
        if change.protected.is_none() && (has("HEAD") || has("objects")) {
            change.protected =
                Some("with what is beside it, it makes a git repository of a directory".into());
        }
    }
}

struct Found {
    changes: Vec<Change>,
    room: usize,
}

impl Found {
    /// The names of a directory, while there is room.
    fn names(&mut self, directory: BorrowedFd<'_>, path: &Path) -> Result<Vec<OsString>> {
        let names = beneath::names(directory, self.room).map_err(|e| {
            if self.room < MAX_NAMES && e.raw_os_error().is_none() {
                let message = format!("compare {}: more than {MAX_NAMES} names", text::path(path));
                return Error::new(Code::Invalid, message);
            }
            fails(path, &e)
        })?;
        self.room -= names.len();
        Ok(names)
    }

    fn push(
        &mut self,
        path: &Path,
        act: Act,
        before: Option<Side>,
        after: Option<Side>,
        conflict: Option<&str>,
    ) {
        let conflict = conflict.map(str::to_owned);
        let path = path.to_owned();
        self.changes.push(Change {
            path,
            act,
            before,
            after,
            refused: None,
            conflict,
            protected: None,
            leads_out: None,
        });
    }

    /// A name that is in the workspace and cannot be looked into.
    fn refuse(&mut self, path: &Path, act: Act, before: Option<Side>, after: Side, why: String) {
        self.push(path, act, before, Some(after), None);
        if let Some(last) = self.changes.last_mut() {
            last.refused = Some(why);
        }
    }
}

/// A side of a change.
fn side(at: BorrowedFd<'_>, name: impl AsRef<Path>, meta: Meta) -> Side {
    let target = (meta.kind == Kind::Link).then(|| beneath::link(at, name).ok()).flatten();
    Side { meta, target }
}

fn fails(path: &Path, error: &io::Error) -> Error {
    Error::system(format_args!("compare {}", text::path(path)), error)
}

/// Whether two names are the same to whoever reads them. Errors are those of the workspace's side: what is there may
/// be closed even to its owner.
fn is_same(left: (BorrowedFd<'_>, &Side), folder: (BorrowedFd<'_>, &Side), name: &Path) -> io::Result<bool> {
    let (a, b) = (&left.1.meta, &folder.1.meta);
    if a.kind != b.kind || (a.kind != Kind::Link && a.mode & 0o7777 != b.mode & 0o7777) {
        return Ok(false);
    }
    match a.kind {
        Kind::Link => Ok(left.1.target == folder.1.target && left.1.target.is_some()),
        Kind::File if a.size != b.size => Ok(false),
        Kind::File => {
            let (one, _) = beneath::file(left.0, name)?;
            let (other, _) = beneath::file(folder.0, name)?;
            beneath::is_same(&one, &other)
        }
        Kind::Directory => Ok(true),
        Kind::Other(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests;
