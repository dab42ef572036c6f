//! The steps of an `apply`: verify the folder, write new content, change names.

use super::super::create::{self, NewFile};
use super::super::diff::{ChangeKind, ChangeSide, FileChange, WorkspaceTrees, text};
use super::super::manifest::{FileStamp, ManifestEntry};
use super::{ApplyOptions, STAGING_DIRECTORY, io_error, split};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::{AtFlags, Mode, RenameFlags};
use saggar_sys::beneath::{self, FileKind, FileMeta};
use saggar_sys::caps;
use saggar_sys::error::{Code, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Most new files that are open at once; each further one is written when its turn comes.
const MAX_OPEN_FILES: u64 = 1 << 16;
/// Descriptors for all other purposes.
const RESERVED_FDS: u64 = 128;

/// New content by the index of its change.
pub(super) type NewFiles = BTreeMap<usize, NewFile>;

pub(super) struct Applier<'a> {
    changed_tree: BorrowedFd<'a>,
    folder: BorrowedFd<'a>,
    root: FileMeta,
    allowed: &'a ApplyOptions,
    /// Manifest entries to change; `None` removes the entry.
    pub manifest_updates: Vec<(PathBuf, Option<ManifestEntry>)>,
    /// Whether it may set owners of new files.
    sets_owner: bool,
}

fn from_rustix<T>(result: rustix::io::Result<T>) -> io::Result<T> {
    result.map_err(Into::into)
}

fn is_directory(side: Option<&ChangeSide>) -> bool {
    side.is_some_and(|side| side.meta.kind == FileKind::Directory)
}

impl<'a> Applier<'a> {
    pub(super) fn new(trees: &'a WorkspaceTrees, root: FileMeta, allowed: &'a ApplyOptions) -> Self {
        Applier {
            changed_tree: trees.changed_tree.as_fd(),
            folder: trees.folder.as_fd(),
            root,
            allowed,
            manifest_updates: Vec::new(),
            sets_owner: caps::has(caps::CHOWN),
        }
    }

    /// Verifies that the folder is as it was compared, and can take the changes.
    pub(super) fn verify(&self, changes: &[FileChange]) -> Result<()> {
        let made: BTreeSet<&Path> = changes
            .iter()
            .filter(|change| change.after.as_ref().is_some_and(|side| side.meta.kind == FileKind::Directory))
            .map(|change| change.path.as_path())
            .collect();
        let gone: BTreeSet<&Path> = changes
            .iter()
            .filter(|change| change.kind == ChangeKind::Deleted)
            .map(|change| change.path.as_path())
            .collect();
        for change in changes {
            let refuse = |why: &str| {
                let message = format!("apply {}: {why}; nothing was done", text::show_path(&change.path));
                Err(Error::new(Code::Refused, message).hint("look at the difference again"))
            };
            let (parent, name) = split(&change.path);
            let parent_fd = match beneath::open_directory_no_mounts(self.folder, parent) {
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
            let now = beneath::stat_beneath(parent_fd.as_fd(), name).map_err(io_error(&change.path))?;
            let was = change.before.as_ref().map(|side| FileStamp::from_meta(&side.meta));
            if change.kind == ChangeKind::Added && gone.contains(change.path.as_path()) {
                continue;
            }
            if now.as_ref().map(FileStamp::from_meta) != was {
                return refuse("it has changed since it was compared");
            }
            let is_directory = now.is_some_and(|meta| meta.kind == FileKind::Directory);
            if change.kind == ChangeKind::Deleted && is_directory && !self.allowed.allow_conflicts {
                let opened =
                    beneath::open_directory(parent_fd.as_fd(), name).map_err(io_error(&change.path))?;
                let names =
                    beneath::read_names(opened.as_fd(), usize::MAX).map_err(io_error(&change.path))?;
                if let Some(stays) =
                    names.iter().find(|name| !gone.contains(change.path.join(name).as_path()))
                {
                    let stays = text::show_name(stays);
                    return refuse(&format!("it is to be removed, and {stays} in it is not"));
                }
            }
        }
        Ok(())
    }

    /// Writes the new files, as many as can be open at once.
    pub(super) fn write_new_files(&self, changes: &[FileChange]) -> Result<NewFiles> {
        beneath::remove(self.folder, STAGING_DIRECTORY).map_err(io_error(Path::new(STAGING_DIRECTORY)))?;
        let files = changes.iter().enumerate().filter(|(_, change)| {
            change.after.as_ref().is_some_and(|after| after.meta.kind == FileKind::File)
        });
        let mut written = NewFiles::new();
        for (number, change) in files.take(max_open_files()) {
            written.insert(number, self.write_content(change)?);
        }
        // One sync for all: a rename of a file that is not on disk yet could leave an empty file after a crash.
        from_rustix(rustix::fs::syncfs(self.folder)).map_err(io_error(Path::new("")))?;
        Ok(written)
    }

    /// Writes the file of a change, without a name.
    fn write_content(&self, change: &FileChange) -> Result<NewFile> {
        let fail = io_error(&change.path);
        let (mut source, meta) = beneath::open_file(self.changed_tree, &change.path).map_err(&fail)?;
        if change
            .after
            .as_ref()
            .is_none_or(|after| FileStamp::from_meta(&meta) != FileStamp::from_meta(&after.meta))
        {
            let path = text::show_path(&change.path);
            let message = format!("apply {path}: it changes while it is read; nothing was done");
            return Err(Error::new(Code::Refused, message).hint("end the session first"));
        }
        let mut write = || {
            let mut new = create::create_unnamed(self.folder)?;
            // The source may grow meanwhile: no more bytes are copied than were verified.
            let copied = io::copy(&mut io::Read::take(&mut source, meta.size), &mut new.file)?;
            if copied != meta.size {
                return Err(io::Error::other("it becomes shorter while it is read"));
            }
            new.set_owner_and_mode(self.owner_for(change), meta.mode & 0o777)?;
            Ok(new)
        };
        write().map_err(&fail)
    }

    /// With the right to set owners, new files in a user's folder belong to that user.
    fn owner_for(&self, change: &FileChange) -> create::FileOwner {
        let before = change.before.as_ref().filter(|before| before.meta.kind != FileKind::Directory);
        self.sets_owner.then(|| before.map_or(self.root.owner, |before| before.meta.owner))
    }

    pub(super) fn commit(&mut self, changes: &[FileChange], mut written: NewFiles) -> Result<()> {
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
        // Children are deleted before their parents, and all deletions come before any creation.
        for change in changes.iter().rev().filter(|change| change.kind == ChangeKind::Deleted) {
            step(self.delete(change).map_err(io_error(&change.path)))?;
            self.manifest_updates.push((change.path.clone(), None));
        }
        let mut made = BTreeMap::new();
        for (number, change) in changes.iter().enumerate() {
            let Some(after) = &change.after else { continue };
            if after.meta.kind == FileKind::Directory {
                let inode = self.make_directory(change).map_err(io_error(&change.path));
                made.insert(number, *inode.as_ref().unwrap_or(&0));
                step(inode.map(drop))?;
                continue;
            }
            let new = match (after.meta.kind, written.remove(&number)) {
                (FileKind::File, None) => Some(self.write_content(change)?),
                (_, new) => new,
            };
            let meta = match new {
                Some(new) => self.place_file(change, new),
                None => self.place_link(change, after),
            };
            let meta = meta.map_err(io_error(&change.path));
            if let Ok(meta) = &meta {
                self.manifest_updates
                    .push((change.path.clone(), Some(ManifestEntry::from_metas(meta, &after.meta))));
            }
            step(meta.map(drop))?;
        }
        // Last and from the leaves up: a mode may deny access even to us.
        for (number, change) in changes.iter().enumerate().rev() {
            if let (Some(inode), Some(after)) = (made.get(&number), &change.after) {
                let meta = self.set_mode(change, *inode, after.meta.mode).map_err(io_error(&change.path))?;
                self.manifest_updates
                    .push((change.path.clone(), Some(ManifestEntry::from_metas(&meta, &after.meta))));
            }
        }
        from_rustix(rustix::fs::syncfs(self.folder)).map_err(io_error(Path::new("")))
    }

    fn parent(&self, path: &Path) -> io::Result<OwnedFd> {
        beneath::open_directory_no_mounts(self.folder, split(path).0)
    }

    fn delete(&self, change: &FileChange) -> io::Result<()> {
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        let flags = if is_directory(change.before.as_ref()) { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&parent, name, flags) {
            // A directory with files that the agent has not deleted stays, even with force.
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(rustix::io::Errno::NOTEMPTY) if self.allowed.allow_conflicts => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates the directory, unless only its mode differs; returns its inode.
    fn make_directory(&self, change: &FileChange) -> io::Result<u64> {
        if let Some(before) = change.before.as_ref().filter(|_| change.kind == ChangeKind::Modified) {
            return Ok(before.meta.inode);
        }
        // Complete before it gets its name: after a kill, every directory with the name is as the agent left it.
        let (stage, step) = self.staging_name()?;
        let made =
            create::create_directory(stage.as_fd(), &step, self.sets_owner.then_some(self.root.owner))?;
        let mode = change.after.as_ref().map_or(0, |after| after.meta.mode & 0o1777);
        from_rustix(rustix::fs::fchmod(&made, Mode::from_raw_mode(mode) | Mode::RWXU))?;
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        from_rustix(rustix::fs::renameat_with(&stage, &step, &parent, name, RenameFlags::NOREPLACE))?;
        Ok(create::stat_if_same(parent.as_fd(), name, made.as_fd())?.inode)
    }

    fn set_mode(&self, change: &FileChange, inode: u64, mode: u32) -> io::Result<FileMeta> {
        let opened = beneath::open_directory_no_mounts(self.folder, &change.path)?;
        if beneath::stat_fd(opened.as_fd())?.inode != inode {
            return Err(io::Error::other("another program put another directory in its place"));
        }
        from_rustix(rustix::fs::fchmod(&opened, Mode::from_raw_mode(mode & 0o1777)))?;
        beneath::stat_fd(opened.as_fd())
    }

    fn place_file(&self, change: &FileChange, new: NewFile) -> io::Result<FileMeta> {
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        if change.kind == ChangeKind::Added {
            return new.link_into(parent.as_fd(), name);
        }
        let (stage, step) = self.staging_name()?;
        new.rename_over((stage.as_fd(), &step), parent.as_fd(), name)
    }

    fn place_link(&self, change: &FileChange, after: &ChangeSide) -> io::Result<FileMeta> {
        let target = after.target.as_deref().unwrap_or(Path::new(""));
        let parent = self.parent(&change.path)?;
        let (_, name) = split(&change.path);
        let (stage, step) = self.staging_name()?;
        let made = create::create_symlink(stage.as_fd(), &step, target, self.owner_for(change))?;
        let is_new = change.kind == ChangeKind::Added;
        let flags = if is_new { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        from_rustix(rustix::fs::renameat_with(&stage, &step, &parent, name, flags))?;
        create::stat_if_same(parent.as_fd(), name, made.as_fd())
    }

    /// The staging directory, and a free name in it.
    fn staging_name(&self) -> io::Result<(OwnedFd, PathBuf)> {
        let stage = match beneath::open_directory_no_mounts(self.folder, STAGING_DIRECTORY) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                create::create_directory(self.folder, Path::new(STAGING_DIRECTORY), None)?
            }
            opened => opened?,
        };
        Ok((stage, create::random_name()?.into()))
    }
}

/// Most new files that may be open.
fn max_open_files() -> usize {
    let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let wanted = most.min(MAX_OPEN_FILES + RESERVED_FDS);
    // A worker has its limit already, and cannot change it.
    let may = now >= wanted || setrlimit(Resource::RLIMIT_NOFILE, wanted, most).is_ok();
    usize::try_from(if may { wanted.saturating_sub(RESERVED_FDS) } else { RESERVED_FDS }).unwrap_or(0)
}
