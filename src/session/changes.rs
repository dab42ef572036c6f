//! The changes of an overlay that are kept on disk: `<session>/upper/{changes, work}`, as overlayfs lays them out.
//! They stay when there are any.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::{beneath, make};
use crate::error::{Code, Error, Result};
use crate::state;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where the changes of one sandbox are.
#[derive(Debug)]
pub struct Kept {
    session: PathBuf,
    /// Whether the place is ours to remove.
    is_ours: bool,
}

impl Kept {
    /// The place for changes of the tree `lower` in the directory of a session; those of an earlier run are there
    /// only when it is gone on with.
    ///
    /// # Errors
    /// [`Code::Exists`] when there are some of another run; [`Code::System`].
    pub fn new(session: &Path, lower: &Path, resume: bool) -> Result<Self> {
        let upper = session.join("upper");
        state::own_directory(session)?;
        match fs::DirBuilder::new().mode(0o700).create(&upper) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && resume => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let message = format!("{} has the changes of another sandbox of this name", upper.display());
                return Err(Error::new(Code::Exists, message).hint("choose another --id, or move them away"));
            }
            other => other.map_err(|e| Error::system(format_args!("make {}", upper.display()), e))?,
        }
        let kept = Kept { session: session.to_owned(), is_ours: true };
        // Of root's sandboxes the owner of the tree owns its changes. Nobody else gets there: the session is closed.
        if nix::unistd::geteuid().is_root() {
            let give = || {
                let owner = beneath::itself(beneath::root(lower)?.as_fd())?.owner;
                let upper = beneath::directory(beneath::root(session)?.as_fd(), "upper")?;
                make::own(upper.as_fd(), Some(owner))
            };
            give().map_err(|e| Error::system(format_args!("give {} away", upper.display()), e))?;
        }
        Ok(kept)
    }

    /// The directory in which it is: the session's, or its image's.
    pub fn place(&self) -> &Path {
        &self.session
    }

    /// The directory that takes them.
    pub fn directory(&self) -> PathBuf {
        self.session.join("upper")
    }

    /// From now on [`crate::launch::guard`] removes the place where there are no changes: when it has done so, the
    /// name may be another sandbox's.
    pub fn leave_to_guard(&mut self) {
        self.is_ours = false;
    }

    /// Where the changes themselves are, when there are any.
    pub fn changes_directory(&self) -> PathBuf {
        self.directory().join("changes")
    }

    /// The changes themselves, when there are any.
    pub fn changes(&self) -> Option<PathBuf> {
        let changes = self.changes_directory();
        let any = fs::read_dir(&changes).is_ok_and(|mut entries| entries.next().is_some());
        any.then_some(changes)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.is_ours || self.changes().is_some() {
            return;
        }
        // The kernel's own directory in it has no mode that lets anybody in.
        let _ = beneath::root(&self.session).and_then(|session| beneath::remove(session.as_fd(), "upper"));
        // Only when nothing else of a session is there.
        let _ = fs::remove_dir(&self.session);
    }
}
