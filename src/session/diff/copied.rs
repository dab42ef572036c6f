//! A copied workspace against the folder it was copied from. The manifest says what both were then: what only the
//! folder has changed since is nobody's change here, and what both have is a conflict.

use super::{Act, Found, MAX_DEPTH, Side, Trees, fails, is_same, side};
use crate::error::Result;
use crate::session::beneath::{self, Kind, Meta};
use crate::session::manifest::Known;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const CHANGED: &str = "it was changed in the folder";

pub(super) fn compare(
    found: &mut Found,
    left: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    trees: &Trees,
) -> Result<()> {
    Walk { found, trees }.directory(Path::new(""), Some(left), Some(folder), 0)
}

struct Walk<'a> {
    found: &'a mut Found,
    trees: &'a Trees,
}

/// A name on one side: where it is, and what.
type There<'a> = Option<(BorrowedFd<'a>, Meta)>;

impl Walk<'_> {
    fn directory(
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
                Some(at) => beneath::look(at, &name).map_err(|e| fails(&path, &e)),
                None => Ok(None),
            };
            let left = left.zip(look(left)?);
            let folder = folder.zip(look(folder)?);
            self.name(&path, Path::new(&name), left, folder, depth)?;
        }
        Ok(())
    }

    fn name(
        &mut self,
        path: &Path,
        name: &Path,
        left: There<'_>,
        folder: There<'_>,
        depth: usize,
    ) -> Result<()> {
        let known = self.trees.manifest.get(path).copied();
        match (left, folder) {
            (Some(left), None) => self.only_left(path, name, left, known, depth),
            (None, Some(folder)) => self.only_folder(path, name, folder, known, depth),
            (Some(left), Some(folder)) => self.both(path, name, left, folder, known, depth),
            (None, None) => Ok(()),
        }
    }

    fn only_left(
        &mut self,
        path: &Path,
        name: &Path,
        (at, meta): (BorrowedFd<'_>, Meta),
        known: Option<Known>,
        depth: usize,
    ) -> Result<()> {
        if is_ours(path, at, name, &meta) {
            return Ok(());
        }
        // What the agent left as it was is gone by the folder's doing.
        let untouched = known.is_some_and(|known| known.is_untouched(&meta));
        if !untouched {
            // A directory in the place of something else: that went by the agent's doing, and by an apply that was
            // killed may be gone already.
            let replaced = |known: &Known| known.was_directory() != (meta.kind == Kind::Directory);
            let conflict = known.filter(|known| !replaced(known)).map(|_| "it was removed in the folder");
            self.found.push(path, Act::Added, None, Some(side(at, name, meta)), conflict);
        }
        if meta.kind != Kind::Directory {
            return Ok(());
        }
        let Some(opened) = self.open(path, name, (at, meta), Act::Added, None, depth) else { return Ok(()) };
        self.directory(path, Some(opened.as_fd()), None, depth + 1)
    }

    fn only_folder(
        &mut self,
        path: &Path,
        name: &Path,
        (at, meta): (BorrowedFd<'_>, Meta),
        known: Option<Known>,
        depth: usize,
    ) -> Result<()> {
        // What was never copied, or has come since, is none of the agent's.
        let Some(known) = known else { return Ok(()) };
        let conflict = (!known.is_source(&meta)).then_some(CHANGED);
        let place = self.found.changes.len();
        self.found.push(path, Act::Deleted, Some(side(at, name, meta)), None, conflict);
        if meta.kind != Kind::Directory {
            return Ok(());
        }
        if depth >= MAX_DEPTH {
            self.found.changes[place].refused = Some(format!("it is deeper than {MAX_DEPTH} directories"));
            return Ok(());
        }
        let below = beneath::directory(at, name).map_err(|e| fails(path, &e))?;
        let names = beneath::names(below.as_fd(), usize::MAX).map_err(|e| fails(path, &e))?;
        let strange = names.iter().find(|name| self.trees.manifest.get(&path.join(name)).is_none());
        if let Some(strange) = strange {
            let why =
                format!("the folder has {} in it, which is not the agent's", super::text::name(strange));
            self.found.changes[place].conflict.get_or_insert(why);
        }
        self.directory(path, None, Some(below.as_fd()), depth + 1)
    }

    fn both(
        &mut self,
        path: &Path,
        name: &Path,
        (left, now): (BorrowedFd<'_>, Meta),
        (folder, was): (BorrowedFd<'_>, Meta),
        known: Option<Known>,
        depth: usize,
    ) -> Result<()> {
        let untouched = known.is_some_and(|known| known.is_untouched(&now));
        let conflict = match known {
            Some(known) if known.is_source(&was) => None,
            Some(_) => Some(CHANGED),
            None => Some("it was made in the folder, too"),
        };
        if now.kind == Kind::Directory && was.kind == Kind::Directory {
            let (after, before) = (side(left, name, now), side(folder, name, was));
            if !untouched && now.mode != was.mode {
                self.found.push(path, Act::Modified, Some(before.clone()), Some(after), conflict);
            }
            let opened = self.open(path, name, (left, now), Act::Modified, Some(before), depth);
            let Some(opened) = opened else { return Ok(()) };
            let below = beneath::directory(folder, name).map_err(|e| fails(path, &e))?;
            return self.directory(path, Some(opened.as_fd()), Some(below.as_fd()), depth + 1);
        }
        if untouched && now.kind != Kind::Directory {
            return Ok(());
        }
        if now.kind == Kind::Directory || was.kind == Kind::Directory {
            // A directory against something else: the one goes, the other comes.
            self.only_folder(path, name, (folder, was), known.or(Some(Known::of(&was, &now))), depth)?;
            if let Some(change) = self.found.changes.iter_mut().rev().find(|change| change.path == path) {
                change.conflict = conflict.map(str::to_owned);
            }
            return self.only_left(path, name, (left, now), None, depth);
        }
        let (after, before) = (side(left, name, now), side(folder, name, was));
        match is_same((left, &after), (folder, &before), name) {
            Ok(true) => {}
            Ok(false) => self.found.push(path, Act::Modified, Some(before), Some(after), conflict),
            Err(e) => {
                let why = format!("it cannot be compared: {e}");
                self.found.refuse(path, Act::Modified, Some(before), after, why);
            }
        }
        Ok(())
    }

    /// A directory of the workspace; one that cannot be looked into is in the list with the reason.
    fn open(
        &mut self,
        path: &Path,
        name: &Path,
        (at, meta): (BorrowedFd<'_>, Meta),
        act: Act,
        before: Option<Side>,
        depth: usize,
    ) -> Option<OwnedFd> {
        let why = if depth >= MAX_DEPTH {
            format!("it is deeper than {MAX_DEPTH} directories")
        } else {
            match beneath::directory(at, name) {
                Ok(opened) => return Some(opened),
                Err(e) => format!("it cannot be opened: {e}"),
            }
        };
        match self.found.changes.last_mut().filter(|last| last.path == path) {
            Some(last) => last.refused = Some(why),
            None => self.found.refuse(path, act, before, side(at, name, meta), why),
        }
        None
    }
}

/// What a start makes in a `.git` that lacks it, to protect it, and that nobody has changed.
fn is_ours(path: &Path, at: BorrowedFd<'_>, name: &Path, meta: &Meta) -> bool {
    let in_git = path.parent().is_some_and(|parent| {
        parent.file_name().is_some_and(|name| name == ".git")
            || parent.components().any(|part| part.as_os_str() == "modules")
    });
    let is = |what: &str| name == Path::new(what);
    let is_empty = || {
        let opened = beneath::directory(at, name).ok();
        opened.is_some_and(|opened| beneath::is_empty(opened.as_fd()).unwrap_or(false))
    };
    let is_plain = || {
        let opened = beneath::file(at, name).ok();
        opened.is_some_and(|(mut file, _)| {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut std::io::Read::take(&mut file, 8), &mut text).is_ok()
                && text == ".\n"
        })
    };
    in_git
        && match meta.kind {
            Kind::Directory => (is("hooks") || is("info")) && is_empty(),
            Kind::File => is("commondir") && meta.size == 2 && is_plain(),
            _ => false,
        }
}
