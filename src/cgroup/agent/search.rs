//! A search for directories of sandboxes in a hierarchy.

use crate::id::SandboxId;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

/// Maximum depth of the search.
const MAX_DEPTH: usize = 16;

/// The directories below `root` for which `sandbox` returns an id. In those nothing more is searched for.
pub(super) fn search(
    root: &Path,
    sandbox: &dyn Fn(&DirEntry, &Path) -> Option<SandboxId>,
) -> Vec<(SandboxId, PathBuf)> {
    let mut found = Vec::new();
    search_below(root, sandbox, MAX_DEPTH, &mut found);
    found
}

fn search_below(
    directory: &Path,
    sandbox: &dyn Fn(&DirEntry, &Path) -> Option<SandboxId>,
    depth: usize,
    found: &mut Vec<(SandboxId, PathBuf)>,
) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        match sandbox(&entry, &path) {
            Some(id) => found.push((id, path)),
            None if depth > 0 => search_below(&path, sandbox, depth - 1, found),
            None => {}
        }
    }
}
