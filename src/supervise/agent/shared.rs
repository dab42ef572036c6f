//! What of the host the programs inside can reach by its path.

use crate::plan::Plan;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether what is at `path` lies in a directory of the host that the sandbox shares, by whatever names either goes.
/// What cannot be looked at may.
pub(super) fn is_shared(plan: &Plan, path: &Path) -> bool {
    let which = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let shared: Vec<_> = plan.slots.iter().map(|slot| which(&slot.path)).collect();
    let Ok(path) = fs::canonicalize(path) else { return true };
    path.ancestors().skip(1).any(|directory| shared.contains(&which(directory)))
}
