//! Compares a copied workspace with its source folder. The manifest has the state of both at the time of the copy: a
//! change of the folder alone is ignored, and a change of both is a conflict.

use super::{
    ChangeKind, ChangeList, ChangeSide, MAX_DEPTH, WorkspaceTrees, io_error, is_unchanged, read_side,
};
use crate::manifest::ManifestEntry;
use saggar_sys::beneath::{self, FileKind, FileMeta};
use saggar_sys::error::Result;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const CHANGED_IN_FOLDER: &str = "it was changed in the folder";

pub(super) fn compare(
    found: &mut ChangeList,
    left: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    trees: &WorkspaceTrees,
) -> Result<()> {
    CopyWalk { found, trees }.compare_directory(Path::new(""), Some(left), Some(folder), 0)
}

struct CopyWalk<'a> {
    found: &'a mut ChangeList,
    trees: &'a WorkspaceTrees,
}

/// A name on one side: its directory and its metadata.
type LocatedEntry<'a> = Option<(BorrowedFd<'a>, FileMeta)>;

impl CopyWalk<'_> {
    fn compare_directory(
        &mut self,
        path: &Path,
        left: Option<BorrowedFd<'_>>,
        folder: Option<BorrowedFd<'_>>,
        depth: usize,
    ) -> Result<()> {
        let mut names: BTreeSet<OsString> = BTreeSet::new();
        for side in [left, folder].into_iter().flatten() {
            names.extend(self.found.names(side, path)?);
        }
        for name in names {
            let path = path.join(&name);
            let look = |at: Option<BorrowedFd<'_>>| match at {
                Some(at) => beneath::stat_beneath(at, &name).map_err(|e| io_error(&path, &e)),
                None => Ok(None),
            };
            let left = left.zip(look(left)?);
            let folder = folder.zip(look(folder)?);
            self.compare_name(&path, Path::new(&name), left, folder, depth)?;
        }
        Ok(())
    }

    fn compare_name(
        &mut self,
        path: &Path,
        name: &Path,
        left: LocatedEntry<'_>,
        folder: LocatedEntry<'_>,
        depth: usize,
    ) -> Result<()> {
        let known = self.trees.manifest.get(path).copied();
        match (left, folder) {
            (Some(left), None) => self.only_in_workspace(path, name, left, known, depth),
            (None, Some(folder)) => self.only_in_folder(path, name, folder, known, depth),
            (Some(left), Some(folder)) => self.in_both(path, name, left, folder, known, depth),
            (None, None) => Ok(()),
        }
    }

    fn only_in_workspace(
        &mut self,
        path: &Path,
        name: &Path,
        (at, meta): (BorrowedFd<'_>, FileMeta),
        known: Option<ManifestEntry>,
        depth: usize,
    ) -> Result<()> {
        if is_made_by_start(path, at, name, &meta) {
            return Ok(());
        }
        // The folder has deleted a file that the agent did not change.
        let untouched = known.is_some_and(|known| known.is_untouched(&meta));
        if !untouched {
            // The agent has replaced a file of another type by a directory; an apply that was killed may have deleted
            // that file already.
            let replaced =
                |known: &ManifestEntry| known.was_directory() != (meta.kind == FileKind::Directory);
            let conflict = known.filter(|known| !replaced(known)).map(|_| "it was removed in the folder");
            self.found.push(path, ChangeKind::Added, None, Some(read_side(at, name, meta)), conflict);
        }
        if meta.kind != FileKind::Directory {
            return Ok(());
        }
        let Some(opened) = self.open_or_refuse(path, name, (at, meta), ChangeKind::Added, None, depth) else {
            return Ok(());
        };
        self.compare_directory(path, Some(opened.as_fd()), None, depth + 1)
    }

    fn only_in_folder(
        &mut self,
        path: &Path,
        name: &Path,
        (at, meta): (BorrowedFd<'_>, FileMeta),
        known: Option<ManifestEntry>,
        depth: usize,
    ) -> Result<()> {
        // A name that was never copied, or was created later, was not deleted by the agent.
        let Some(known) = known else { return Ok(()) };
        let conflict = (!known.is_source_unchanged(&meta)).then_some(CHANGED_IN_FOLDER);
        let place = self.found.changes.len();
        self.found.push(path, ChangeKind::Deleted, Some(read_side(at, name, meta)), None, conflict);
        if meta.kind != FileKind::Directory {
            return Ok(());
        }
        if depth >= MAX_DEPTH {
            self.found.changes[place].rejected = Some(format!("it is deeper than {MAX_DEPTH} directories"));
            return Ok(());
        }
        let below = beneath::open_directory(at, name).map_err(|e| io_error(path, &e))?;
        let names = beneath::read_names(below.as_fd(), usize::MAX).map_err(|e| io_error(path, &e))?;
        let strange = names.iter().find(|name| self.trees.manifest.get(&path.join(name)).is_none());
        if let Some(strange) = strange {
            let why =
                format!("the folder has {} in it, which is not the agent's", super::text::show_name(strange));
            self.found.changes[place].conflict.get_or_insert(why);
        }
        self.compare_directory(path, None, Some(below.as_fd()), depth + 1)
    }

    fn in_both(
        &mut self,
        path: &Path,
        name: &Path,
        (left, now): (BorrowedFd<'_>, FileMeta),
        (folder, was): (BorrowedFd<'_>, FileMeta),
        known: Option<ManifestEntry>,
        depth: usize,
    ) -> Result<()> {
        let untouched = known.is_some_and(|known| known.is_untouched(&now));
        let conflict = match known {
            Some(known) if known.is_source_unchanged(&was) => None,
            Some(_) => Some(CHANGED_IN_FOLDER),
            None => Some("it was made in the folder, too"),
        };
        if now.kind == FileKind::Directory && was.kind == FileKind::Directory {
            let (after, before) = (read_side(left, name, now), read_side(folder, name, was));
            if !untouched && now.mode != was.mode {
                self.found.push(path, ChangeKind::Modified, Some(before.clone()), Some(after), conflict);
            }
            let opened =
                self.open_or_refuse(path, name, (left, now), ChangeKind::Modified, Some(before), depth);
            let Some(opened) = opened else { return Ok(()) };
            let below = beneath::open_directory(folder, name).map_err(|e| io_error(path, &e))?;
            return self.compare_directory(path, Some(opened.as_fd()), Some(below.as_fd()), depth + 1);
        }
        if untouched && now.kind != FileKind::Directory {
            return Ok(());
        }
        if now.kind == FileKind::Directory || was.kind == FileKind::Directory {
            // The types differ and one is a directory: one side is deleted, the other added.
            self.only_in_folder(
                path,
                name,
                (folder, was),
                known.or(Some(ManifestEntry::from_metas(&was, &now))),
                depth,
            )?;
            if let Some(change) = self.found.changes.iter_mut().rev().find(|change| change.path == path) {
                change.conflict = conflict.map(str::to_owned);
            }
            return self.only_in_workspace(path, name, (left, now), None, depth);
        }
        let (after, before) = (read_side(left, name, now), read_side(folder, name, was));
        match is_unchanged((left, &after), (folder, &before), name) {
            Ok(true) => {}
            Ok(false) => self.found.push(path, ChangeKind::Modified, Some(before), Some(after), conflict),
            Err(e) => {
                let why = format!("it cannot be compared: {e}");
                self.found.push_rejected(path, ChangeKind::Modified, Some(before), after, why);
            }
        }
        Ok(())
    }

    /// Opens a directory of the workspace; one that cannot be opened is listed with the reason.
    fn open_or_refuse(
        &mut self,
        path: &Path,
        name: &Path,
        (at, meta): (BorrowedFd<'_>, FileMeta),
        act: ChangeKind,
        before: Option<ChangeSide>,
        depth: usize,
    ) -> Option<OwnedFd> {
        let why = if depth >= MAX_DEPTH {
            format!("it is deeper than {MAX_DEPTH} directories")
        } else {
            match beneath::open_directory(at, name) {
                Ok(opened) => return Some(opened),
                Err(e) => format!("it cannot be opened: {e}"),
            }
        };
        match self.found.changes.last_mut().filter(|last| last.path == path) {
            Some(last) => last.rejected = Some(why),
            None => self.found.push_rejected(path, act, before, read_side(at, name, meta), why),
        }
        None
    }
}

/// Whether saggar created this file or directory in a `.git` to protect it, and it was not changed.
fn is_made_by_start(path: &Path, at: BorrowedFd<'_>, name: &Path, meta: &FileMeta) -> bool {
    let in_git = path.parent().is_some_and(|parent| {
        parent.file_name().is_some_and(|name| name == ".git")
            || parent.components().any(|part| part.as_os_str() == "modules")
    });
    let is = |what: &str| name == Path::new(what);
    let is_empty = || {
        let opened = beneath::open_directory(at, name).ok();
        opened.is_some_and(|opened| beneath::is_empty(opened.as_fd()).unwrap_or(false))
    };
    let is_plain = || {
        let opened = beneath::open_file(at, name).ok();
        opened.is_some_and(|(mut file, _)| {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut std::io::Read::take(&mut file, 8), &mut text).is_ok()
                && text == ".\n"
        })
    };
    in_git
        && match meta.kind {
            FileKind::Directory => (is("hooks") || is("info")) && is_empty(),
            FileKind::File => is("commondir") && meta.size == 2 && is_plain(),
            _ => false,
        }
}
