//! One `apply` at a time per folder. The lock is a file in our runtime directory, named by the folder's inode: any
//! program that can read the folder could hold a lock on the folder itself forever (flock(2)).

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use nix::fcntl::{Flock, FlockArg};
use saggar_sandbox::state;
use saggar_sys::beneath::FileMeta;
use saggar_sys::error::{Code, Error, Result};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The lock, held until this is dropped.
#[derive(Debug)]
pub struct ApplyLock {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Drop for ApplyLock {
    fn drop(&mut self) {
        // Removed while it is still locked: a process that has it open finds another file at the path and retries.
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the lock of the folder `folder`, which messages call `shown`.
///
/// # Errors
/// [`Code::Exists`] while another process holds it; [`Code::System`].
pub(super) fn acquire(folder: &FileMeta, shown: &str) -> Result<ApplyLock> {
    state::with_shared_locks(|runtime| acquire_in(runtime, folder, shown))
}

fn acquire_in(runtime: &Path, folder: &FileMeta, shown: &str) -> Result<ApplyLock> {
    let (major, minor) = folder.device;
    let path = runtime.join(format!("apply-{major}-{minor}-{}.lock", folder.inode));
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
            return Ok(ApplyLock { path, _lock: lock });
        }
    }
}
