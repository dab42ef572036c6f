//! The lock of the data directory: one server uses it at a time.

use crate::error::{Context, Error, Result};
use std::fs::{File, TryLockError};
use std::path::Path;

/// Locks the data directory for as long as the returned file is open (flock(2)). The kernel releases the lock when the
/// process exits; no sandbox inherits the file.
///
/// # Errors
/// Fails if another server holds the lock, or if the file `lock` cannot be created.
pub fn lock_data_directory(data_dir: &Path) -> Result<File> {
    let context = || format!("cannot use data directory {}", data_dir.display());
    let file = File::create(data_dir.join("lock")).context(context)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::new(format!(
            "{}: another saggar-server uses it; stop that server, or choose another directory with --data",
            context()
        ))),
        Err(TryLockError::Error(error)) => Err(error).context(context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_locked_until_its_file_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let lock = lock_data_directory(directory.path()).unwrap();
        let refused = lock_data_directory(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("another saggar-server uses it"), "{refused}");
        drop(lock);
        lock_data_directory(directory.path()).unwrap();
    }
}
