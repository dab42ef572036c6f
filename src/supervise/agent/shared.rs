//! What of the host the programs inside can reach by its path.

use crate::plan::Plan;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The directories of the host that a sandbox shares, by device and inode: whatever names they go by.
pub(super) struct Shared(Vec<Option<(u64, u64)>>);

impl Shared {
    pub(super) fn of(plan: &Plan) -> Self {
        Shared(plan.slots.iter().map(|slot| which(&slot.path)).collect())
    }

    /// Whether what is at `path` lies in one of them. What cannot be looked at may.
    pub(super) fn hold(&self, path: &Path) -> bool {
        let Ok(path) = fs::canonicalize(path) else { return true };
        path.ancestors().skip(1).any(|directory| self.0.contains(&which(directory)))
    }
}

fn which(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}
