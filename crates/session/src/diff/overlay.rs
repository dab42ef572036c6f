//! Compares the upper layer of an overlay with the folder below it, in the format of overlayfs (the kernel's
//! Documentation/filesystems/overlayfs.rst). A character device 0:0 marks a deleted name. The attribute
//! `overlay.opaque` hides the content of the folder's directory. `overlay.redirect` and `overlay.metacopy` refer to
//! content elsewhere; our mounts never create them.

use super::{ChangeKind, ChangeList, MAX_DEPTH, WorkspaceTrees, io_error, is_unchanged, read_side};
use saggar_sys::beneath::{self, FileKind, FileMeta};
use saggar_sys::error::Result;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Namespaces of overlay attributes: an unprivileged overlay uses `user`.
const XATTR_NAMESPACES: [&str; 2] = ["user", "trusted"];

fn overlay_xattr(file: BorrowedFd<'_>, name: &str) -> Option<Vec<u8>> {
    XATTR_NAMESPACES.iter().find_map(|space| beneath::read_xattr(file, &format!("{space}.overlay.{name}")))
}

pub(super) fn compare(
    found: &mut ChangeList,
    upper: BorrowedFd<'_>,
    lower: BorrowedFd<'_>,
    trees: &WorkspaceTrees,
) -> Result<()> {
    let opaque = is_opaque(upper);
    OverlayWalk { found, trees }.compare_directory(Path::new(""), upper, Some(lower), opaque, 0)
}

struct OverlayWalk<'a> {
    found: &'a mut ChangeList,
    trees: &'a WorkspaceTrees,
}

impl OverlayWalk<'_> {
    fn compare_directory(
        &mut self,
        path: &Path,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        opaque: bool,
        depth: usize,
    ) -> Result<()> {
        let names = self.found.names(upper, path)?;
        for name in &names {
            self.compare_name(&path.join(name), upper, lower, Path::new(name), depth)?;
        }
        let Some(lower) = lower.filter(|_| opaque) else { return Ok(()) };
        for name in self.found.names(lower, path)? {
            if names.binary_search(&name).is_err() {
                self.compare_deleted(&path.join(&name), lower, Path::new(&name), depth)?;
            }
        }
        Ok(())
    }

    fn compare_name(
        &mut self,
        path: &Path,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        name: &Path,
        depth: usize,
    ) -> Result<()> {
        let fail = |e: std::io::Error| io_error(path, &e);
        let Some(meta) = beneath::stat_beneath(upper, name).map_err(fail)? else { return Ok(()) };
        let below = match lower {
            Some(lower) => beneath::stat_beneath(lower, name).map_err(fail)?.map(|meta| (lower, meta)),
            None => None,
        };
        if is_whiteout(upper, name, &meta) {
            return match below {
                Some((lower, _)) => self.compare_deleted(path, lower, name, depth),
                None => Ok(()),
            };
        }
        let after = read_side(upper, name, meta);
        if meta.kind == FileKind::Directory {
            return self.compare_new_directory(path, (upper, name), after, below, depth);
        }
        match below {
            None => {
                // It may also be a renamed file: then its old name is deleted, and the folder is unchanged.
                let changed =
                    |lower| beneath::stat_fd(lower).is_ok_and(|meta| meta.ctime > self.trees.origin.since);
                let removed = lower.is_some_and(changed) && was_copied_up(upper, name, &meta);
                let conflict = removed.then_some("it may have been removed in the folder");
                self.found.push(path, ChangeKind::Added, None, Some(after), conflict);
            }
            Some((lower, was)) if was.kind == FileKind::Directory => {
                self.compare_deleted(path, lower, name, depth)?;
                self.found.push(path, ChangeKind::Added, None, Some(after), None);
            }
            Some((lower, was)) => {
                let before = read_side(lower, name, was);
                match is_unchanged((upper, &after), (lower, &before), name) {
                    Ok(true) => {}
                    Ok(false) if lacks_content(upper, name, &meta) => {
                        let why = "its content is elsewhere (overlay.metacopy)".to_owned();
                        self.found.push_rejected(path, ChangeKind::Modified, Some(before), after, why);
                    }
                    Ok(false) => {
                        let conflict = self.edit_conflict(path, &was);
                        self.found.push(path, ChangeKind::Modified, Some(before), Some(after), conflict);
                    }
                    Err(e) => {
                        let why = format!("it cannot be compared: {e}");
                        self.found.push_rejected(path, ChangeKind::Modified, Some(before), after, why);
                    }
                }
            }
        }
        Ok(())
    }

    fn compare_new_directory(
        &mut self,
        path: &Path,
        (upper, name): (BorrowedFd<'_>, &Path),
        after: super::ChangeSide,
        below: Option<(BorrowedFd<'_>, FileMeta)>,
        depth: usize,
    ) -> Result<()> {
        let mode = after.meta.mode;
        let is_over = below.as_ref().is_some_and(|(_, was)| was.kind == FileKind::Directory);
        let (act, before) = match below {
            Some((lower, was)) if is_over => {
                (ChangeKind::Modified, Some((lower, read_side(lower, name, was))))
            }
            Some((lower, _)) => {
                self.compare_deleted(path, lower, name, depth)?;
                (ChangeKind::Added, None)
            }
            None => (ChangeKind::Added, None),
        };
        let was = before.as_ref().map(|(_, side)| side.clone());
        let opened = if depth < MAX_DEPTH {
            beneath::open_directory(upper, name).map_err(|e| format!("it cannot be opened: {e}"))
        } else {
            Err(format!("it is deeper than {MAX_DEPTH} directories"))
        };
        let opened = match opened {
            Ok(opened) if overlay_xattr(opened.as_fd(), "redirect").is_some() => {
                Err("it was renamed within the overlay (overlay.redirect)".to_owned())
            }
            other => other,
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(why) => {
                self.found.push_rejected(path, act, was, after, why);
                return Ok(());
            }
        };
        if act == ChangeKind::Added || was.as_ref().is_some_and(|was| was.meta.mode != mode) {
            let conflict = was.as_ref().and_then(|was| self.edit_conflict(path, &was.meta));
            self.found.push(path, act, was, Some(after), conflict);
        }
        let opaque = is_opaque(opened.as_fd());
        let lower = match before {
            Some((lower, _)) => Some(beneath::open_directory(lower, name).map_err(|e| io_error(path, &e))?),
            None => None,
        };
        self.compare_directory(path, opened.as_fd(), lower.as_ref().map(AsFd::as_fd), opaque, depth + 1)
    }

    /// `name` of the folder and everything below it were deleted.
    fn compare_deleted(
        &mut self,
        path: &Path,
        lower: BorrowedFd<'_>,
        name: &Path,
        depth: usize,
    ) -> Result<()> {
        let fail = |e: std::io::Error| io_error(path, &e);
        let Some(meta) = beneath::stat_beneath(lower, name).map_err(fail)? else { return Ok(()) };
        let conflict = self.edit_conflict(path, &meta);
        self.found.push(path, ChangeKind::Deleted, Some(read_side(lower, name, meta)), None, conflict);
        if meta.kind != FileKind::Directory {
            return Ok(());
        }
        if depth >= MAX_DEPTH {
            if let Some(last) = self.found.changes.last_mut() {
                last.rejected = Some(format!("it is deeper than {MAX_DEPTH} directories"));
            }
            return Ok(());
        }
        let below = beneath::open_directory(lower, name).map_err(fail)?;
        for name in self.found.names(below.as_fd(), path)? {
            self.compare_deleted(&path.join(&name), below.as_fd(), Path::new(&name), depth + 1)?;
        }
        Ok(())
    }

    /// Whether the folder's file has changed since the agent saw it. Changes by an `apply` are known from the manifest.
    /// The time of a directory is ignored: it changes with its entries.
    fn edit_conflict(&self, path: &Path, was: &FileMeta) -> Option<&'static str> {
        let edited = match self.trees.manifest.get(path) {
            Some(known) => !known.is_source_unchanged(was),
            None => was.kind != FileKind::Directory && was.ctime > self.trees.origin.since,
        };
        edited.then_some("it was changed in the folder")
    }
}

/// Whether a directory of the upper layer hides the folder's directory.
pub(crate) fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    overlay_xattr(directory, "opaque").is_some_and(|value| value == b"y")
}

/// Whether a name of the upper layer marks a deleted name.
pub(crate) fn is_whiteout(upper: BorrowedFd<'_>, name: &Path, meta: &FileMeta) -> bool {
    let marked = || {
        beneath::open_file(upper, name)
            .is_ok_and(|(file, _)| overlay_xattr(file.as_fd(), "whiteout").is_some())
    };
    meta.is_whiteout || meta.kind == FileKind::File && meta.size == 0 && marked()
}

/// Whether the file was copied up from the folder.
fn was_copied_up(upper: BorrowedFd<'_>, name: &Path, meta: &FileMeta) -> bool {
    let origin = || {
        let (file, _) = beneath::open_file(upper, name).ok()?;
        overlay_xattr(file.as_fd(), "origin")
    };
    meta.kind == FileKind::File && origin().is_some()
}

fn lacks_content(upper: BorrowedFd<'_>, name: &Path, meta: &FileMeta) -> bool {
    let marked = || {
        beneath::open_file(upper, name)
            .is_ok_and(|(file, _)| overlay_xattr(file.as_fd(), "metacopy").is_some())
    };
    meta.kind == FileKind::File && marked()
}

/// A directory above `path` in the upper layer that hides the folder's; `None` if there is none.
pub(crate) fn hidden_by(upper: BorrowedFd<'_>, path: &Path) -> Option<PathBuf> {
    let above: Vec<&Path> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
    above.into_iter().rev().find_map(|above| {
        let opened = beneath::open_directory(upper, above).ok()?;
        is_opaque(opened.as_fd()).then(|| above.to_owned())
    })
}
