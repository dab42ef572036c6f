//! Throws changes away: what the agent left goes, and the workspace is what the folder is.

use super::apply::split;
use super::beneath;
use super::copy;
use super::diff::{self, Trees, text};
use super::manifest::Manifest;
use super::remove;
use super::workspace::Place;
use crate::error::{Code, Error, Result};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Throws the changes of these paths away, of all of an overlay when there is none. A whole copy is made anew ([`anew`]).
///
/// # Errors
/// [`Code::Refused`] for a path that cannot be thrown away alone; [`Code::System`].
pub fn discard(trees: &mut Trees, paths: &[PathBuf]) -> Result<()> {
    match trees.origin.place {
        Place::Overlay if paths.is_empty() => clear(trees.left.as_fd()),
        Place::Overlay => paths.iter().try_for_each(|path| uncover(trees, path)),
        Place::Copy => paths.iter().try_for_each(|path| restore(trees, path)),
    }
}

/// Removes everything in an upper layer.
///
/// # Errors
/// [`Code::System`].
pub fn clear(upper: BorrowedFd<'_>) -> Result<()> {
    let names = beneath::names(upper, usize::MAX).map_err(|e| Error::system("discard the changes", e))?;
    for name in names {
        take_away(upper, upper, Path::new(&name))
            .map_err(|e| Error::system(format_args!("discard {}", text::name(&name)), e))?;
    }
    Ok(())
}

/// Beside an upper layer: what is on its way out.
const GONE: &str = "gone";

/// Removes `name` below `at` from an upper layer as a whole, whenever this process is killed: half of a directory that
/// hides what lies below it would say that the other half was deleted.
fn take_away(upper: BorrowedFd<'_>, at: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let beside = rustix::fs::openat(upper, "..", flags, Mode::empty())?;
    beneath::remove(beside.as_fd(), GONE)?;
    match rustix::fs::renameat(at, name, &beside, GONE) {
        // To move a directory is to change it.
        Err(rustix::io::Errno::ACCESS) => {
            drop(beneath::open_to_change(at, name)?);
            rustix::fs::renameat(at, name, &beside, GONE)?;
        }
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        other => other?,
    }
    beneath::remove(beside.as_fd(), GONE)
}

fn fails(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = text::path(path);
    move |e| Error::system(format_args!("discard {path}"), e)
}

fn uncover(trees: &Trees, path: &Path) -> Result<()> {
    let refuse = |above: &Path| {
        let (path, above) = (text::path(path), text::path(above));
        let message = format!("discard {path} alone: the agent replaced or removed {above} as a whole");
        Err(Error::new(Code::Refused, message).hint(format!("discard {above}")))
    };
    let left = trees.left.as_fd();
    let (parent, name) = split(path);
    let is_in_folder = beneath::directory(trees.folder.as_fd(), parent)
        .is_ok_and(|opened| matches!(beneath::look(opened.as_fd(), name), Ok(Some(_))));
    if is_in_folder && let Some(above) = diff::hidden_by(left, path) {
        return refuse(&above);
    }
    match beneath::directory(left, parent) {
        Ok(opened) => take_away(left, opened.as_fd(), name).map_err(fails(path)),
        Err(_) => refuse(parent),
    }
}

/// Makes the whole copy again, in the place of the old one. Workers copy and remove; here names change.
///
/// # Errors
/// As [`copy::tree`] and [`remove::directory`].
pub fn anew(session: &Path, trees: &Trees) -> Result<()> {
    let at = beneath::root(session).map_err(fails(Path::new("")))?;
    let (new, old) = (Path::new("workspace.new"), Path::new("workspace"));
    for name in [new, Path::new("workspace.old")] {
        remove::tree(at.as_fd(), name)?;
    }
    let manifest = copy::tree(&trees.origin.folder, trees.folder.as_fd(), &session.join(new))?;
    // Without a manifest everything counts as changed: until the new one is there, no old one may speak for the new
    // copy.
    Manifest::remove(session)?;
    rustix::fs::renameat_with(&at, new, &at, old, rustix::fs::RenameFlags::EXCHANGE)
        .map_err(|e| fails(old)(e.into()))?;
    manifest.store(session)?;
    remove::tree(at.as_fd(), new)
}

/// One path of the copy as the folder has it now.
fn restore(trees: &mut Trees, path: &Path) -> Result<()> {
    let (parent, name) = split(path);
    let opened = match beneath::directory(trees.left.as_fd(), parent) {
        Ok(opened) => opened,
        Err(_) => {
            let (path, parent) = (text::path(path), text::path(parent));
            let message = format!("discard {path} alone: the agent replaced or removed {parent} as a whole");
            return Err(Error::new(Code::Refused, message).hint(format!("discard {parent}")));
        }
    };
    beneath::remove(opened.as_fd(), name).map_err(fails(path))?;
    trees.manifest.forget(path);
    let folder = &trees.origin.folder;
    let in_folder = beneath::directory(trees.folder.as_fd(), parent);
    if in_folder.is_ok_and(|opened| matches!(beneath::look(opened.as_fd(), name), Ok(Some(_)))) {
        let mut manifest = std::mem::take(&mut trees.manifest);
        let copied = copy::part(folder, trees.folder.as_fd(), trees.left.as_fd(), path, &mut manifest);
        trees.manifest = manifest;
        copied?;
    }
    Ok(())
}
