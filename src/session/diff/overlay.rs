//! The upper layer of an overlay against the folder under it, as overlayfs lays it out (the kernel's
//! Documentation/filesystems/overlayfs.rst): a character device 0:0 says that a name is gone, the attribute
//! `overlay.opaque` that nothing of the folder's directory shows through, and `overlay.redirect` and
//! `overlay.metacopy` that the content is elsewhere, which our mounts never say.

use super::{Act, Found, MAX_DEPTH, Trees, fails, is_same, side};
use crate::error::Result;
use crate::session::beneath::{self, Kind, Meta};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// The attributes of an overlay: an unprivileged one keeps them among the user's.
const SPACES: [&str; 2] = ["user", "trusted"];

fn attribute(file: BorrowedFd<'_>, name: &str) -> Option<Vec<u8>> {
    SPACES.iter().find_map(|space| beneath::attribute(file, &format!("{space}.overlay.{name}")))
}

pub(super) fn compare(
    found: &mut Found,
    upper: BorrowedFd<'_>,
    lower: BorrowedFd<'_>,
    trees: &Trees,
) -> Result<()> {
    let opaque = is_opaque(upper);
    Walk { found, trees }.directory(Path::new(""), upper, Some(lower), opaque, 0)
}

struct Walk<'a> {
    found: &'a mut Found,
    trees: &'a Trees,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        path: &Path,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        opaque: bool,
        depth: usize,
    ) -> Result<()> {
        let names = self.found.names(upper, path)?;
        for name in &names {
            self.name(&path.join(name), upper, lower, Path::new(name), depth)?;
        }
        let Some(lower) = lower.filter(|_| opaque) else { return Ok(()) };
        for name in self.found.names(lower, path)? {
            if names.binary_search(&name).is_err() {
                self.deleted(&path.join(&name), lower, Path::new(&name), depth)?;
            }
        }
        Ok(())
    }

    fn name(
        &mut self,
        path: &Path,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        name: &Path,
        depth: usize,
    ) -> Result<()> {
        let fail = |e: std::io::Error| fails(path, &e);
        let Some(meta) = beneath::look(upper, name).map_err(fail)? else { return Ok(()) };
        let below = match lower {
            Some(lower) => beneath::look(lower, name).map_err(fail)?.map(|meta| (lower, meta)),
            None => None,
        };
        if is_whiteout(upper, name, &meta) {
            return match below {
                Some((lower, _)) => self.deleted(path, lower, name, depth),
                None => Ok(()),
            };
        }
        let after = side(upper, name, meta);
        if meta.kind == Kind::Directory {
            return self.made_directory(path, (upper, name), after, below, depth);
        }
        match below {
            None => {
                // It may as well be a file that was renamed: then its old name is gone, and the folder is as it was.
                let changed =
                    |lower| beneath::itself(lower).is_ok_and(|meta| meta.ctime > self.trees.origin.since);
                let removed = lower.is_some_and(changed) && was_copied_up(upper, name, &meta);
                let conflict = removed.then_some("it may have been removed in the folder");
                self.found.push(path, Act::Added, None, Some(after), conflict);
            }
            Some((lower, was)) if was.kind == Kind::Directory => {
                self.deleted(path, lower, name, depth)?;
                self.found.push(path, Act::Added, None, Some(after), None);
            }
            Some((lower, was)) => {
                let before = side(lower, name, was);
                match is_same((upper, &after), (lower, &before), name) {
                    Ok(true) => {}
                    Ok(false) if lacks_content(upper, name, &meta) => {
                        let why = "its content is elsewhere (overlay.metacopy)".to_owned();
                        self.found.refuse(path, Act::Modified, Some(before), after, why);
                    }
                    Ok(false) => {
                        let conflict = self.edited(path, &was);
                        self.found.push(path, Act::Modified, Some(before), Some(after), conflict);
                    }
                    Err(e) => {
                        let why = format!("it cannot be compared: {e}");
                        self.found.refuse(path, Act::Modified, Some(before), after, why);
                    }
                }
            }
        }
        Ok(())
    }

    fn made_directory(
        &mut self,
        path: &Path,
        (upper, name): (BorrowedFd<'_>, &Path),
        after: super::Side,
        below: Option<(BorrowedFd<'_>, Meta)>,
        depth: usize,
    ) -> Result<()> {
        let mode = after.meta.mode;
        let is_over = below.as_ref().is_some_and(|(_, was)| was.kind == Kind::Directory);
        let (act, before) = match below {
            Some((lower, was)) if is_over => (Act::Modified, Some((lower, side(lower, name, was)))),
            Some((lower, _)) => {
                self.deleted(path, lower, name, depth)?;
                (Act::Added, None)
            }
            None => (Act::Added, None),
        };
        let was = before.as_ref().map(|(_, side)| side.clone());
        let opened = if depth < MAX_DEPTH {
            beneath::directory(upper, name).map_err(|e| format!("it cannot be opened: {e}"))
        } else {
            Err(format!("it is deeper than {MAX_DEPTH} directories"))
        };
        let opened = match opened {
            Ok(opened) if attribute(opened.as_fd(), "redirect").is_some() => {
                Err("it was renamed within the overlay (overlay.redirect)".to_owned())
            }
            other => other,
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(why) => {
                self.found.refuse(path, act, was, after, why);
                return Ok(());
            }
        };
        if act == Act::Added || was.as_ref().is_some_and(|was| was.meta.mode != mode) {
            let conflict = was.as_ref().and_then(|was| self.edited(path, &was.meta));
            self.found.push(path, act, was, Some(after), conflict);
        }
        let opaque = is_opaque(opened.as_fd());
        let lower = match before {
            Some((lower, _)) => Some(beneath::directory(lower, name).map_err(|e| fails(path, &e))?),
            None => None,
        };
        self.directory(path, opened.as_fd(), lower.as_ref().map(AsFd::as_fd), opaque, depth + 1)
    }

    /// `name` of the folder and all below it are gone.
    fn deleted(&mut self, path: &Path, lower: BorrowedFd<'_>, name: &Path, depth: usize) -> Result<()> {
        let fail = |e: std::io::Error| fails(path, &e);
        let Some(meta) = beneath::look(lower, name).map_err(fail)? else { return Ok(()) };
        let conflict = self.edited(path, &meta);
        self.found.push(path, Act::Deleted, Some(side(lower, name, meta)), None, conflict);
        if meta.kind != Kind::Directory {
            return Ok(());
        }
        if depth >= MAX_DEPTH {
            if let Some(last) = self.found.changes.last_mut() {
                last.refused = Some(format!("it is deeper than {MAX_DEPTH} directories"));
            }
            return Ok(());
        }
        let below = beneath::directory(lower, name).map_err(fail)?;
        for name in self.found.names(below.as_fd(), path)? {
            self.deleted(&path.join(&name), below.as_fd(), Path::new(&name), depth + 1)?;
        }
        Ok(())
    }

    /// Whether the folder's file is another than the agent saw. What an `apply` wrote is known to be ours. Of a
    /// directory the time says nothing: it is changed by what is made in it.
    fn edited(&self, path: &Path, was: &Meta) -> Option<&'static str> {
        let edited = match self.trees.manifest.get(path) {
            Some(known) => !known.is_source(was),
            None => was.kind != Kind::Directory && was.ctime > self.trees.origin.since,
        };
        edited.then_some("it was changed in the folder")
    }
}

/// Whether nothing of the folder shows through a directory of the upper layer.
pub(in crate::session) fn is_opaque(directory: BorrowedFd<'_>) -> bool {
    attribute(directory, "opaque").is_some_and(|value| value == b"y")
}

/// Whether a name of the upper layer says that there is none.
pub(in crate::session) fn is_whiteout(upper: BorrowedFd<'_>, name: &Path, meta: &Meta) -> bool {
    let marked =
        || beneath::file(upper, name).is_ok_and(|(file, _)| attribute(file.as_fd(), "whiteout").is_some());
    meta.is_whiteout || meta.kind == Kind::File && meta.size == 0 && marked()
}

/// Whether it was a file of the folder's first.
fn was_copied_up(upper: BorrowedFd<'_>, name: &Path, meta: &Meta) -> bool {
    let origin = || {
        let (file, _) = beneath::file(upper, name).ok()?;
        attribute(file.as_fd(), "origin")
    };
    meta.kind == Kind::File && origin().is_some()
}

fn lacks_content(upper: BorrowedFd<'_>, name: &Path, meta: &Meta) -> bool {
    let marked =
        || beneath::file(upper, name).is_ok_and(|(file, _)| attribute(file.as_fd(), "metacopy").is_some());
    meta.kind == Kind::File && marked()
}

/// A directory above `path` in the upper layer that hides what the folder has there; `None` when nothing does.
pub(in crate::session) fn hidden_by(upper: BorrowedFd<'_>, path: &Path) -> Option<PathBuf> {
    let above: Vec<&Path> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
    above.into_iter().rev().find_map(|above| {
        let opened = beneath::directory(upper, above).ok()?;
        is_opaque(opened.as_fd()).then(|| above.to_owned())
    })
}
