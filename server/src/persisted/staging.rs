//! Directories for files that are on their way to or from the snapshot store.

use crate::error::{Context, Result};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A directory with mode 0700 in the data directory. Dropping it removes it with its files.
#[derive(Debug)]
pub(super) struct Staging {
    path: PathBuf,
}

impl Staging {
    pub(super) fn create(data_dir: &Path) -> Result<Self> {
        let path = directory(data_dir).join(Uuid::new_v4().to_string());
        let context = || format!("cannot create {}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&path).context(context)?;
        Ok(Staging { path })
    }

    /// The path of a file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What remains is removed at the next start.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what a server that was killed has left.
pub(super) fn remove_remains(data_dir: &Path) {
    let _ = fs::remove_dir_all(directory(data_dir));
}

fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("staging")
}
