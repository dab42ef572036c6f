//! Applies changes to the folder in three phases. First every change is checked, and nothing is done if any is refused.
//! Then all new content is written into files without a name. Only then the folder changes, name by name, each by one
//! system call.
//!
//! ```text
//! check ─> write (unnamed files: content, owner, mode, synced) ─> delete, create, link or rename ─> directory modes
//! ```
//! Other programs may use the folder meanwhile, and exchange any name at any time: see [`super::create`].
//!
//! Each file is therefore the old one or the new one at any time. The tree as a whole is not: if the process is killed
//! in the last phase, some names are changed and others are not, and the same command again completes the rest.

mod applier;
mod lock;

pub use lock::ApplyLock;

use super::diff::{FileChange, WorkspaceTrees, text};
use applier::Applier;
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Directory of the folder for files that are about to replace another one by a rename.
const STAGING_DIRECTORY: &str = ".saggar-apply";
/// Most bytes of new content that one apply writes. An agent can create a sparse file of any size, which is refused
/// before it is copied.
const MAX_BYTES: u64 = 64 << 30;
/// Most reasons in one message.
const MAX_REASONS: usize = 10;

/// Exceptions that the operator allows.
#[derive(Debug, Clone, Default)]
pub struct ApplyOptions {
    /// Changes of protected names.
    pub allow_protected: bool,
    /// Overwriting names that have changed in the folder meanwhile.
    pub allow_conflicts: bool,
    /// Symbolic links that lead out of the folder, or to a protected name.
    pub allow_links: bool,
}

/// Refuses changes that are never applied, or not without permission.
///
/// # Errors
/// [`Code::Refused`] with every reason.
pub fn check_changes(changes: &[FileChange], allowed: &ApplyOptions) -> Result<()> {
    let mut reasons: Vec<String> = Vec::new();
    let mut remedies: BTreeSet<&str> = BTreeSet::new();
    for change in changes {
        let path = text::show_path(&change.path);
        if let Some(why) = &change.rejected {
            reasons.push(format!("{path}: {why}"));
            remedies.insert("name the other paths");
        } else if let Some(why) = change.protected_because.as_ref().filter(|_| !allowed.allow_protected) {
            reasons.push(format!("{path}: it is protected: {why}"));
            remedies.insert("read the change, then use --allow-protected");
        } else if let Some(why) = change.escapes.as_ref().filter(|_| !allowed.allow_links) {
            reasons.push(format!("{path}: {why}"));
            remedies.insert("look where the links lead, then use --allow-links");
        } else if let Some(why) = change.conflict.as_ref().filter(|_| !allowed.allow_conflicts) {
            reasons.push(format!("{path}: {why}"));
            remedies.insert("merge by hand, or use --force");
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let more = reasons.len().saturating_sub(MAX_REASONS);
    reasons.truncate(MAX_REASONS);
    let mut message = format!("apply changes, and nothing was done: {}", reasons.join("; "));
    if more > 0 {
        message.push_str(&format!("; and {more} more"));
    }
    let remedies: Vec<&str> = remedies.into_iter().collect();
    Err(Error::new(Code::Refused, message).hint(remedies.join("; ")))
}

/// Takes the lock of the folder: one apply at a time.
///
/// # Errors
/// [`Code::Exists`] while another process applies changes to it; [`Code::System`].
pub(crate) fn lock_folder(trees: &WorkspaceTrees) -> Result<ApplyLock> {
    let folder = beneath::stat_fd(trees.folder.as_fd()).map_err(io_error(Path::new("")))?;
    lock::acquire(&folder, &text::show_path(&trees.origin.folder))
}

/// Applies changes that [`check_changes`] has accepted, and records them in the manifest of `trees`. The caller holds
/// the lock of the folder.
///
/// # Errors
/// [`Code::Refused`] when the folder is not as it was compared, and [`Code::Invalid`] for more changes than can be
/// applied at once; in both cases nothing is changed. [`Code::System`], with the changes that were applied.
pub fn apply(trees: &mut WorkspaceTrees, changes: &[FileChange], allowed: &ApplyOptions) -> Result<()> {
    let shown = text::show_path(&trees.origin.folder);
    let folder = beneath::stat_fd(trees.folder.as_fd()).map_err(io_error(Path::new("")))?;
    let mut work = Applier::new(trees, folder, allowed);
    let written =
        is_bounded(changes).and_then(|()| work.verify(changes)).and_then(|()| work.write_new_files(changes));
    let done = written.and_then(|written| work.commit(changes, written));
    let tidied = beneath::remove(trees.folder.as_fd(), STAGING_DIRECTORY)
        .map_err(|e| Error::system(format_args!("remove {shown}/{STAGING_DIRECTORY}"), e));
    let known = std::mem::take(&mut work.manifest_updates);
    for (path, known) in known {
        trees.manifest.set(&path, known);
    }
    done.and(tidied)
}

fn is_bounded(changes: &[FileChange]) -> Result<()> {
    let files = changes.iter().filter_map(|change| change.after.as_ref());
    let files = files.filter(|after| after.meta.kind == FileKind::File);
    if files.fold(0u64, |sum, after| sum.saturating_add(after.meta.size)) <= MAX_BYTES {
        return Ok(());
    }
    let message = format!("apply changes, and nothing was done: they have more than {} GiB", MAX_BYTES >> 30);
    Err(Error::new(Code::Invalid, message).hint("name paths, and apply the changes in parts"))
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = text::show_path(path);
    move |e| Error::system(format_args!("apply {path}"), e)
}

/// Splits a path into its directory and its name.
pub(super) fn split(path: &Path) -> (&Path, &Path) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().map_or(path, Path::new))
}
