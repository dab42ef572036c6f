//! The changes of an overlay that are kept on disk: `<session>/upper/{changes, work}`, in the format of overlayfs. They
//! are kept if there are any.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::create;
use saggar_sandbox::state;
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of one sandbox's changes.
#[derive(Debug)]
pub struct RetainedChanges {
    session: PathBuf,
    /// Whether this process removes the directory if it is empty.
    is_owned: bool,
}

impl RetainedChanges {
    /// The directory in a session for changes of the tree `lower`; changes of an earlier run may exist only if it is
    /// resumed.
    ///
    /// # Errors
    /// [`Code::Exists`] when there are changes of another run; [`Code::System`].
    pub fn new(session: &Path, lower: &Path, resume: bool) -> Result<Self> {
        let upper = session.join("upper");
        state::ensure_private_directory(session)?;
        match fs::DirBuilder::new().mode(0o700).create(&upper) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && resume => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let message = format!("{} has the changes of another sandbox of this name", upper.display());
                return Err(Error::new(Code::Exists, message).hint("choose another --id, or move them away"));
            }
            other => other.map_err(|e| Error::system(format_args!("make {}", upper.display()), e))?,
        }
        let kept = RetainedChanges { session: session.to_owned(), is_owned: true };
        // For sandboxes of root the owner of the tree owns its changes. Other users cannot reach them: the session's
        // directory is closed.
        if nix::unistd::geteuid().is_root() {
            let give = || {
                let owner = beneath::stat_fd(beneath::open_root(lower)?.as_fd())?.owner;
                let upper = beneath::open_directory(beneath::open_root(session)?.as_fd(), "upper")?;
                create::set_owner(upper.as_fd(), Some(owner))
            };
            give().map_err(|e| Error::system(format_args!("give {} away", upper.display()), e))?;
        }
        Ok(kept)
    }

    /// The directory above it: the session's, or its image's.
    pub fn parent_directory(&self) -> &Path {
        &self.session
    }

    /// The directory of `changes` and `work`.
    pub fn directory(&self) -> PathBuf {
        self.session.join("upper")
    }

    /// From now on [`saggar_sandbox::launch::agent::cleanup`] removes the directory if it has no changes: after that another sandbox may
    /// use the name.
    pub fn leave_to_guard(&mut self) {
        self.is_owned = false;
    }

    /// The directory of the changes, even if there are none.
    pub fn changes_directory(&self) -> PathBuf {
        self.directory().join("changes")
    }

    /// The directory of the changes, if there are any.
    pub fn changes_if_any(&self) -> Option<PathBuf> {
        let changes = self.changes_directory();
        let any = fs::read_dir(&changes).is_ok_and(|mut entries| entries.next().is_some());
        any.then_some(changes)
    }
}

impl Drop for RetainedChanges {
    fn drop(&mut self) {
        if !self.is_owned || self.changes_if_any().is_some() {
            return;
        }
        // The kernel's own directory in it has a mode that denies all access.
        let _ =
            beneath::open_root(&self.session).and_then(|session| beneath::remove(session.as_fd(), "upper"));
        // Succeeds only if nothing else of a session is there.
        let _ = fs::remove_dir(&self.session);
    }
}
