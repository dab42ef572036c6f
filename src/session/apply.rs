//! Takes changes over into the folder. First everything is looked at and nothing is done when anything is refused;
//! then all new content is written beside it, in one directory that is removed again; and only then the folder
//! changes, name by name, each by one rename or unlink.
//!
//! ```text
//! check ─> stage (.saggar-apply/N: written, owned, synced) ─> delete, make directories, rename ─> directories' modes
//! ```
//! So a file is the old one or the new one at any moment. The tree as a whole is not: who is killed in the last part
//! leaves some names changed and others not, and the same command again does the rest.

use super::beneath::{self, Kind, Meta};
use super::diff::{Act, Change, Trees, text};
use super::manifest::{Known, Stamp};
use crate::error::{Code, Error, Result};
use nix::fcntl::{Flock, FlockArg};
use rustix::fs::{AtFlags, Gid, Mode, RenameFlags, Uid};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where new content waits, in the folder.
const STAGE: &str = ".saggar-apply";
/// How many reasons one message gives.
const REASONS: usize = 10;

/// What the operator allows.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    /// Names that are protected.
    pub protected: bool,
    /// To write over what has changed in the folder meanwhile.
    pub conflicts: bool,
}

/// Refuses what nobody takes over, or not unasked.
///
/// # Errors
/// [`Code::Refused`] with every reason.
pub fn check(changes: &[Change], allowed: &Allowed) -> Result<()> {
    let mut reasons: Vec<String> = Vec::new();
    let mut cures: BTreeSet<&str> = BTreeSet::new();
    for change in changes {
        let path = text::path(&change.path);
        if let Some(why) = &change.refused {
            reasons.push(format!("{path}: {why}"));
            cures.insert("name the other paths");
        } else if let Some(why) = change.protected.as_ref().filter(|_| !allowed.protected) {
            reasons.push(format!("{path}: it is protected: {why}"));
            cures.insert("read the change, then say --allow-protected");
        } else if let Some(why) = change.conflict.as_ref().filter(|_| !allowed.conflicts) {
            reasons.push(format!("{path}: {why}"));
            cures.insert("merge by hand, or say --force");
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let more = reasons.len().saturating_sub(REASONS);
    reasons.truncate(REASONS);
    let mut message = format!("apply changes, and nothing was done: {}", reasons.join("; "));
    if more > 0 {
        message.push_str(&format!("; and {more} more"));
    }
    let cures: Vec<&str> = cures.into_iter().collect();
    Err(Error::new(Code::Refused, message).hint(cures.join("; ")))
}

/// Does what [`check`] has let through. What was done is then known to the manifest of `trees`.
///
/// # Errors
/// [`Code::Refused`] when the folder is not as it was compared, and then nothing is done; [`Code::System`], saying how
/// far it came.
pub fn apply(trees: &mut Trees, changes: &[Change], allowed: &Allowed) -> Result<()> {
    let lock = trees.folder.try_clone().map_err(|e| Error::system("apply changes", e))?;
    let folder = trees.origin.folder.display().to_string();
    let _lock = Flock::lock(File::from(lock), FlockArg::LockExclusiveNonblock).map_err(|_| {
        Error::new(Code::Exists, format!("apply changes to {folder}: somebody else does just that"))
            .hint("try again when that is done")
    })?;
    let mut work = Work::new(trees, allowed)?;
    let staged = work.look(changes).and_then(|()| work.stage(changes));
    let done = staged.and_then(|()| work.change(changes));
    let tidied = beneath::remove(work.folder, STAGE)
        .map_err(|e| Error::system(format_args!("remove {folder}/{STAGE}"), e));
    let known = std::mem::take(&mut work.known);
    for (path, known) in known {
        trees.manifest.set(&path, known);
    }
    done.and(tidied)
}

struct Work<'a> {
    left: BorrowedFd<'a>,
    folder: BorrowedFd<'a>,
    root: Meta,
    allowed: &'a Allowed,
    /// What is known of a name now.
    known: Vec<(PathBuf, Option<Known>)>,
    is_root: bool,
}

fn fails(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = text::path(path);
    move |e| Error::system(format_args!("apply {path}"), e)
}

fn sys<T>(result: rustix::io::Result<T>) -> io::Result<T> {
    result.map_err(Into::into)
}

impl<'a> Work<'a> {
    fn new(trees: &'a Trees, allowed: &'a Allowed) -> Result<Self> {
        let folder = trees.folder.as_fd();
        Ok(Work {
            left: trees.left.as_fd(),
            folder,
            root: beneath::itself(folder).map_err(fails(Path::new("")))?,
            allowed,
            known: Vec::new(),
            is_root: nix::unistd::geteuid().is_root(),
        })
    }

    /// Whether the folder is as it was compared, and can take the changes.
    fn look(&self, changes: &[Change]) -> Result<()> {
        let made: BTreeSet<&Path> = changes
            .iter()
            .filter(|change| change.after.as_ref().is_some_and(|side| side.meta.kind == Kind::Directory))
            .map(|change| change.path.as_path())
            .collect();
        let gone: BTreeSet<&Path> = changes
            .iter()
            .filter(|change| change.act == Act::Deleted)
            .map(|change| change.path.as_path())
            .collect();
        for change in changes {
            let refuse = |why: &str| {
                let message = format!("apply {}: {why}; nothing was done", text::path(&change.path));
                Err(Error::new(Code::Refused, message).hint("look at the difference again"))
            };
            let (parent, name) = split(&change.path);
            let parent_fd = match beneath::directory(self.folder, parent) {
                Ok(opened) => opened,
                Err(_) if made.contains(parent) => continue,
                Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                    return refuse("a directory above it is a symbolic link in the folder");
                }
                Err(e) => return refuse(&format!("the directory above it cannot be opened: {e}")),
            };
            let above = beneath::itself(parent_fd.as_fd()).map_err(fails(&change.path))?;
            if above.device != self.root.device {
                return refuse("another file system is mounted there");
            }
            let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            if let Err(errno) = rustix::fs::accessat(&parent_fd, ".", access, AtFlags::EACCESS) {
                return refuse(&format!("the directory above it cannot be written: {errno}"));
            }
            let now = beneath::look(parent_fd.as_fd(), name).map_err(fails(&change.path))?;
            let was = change.before.as_ref().map(|side| Stamp::of(&side.meta));
            if change.act == Act::Added && gone.contains(change.path.as_path()) {
                continue;
            }
            if now.as_ref().map(Stamp::of) != was {
                return refuse("it has changed since it was compared");
            }
            let is_directory = now.is_some_and(|meta| meta.kind == Kind::Directory);
            if change.act == Act::Deleted && is_directory && !self.allowed.conflicts {
                let opened = beneath::directory(parent_fd.as_fd(), name).map_err(fails(&change.path))?;
                let names = beneath::names(opened.as_fd(), usize::MAX).map_err(fails(&change.path))?;
                if let Some(stays) =
                    names.iter().find(|name| !gone.contains(change.path.join(name).as_path()))
                {
                    let stays = text::name(stays);
                    return refuse(&format!("it is to be removed, and {stays} in it is not"));
                }
            }
        }
        Ok(())
    }

    /// Writes everything new beside the folder's names.
    fn stage(&self, changes: &[Change]) -> Result<()> {
        let root = Path::new(STAGE);
        beneath::remove(self.folder, root).map_err(fails(root))?;
        sys(rustix::fs::mkdirat(self.folder, root, Mode::RWXU)).map_err(fails(root))?;
        let stage = beneath::directory(self.folder, root).map_err(fails(root))?;
        for (number, change) in changes.iter().enumerate() {
            let Some(after) = &change.after else { continue };
            let fail = fails(&change.path);
            let name = number.to_string();
            let owner = match &change.before {
                Some(before) if before.meta.kind != Kind::Directory => before.meta.owner,
                _ => self.root.owner,
            };
            if after.meta.kind == Kind::Directory {
                if change.act == Act::Added {
                    let mode = Mode::from_raw_mode(after.meta.mode & 0o1777);
                    let make = || {
                        rustix::fs::mkdirat(&stage, name.as_str(), Mode::RWXU)?;
                        rustix::fs::chmodat(&stage, name.as_str(), mode | Mode::RWXU, AtFlags::empty())
                    };
                    sys(make()).map_err(&fail)?;
                    self.own(stage.as_fd(), Path::new(&name), self.root.owner).map_err(&fail)?;
                }
                continue;
            }
            if after.meta.kind == Kind::Link {
                let target = after.target.as_deref().unwrap_or(Path::new(""));
                sys(rustix::fs::symlinkat(target, &stage, name.as_str())).map_err(&fail)?;
            } else {
                let (mut source, meta) = beneath::file(self.left, &change.path).map_err(&fail)?;
                if Stamp::of(&meta) != Stamp::of(&after.meta) {
                    let message = format!(
                        "apply {}: it changes while it is read; nothing was done",
                        text::path(&change.path)
                    );
                    return Err(Error::new(Code::Refused, message).hint("end the session first"));
                }
                let mut target = beneath::create(stage.as_fd(), &name, 0o600).map_err(&fail)?;
                io::copy(&mut source, &mut target).map_err(&fail)?;
                let mode = Mode::from_raw_mode(meta.mode & 0o777);
                sys(rustix::fs::fchmod(&target, mode)).map_err(&fail)?;
            }
            self.own(stage.as_fd(), Path::new(&name), owner).map_err(&fail)?;
        }
        // One for all: a rename of what is not on disk yet could leave an empty file after a crash.
        sys(rustix::fs::syncfs(self.folder)).map_err(fails(root))
    }

    /// As root what is made in somebody's folder belongs to that somebody.
    fn own(&self, at: BorrowedFd<'_>, name: &Path, owner: (u32, u32)) -> io::Result<()> {
        if !self.is_root {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
        sys(rustix::fs::chownat(at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
    }

    fn change(&mut self, changes: &[Change]) -> Result<()> {
        let stage = beneath::directory(self.folder, STAGE).map_err(fails(Path::new(STAGE)))?;
        let total = changes.len();
        let mut done = 0;
        let mut step = |result: Result<()>| {
            result.map_err(|e| {
                let what =
                    format!("{done} of {total} changes are made; the same command again does the rest");
                e.hint(what)
            })?;
            done += 1;
            Ok::<(), Error>(())
        };
        // What is below goes first; and everything that goes, goes before anything comes.
        for change in changes.iter().rev().filter(|change| change.act == Act::Deleted) {
            step(self.delete(change).map_err(fails(&change.path)))?;
        }
        for (number, change) in changes.iter().enumerate().filter(|(_, change)| change.after.is_some()) {
            let name = number.to_string();
            step(self.put(change, stage.as_fd(), Path::new(&name)).map_err(fails(&change.path)))?;
        }
        // Last and from below: a mode may keep even us out.
        for change in changes.iter().rev() {
            if let Some(after) = change.after.as_ref().filter(|side| side.meta.kind == Kind::Directory) {
                let set = || -> io::Result<()> {
                    let opened = beneath::directory(self.folder, &change.path)?;
                    sys(rustix::fs::fchmod(&opened, Mode::from_raw_mode(after.meta.mode & 0o1777)))
                };
                set().map_err(fails(&change.path))?;
            }
        }
        for change in changes.iter() {
            self.learn(change).map_err(fails(&change.path))?;
        }
        sys(rustix::fs::syncfs(self.folder)).map_err(fails(Path::new("")))
    }

    fn parent(&self, path: &Path) -> io::Result<OwnedFd> {
        beneath::directory(self.folder, split(path).0)
    }

    fn delete(&mut self, change: &Change) -> io::Result<()> {
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        let is_directory = change.before.as_ref().is_some_and(|side| side.meta.kind == Kind::Directory);
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&parent, name, flags) {
            // What is not the agent's keeps its directory, also by force.
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(rustix::io::Errno::NOTEMPTY) if self.allowed.conflicts => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn put(&mut self, change: &Change, stage: BorrowedFd<'_>, staged: &Path) -> io::Result<()> {
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        let is_directory = change.after.as_ref().is_some_and(|side| side.meta.kind == Kind::Directory);
        match (change.act, is_directory) {
            (Act::Added, _) => {
                sys(rustix::fs::renameat_with(stage, staged, &parent, name, RenameFlags::NOREPLACE))
            }
            (_, true) => Ok(()),
            (_, false) => sys(rustix::fs::renameat(stage, staged, &parent, name)),
        }
    }

    fn learn(&mut self, change: &Change) -> io::Result<()> {
        let known = match &change.after {
            None => None,
            Some(after) => {
                let parent = self.parent(&change.path)?;
                let (_, name) = split(&change.path);
                beneath::look(parent.as_fd(), name)?.map(|meta| Known::of(&meta, &after.meta))
            }
        };
        self.known.push((change.path.clone(), known));
        Ok(())
    }
}

/// The directory of a name, and the name.
pub(super) fn split(path: &Path) -> (&Path, &Path) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().map_or(path, Path::new))
}
