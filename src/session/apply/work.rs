//! The parts of an `apply`: what is looked at, what is written, what is changed.

use super::super::beneath::{self, Kind, Meta};
use super::super::diff::{Act, Change, Side, Trees, text};
use super::super::make::{self, NewFile};
use super::super::manifest::{Known, Stamp};
use super::{Allowed, STAGE, fails, split};
use crate::error::{Code, Error, Result};
use crate::sys::caps;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::{AtFlags, Mode, RenameFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How many new files are open at once; each of those beyond is written when its turn comes.
const OPEN_AT_MOST: u64 = 1 << 16;
/// Descriptors for everything else.
const SPARE: u64 = 128;

/// New content by the number of its change.
pub(super) type Written = BTreeMap<usize, NewFile>;

pub(super) struct Work<'a> {
    left: BorrowedFd<'a>,
    folder: BorrowedFd<'a>,
    root: Meta,
    allowed: &'a Allowed,
    /// What is known of a name now.
    pub known: Vec<(PathBuf, Option<Known>)>,
    /// Whether it gives what it makes to other owners.
    gives: bool,
}

fn sys<T>(result: rustix::io::Result<T>) -> io::Result<T> {
    result.map_err(Into::into)
}

fn is_directory(side: Option<&Side>) -> bool {
    side.is_some_and(|side| side.meta.kind == Kind::Directory)
}

impl<'a> Work<'a> {
    pub(super) fn new(trees: &'a Trees, root: Meta, allowed: &'a Allowed) -> Self {
        Work {
            left: trees.left.as_fd(),
            folder: trees.folder.as_fd(),
            root,
            allowed,
            known: Vec::new(),
            gives: caps::has(caps::CHOWN),
        }
    }

    /// Whether the folder is as it was compared, and can take the changes.
    pub(super) fn look(&self, changes: &[Change]) -> Result<()> {
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
            let parent_fd = match beneath::directory_here(self.folder, parent) {
                Ok(opened) => opened,
                Err(_) if made.contains(parent) => continue,
                Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                    return refuse("a directory above it is a symbolic link in the folder");
                }
                Err(e) if e.raw_os_error() == Some(libc::EXDEV) => {
                    return refuse("another file system is mounted there");
                }
                Err(e) => return refuse(&format!("the directory above it cannot be opened: {e}")),
            };
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

    /// Writes the new files, as many as can be open at once.
    pub(super) fn write(&self, changes: &[Change]) -> Result<Written> {
        beneath::remove(self.folder, STAGE).map_err(fails(Path::new(STAGE)))?;
        let files = changes
            .iter()
            .enumerate()
            .filter(|(_, change)| change.after.as_ref().is_some_and(|after| after.meta.kind == Kind::File));
        let mut written = Written::new();
        for (number, change) in files.take(room()) {
            written.insert(number, self.content(change)?);
        }
        // One for all: a rename of what is not on disk yet could leave an empty file after a crash.
        sys(rustix::fs::syncfs(self.folder)).map_err(fails(Path::new("")))?;
        Ok(written)
    }

    /// The file that a change leaves, without a name.
    fn content(&self, change: &Change) -> Result<NewFile> {
        let fail = fails(&change.path);
        let (mut source, meta) = beneath::file(self.left, &change.path).map_err(&fail)?;
        if change.after.as_ref().is_none_or(|after| Stamp::of(&meta) != Stamp::of(&after.meta)) {
            let path = text::path(&change.path);
            let message = format!("apply {path}: it changes while it is read; nothing was done");
            return Err(Error::new(Code::Refused, message).hint("end the session first"));
        }
        let mut write = || {
            let mut new = make::file(self.folder)?;
            // It may grow meanwhile: no more than what was looked at.
            let copied = io::copy(&mut io::Read::take(&mut source, meta.size), &mut new.file)?;
            if copied != meta.size {
                return Err(io::Error::other("it becomes shorter while it is read"));
            }
            new.finish(self.owner(change), meta.mode & 0o777)?;
            Ok(new)
        };
        write().map_err(&fail)
    }

    /// With the right to give files away, what is made in a user's folder belongs to that user.
    fn owner(&self, change: &Change) -> make::Owner {
        let before = change.before.as_ref().filter(|before| before.meta.kind != Kind::Directory);
        self.gives.then(|| before.map_or(self.root.owner, |before| before.meta.owner))
    }

    pub(super) fn change(&mut self, changes: &[Change], mut written: Written) -> Result<()> {
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
            self.known.push((change.path.clone(), None));
        }
        let mut made = BTreeMap::new();
        for (number, change) in changes.iter().enumerate() {
            let Some(after) = &change.after else { continue };
            if after.meta.kind == Kind::Directory {
                let inode = self.make_directory(change).map_err(fails(&change.path));
                made.insert(number, *inode.as_ref().unwrap_or(&0));
                step(inode.map(drop))?;
                continue;
            }
            let new = match (after.meta.kind, written.remove(&number)) {
                (Kind::File, None) => Some(self.content(change)?),
                (_, new) => new,
            };
            let meta = match new {
                Some(new) => self.put(change, new),
                None => self.link(change, after),
            };
            let meta = meta.map_err(fails(&change.path));
            if let Ok(meta) = &meta {
                self.known.push((change.path.clone(), Some(Known::of(meta, &after.meta))));
            }
            step(meta.map(drop))?;
        }
        // Last and from below: a mode may keep even us out.
        for (number, change) in changes.iter().enumerate().rev() {
            if let (Some(inode), Some(after)) = (made.get(&number), &change.after) {
                let meta = self.set_mode(change, *inode, after.meta.mode).map_err(fails(&change.path))?;
                self.known.push((change.path.clone(), Some(Known::of(&meta, &after.meta))));
            }
        }
        sys(rustix::fs::syncfs(self.folder)).map_err(fails(Path::new("")))
    }

    fn parent(&self, path: &Path) -> io::Result<OwnedFd> {
        beneath::directory_here(self.folder, split(path).0)
    }

    fn delete(&self, change: &Change) -> io::Result<()> {
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        let flags = if is_directory(change.before.as_ref()) { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&parent, name, flags) {
            // What is not the agent's keeps its directory, also by force.
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(rustix::io::Errno::NOTEMPTY) if self.allowed.conflicts => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the directory, unless only its mode is another; its inode.
    fn make_directory(&self, change: &Change) -> io::Result<u64> {
        if let Some(before) = change.before.as_ref().filter(|_| change.act == Act::Modified) {
            return Ok(before.meta.inode);
        }
        // Complete before it has its name: after a kill it is no other directory than the agent left.
        let (stage, step) = self.stage()?;
        let made = make::directory(stage.as_fd(), &step, self.gives.then_some(self.root.owner))?;
        let mode = change.after.as_ref().map_or(0, |after| after.meta.mode & 0o1777);
        sys(rustix::fs::fchmod(&made, Mode::from_raw_mode(mode) | Mode::RWXU))?;
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        sys(rustix::fs::renameat_with(&stage, &step, &parent, name, RenameFlags::NOREPLACE))?;
        Ok(make::is_at(parent.as_fd(), name, made.as_fd())?.inode)
    }

    fn set_mode(&self, change: &Change, inode: u64, mode: u32) -> io::Result<Meta> {
        let opened = beneath::directory_here(self.folder, &change.path)?;
        if beneath::itself(opened.as_fd())?.inode != inode {
            return Err(io::Error::other("another program put another directory in its place"));
        }
        sys(rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode & 0o1777)))?;
        beneath::itself(opened.as_fd())
    }

    fn put(&self, change: &Change, new: NewFile) -> io::Result<Meta> {
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        if change.act == Act::Added {
            return new.put(parent.as_fd(), name);
        }
        let (stage, step) = self.stage()?;
        new.replace((stage.as_fd(), &step), parent.as_fd(), name)
    }

    fn link(&self, change: &Change, after: &Side) -> io::Result<Meta> {
        let target = after.target.as_deref().unwrap_or(Path::new(""));
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        let (stage, step) = self.stage()?;
        let made = make::link(stage.as_fd(), &step, target, self.owner(change))?;
        let is_new = change.act == Act::Added;
        let flags = if is_new { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        sys(rustix::fs::renameat_with(&stage, &step, &parent, name, flags))?;
        make::is_at(parent.as_fd(), name, made.as_fd())
    }

    /// The directory in which a name is free, and that name.
    fn stage(&self) -> io::Result<(OwnedFd, PathBuf)> {
        let stage = match beneath::directory_here(self.folder, STAGE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                make::directory(self.folder, Path::new(STAGE), None)?
            }
            opened => opened?,
        };
        Ok((stage, make::random_name()?.into()))
    }
}

/// How many new files may be open.
fn room() -> usize {
    let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let wanted = most.min(OPEN_AT_MOST + SPARE);
    // A worker has its limit already, and cannot change it.
    let may = now >= wanted || setrlimit(Resource::RLIMIT_NOFILE, wanted, most).is_ok();
    usize::try_from(if may { wanted.saturating_sub(SPARE) } else { SPARE }).unwrap_or(0)
}
