//! Takes changes over into the folder. First everything is looked at and nothing is done when anything is refused;
//! then all new content is written into files that have no name yet; and only then the folder changes, name by name,
//! each by one system call.
//!
//! ```text
//! check ─> write (files without a name: content, owner, mode, synced) ─> delete, make, link or rename ─> directories' modes
//! ```
//! Other programs may be at work in the folder meanwhile, and exchange any name at any moment: [`super::make`].
//!
//! So a file is the old one or the new one at any moment. The tree as a whole is not: who is killed in the last part
//! leaves some names changed and others not, and the same command again does the rest.

mod lock;
mod work;

pub use lock::Lock;

use super::beneath::{self, Kind};
use super::diff::{Change, Trees, text};
use crate::error::{Code, Error, Result};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use work::Work;

/// What gets its place by a rename has a name in this directory of the folder until then.
const STAGE: &str = ".saggar-apply";
/// The most bytes of new content that one apply writes: a file without end, as an agent can leave one that takes no room
/// of its own, is refused before it is copied.
const MOST_BYTES: u64 = 64 << 30;
/// How many reasons one message gives.
const REASONS: usize = 10;

/// What the operator allows.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    /// Names that are protected.
    pub protected: bool,
    /// To write over what has changed in the folder meanwhile.
    pub conflicts: bool,
    /// Symbolic links that lead out of the folder, or to a protected name.
    pub links: bool,
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
        } else if let Some(why) = change.leads_out.as_ref().filter(|_| !allowed.links) {
            reasons.push(format!("{path}: {why}"));
            cures.insert("look where the links lead, then use --allow-links");
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

/// Takes the lock of the folder: one apply at a time.
///
/// # Errors
/// [`Code::Exists`] while another process applies changes to it; [`Code::System`].
pub fn hold(trees: &Trees) -> Result<Lock> {
    let folder = beneath::itself(trees.folder.as_fd()).map_err(fails(Path::new("")))?;
    lock::take(&folder, &text::path(&trees.origin.folder))
}

/// Does what [`check`] has let through. What was done is then known to the manifest of `trees`. The caller has the
/// lock of the folder.
///
/// # Errors
/// [`Code::Refused`] when the folder is not as it was compared, and then nothing is done; [`Code::Invalid`] for more
/// than can be applied at once, and then nothing is done either; [`Code::System`], saying how far it came.
pub fn apply(trees: &mut Trees, changes: &[Change], allowed: &Allowed) -> Result<()> {
    let shown = text::path(&trees.origin.folder);
    let folder = beneath::itself(trees.folder.as_fd()).map_err(fails(Path::new("")))?;
    let mut work = Work::new(trees, folder, allowed);
    let written = is_bounded(changes).and_then(|()| work.look(changes)).and_then(|()| work.write(changes));
    let done = written.and_then(|written| work.change(changes, written));
    let tidied = beneath::remove(trees.folder.as_fd(), STAGE)
        .map_err(|e| Error::system(format_args!("remove {shown}/{STAGE}"), e));
    let known = std::mem::take(&mut work.known);
    for (path, known) in known {
        trees.manifest.set(&path, known);
    }
    done.and(tidied)
}

fn is_bounded(changes: &[Change]) -> Result<()> {
    let files = changes.iter().filter_map(|change| change.after.as_ref());
    let files = files.filter(|after| after.meta.kind == Kind::File);
    if files.fold(0u64, |sum, after| sum.saturating_add(after.meta.size)) <= MOST_BYTES {
        return Ok(());
    }
    let message =
        format!("apply changes, and nothing was done: they have more than {} GiB", MOST_BYTES >> 30);
    Err(Error::new(Code::Invalid, message).hint("name paths, and apply the changes in parts"))
}

fn fails(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = text::path(path);
    move |e| Error::system(format_args!("apply {path}"), e)
}

/// The directory of a name, and the name.
pub(super) fn split(path: &Path) -> (&Path, &Path) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().map_or(path, Path::new))
}
