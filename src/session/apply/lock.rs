//! One `apply` at a time into one folder. The lock is in our runtime directory, by the folder's inode: on the folder
//! itself any program that can read it could hold one for ever (flock(2)).

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use crate::error::{Code, Error, Result};
use crate::session::beneath::Meta;
use crate::state;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Held for as long as it is there.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still held: a process that has it open finds at the path that it is another one now.
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the lock of the folder `folder`, which is shown as `shown`.
///
/// # Errors
/// [`Code::Exists`] while another process has it; [`Code::System`].
pub(super) fn take(folder: &Meta, shown: &str) -> Result<Lock> {
    let (major, minor) = folder.device;
    let path = state::runtime_dir()?.join(format!("apply-{major}-{minor}-{}.lock", folder.inode));
    let fail = |e: std::io::Error| Error::system(format_args!("open {}", path.display()), e);
    loop {
        let file = state::lock_options().create(true).open(&path).map_err(fail)?;
        let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
            let message = format!("apply changes to {shown}: another saggar is doing just that");
            return Err(Error::new(Code::Exists, message).hint("try again when it is done"));
        };
        let ours = lock.metadata().map_err(fail)?;
        let is_current = fs::symlink_metadata(&path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
        if is_current {
            return Ok(Lock { path, _lock: lock });
        }
    }
}
