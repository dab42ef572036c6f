//! Discards changes: removes the agent's changes, so that the workspace equals the folder.

use super::apply::split;
use super::copy;
use super::diff::{self, WorkspaceTrees, text};
use super::manifest::Manifest;
use super::remove;
use super::workspace_origin::ChangeStorage;
use rustix::fs::{Mode, OFlags};
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Discards the changes of these paths; all changes of an overlay if `paths` is empty. A whole copy is copied again
/// instead ([`recopy`]).
///
/// # Errors
/// [`Code::Refused`] for a path that cannot be discarded alone; [`Code::System`].
pub(crate) fn discard_changes(trees: &mut WorkspaceTrees, paths: &[PathBuf]) -> Result<()> {
    match trees.origin.storage {
        ChangeStorage::Overlay if paths.is_empty() => clear_upper(trees.changed_tree.as_fd()),
        ChangeStorage::Overlay => paths.iter().try_for_each(|path| reveal_lower(trees, path)),
        ChangeStorage::Copy => paths.iter().try_for_each(|path| restore_path(trees, path)),
    }
}

/// Removes everything in an upper layer.
///
/// # Errors
/// [`Code::System`].
pub(crate) fn clear_upper(upper: BorrowedFd<'_>) -> Result<()> {
    let names =
        beneath::read_names(upper, usize::MAX).map_err(|e| Error::system("discard the changes", e))?;
    for name in names {
        remove_atomically(upper, upper, Path::new(&name))
            .map_err(|e| Error::system(format_args!("discard {}", text::show_name(&name)), e))?;
    }
    Ok(())
}

/// Directory next to an upper layer for files that are being removed.
const TRASH: &str = "gone";

/// Removes `name` below `at` from an upper layer atomically, even if this process is killed: a half-removed directory
/// that hides the folder's would mark the removed half as deleted.
fn remove_atomically(upper: BorrowedFd<'_>, at: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let beside = rustix::fs::openat(upper, "..", flags, Mode::empty())?;
    beneath::remove(beside.as_fd(), TRASH)?;
    match rustix::fs::renameat(at, name, &beside, TRASH) {
        // To move a directory, its own mode must permit writes.
        Err(rustix::io::Errno::ACCESS) => {
            drop(beneath::open_overriding_mode(at, name)?);
            rustix::fs::renameat(at, name, &beside, TRASH)?;
        }
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        other => other?,
    }
    beneath::remove(beside.as_fd(), TRASH)
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = text::show_path(path);
    move |e| Error::system(format_args!("discard {path}"), e)
}

fn reveal_lower(trees: &WorkspaceTrees, path: &Path) -> Result<()> {
    let refuse = |above: &Path| {
        let (path, above) = (text::show_path(path), text::show_path(above));
        let message = format!("discard {path} alone: the agent replaced or removed {above} as a whole");
        Err(Error::new(Code::Refused, message).hint(format!("discard {above}")))
    };
    let left = trees.changed_tree.as_fd();
    let (parent, name) = split(path);
    let is_in_folder = beneath::open_directory(trees.folder.as_fd(), parent)
        .is_ok_and(|opened| matches!(beneath::stat_beneath(opened.as_fd(), name), Ok(Some(_))));
    if is_in_folder && let Some(above) = diff::hidden_by(left, path) {
        return refuse(&above);
    }
    match beneath::open_directory(left, parent) {
        Ok(opened) => remove_atomically(left, opened.as_fd(), name).map_err(io_error(path)),
        Err(_) => refuse(parent),
    }
}

/// Copies the folder again, and replaces the old copy. Workers copy and remove; this process only renames.
///
/// # Errors
/// As [`copy::copy_tree`] and [`remove::remove_directory`].
pub(crate) fn recopy(session: &Path, trees: &WorkspaceTrees) -> Result<()> {
    let at = beneath::open_root(session).map_err(io_error(Path::new("")))?;
    let (new, old) = (Path::new("workspace.new"), Path::new("workspace"));
    for name in [new, Path::new("workspace.old")] {
        remove::remove_tree(at.as_fd(), name)?;
    }
    let manifest = copy::copy_tree(&trees.origin.folder, trees.folder.as_fd(), &session.join(new))?;
    // Without a manifest every name counts as changed: until the new one is written, no old one may describe the new
    // copy.
    Manifest::remove(session)?;
    rustix::fs::renameat_with(&at, new, &at, old, rustix::fs::RenameFlags::EXCHANGE)
        .map_err(|e| io_error(old)(e.into()))?;
    manifest.store(session)?;
    remove::remove_tree(at.as_fd(), new)
}

/// Restores one path of the copy from the folder.
fn restore_path(trees: &mut WorkspaceTrees, path: &Path) -> Result<()> {
    let (parent, name) = split(path);
    let opened = match beneath::open_directory(trees.changed_tree.as_fd(), parent) {
        Ok(opened) => opened,
        Err(_) => {
            let (path, parent) = (text::show_path(path), text::show_path(parent));
            let message = format!("discard {path} alone: the agent replaced or removed {parent} as a whole");
            return Err(Error::new(Code::Refused, message).hint(format!("discard {parent}")));
        }
    };
    beneath::remove(opened.as_fd(), name).map_err(io_error(path))?;
    trees.manifest.forget(path);
    let folder = &trees.origin.folder;
    let in_folder = beneath::open_directory(trees.folder.as_fd(), parent);
    if in_folder.is_ok_and(|opened| matches!(beneath::stat_beneath(opened.as_fd(), name), Ok(Some(_)))) {
        let mut manifest = std::mem::take(&mut trees.manifest);
        let copied =
            copy::copy_path(folder, trees.folder.as_fd(), trees.changed_tree.as_fd(), path, &mut manifest);
        trees.manifest = manifest;
        copied?;
    }
    Ok(())
}
