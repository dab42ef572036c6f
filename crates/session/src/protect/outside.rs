//! Protected paths of git directories that are outside of the workspace: that of a linked worktree or a submodule, and one
//! that contains a writable path.

use super::{ProtectedPaths, ProtectionFinder};
use crate::protect::BoundedTree;
use crate::repository::{OutsideGitDirectory, is_git_directory};
use saggar_sandbox::spec::Origin;
use std::path::Path;

/// A work tree for paths that configurations and hooks name: none of those are in the git directory.
const NO_WORK_TREE: &str = "/";

/// Finds the protected paths of the git directory of a workspace; changes nothing. What belongs to other worktrees is not
/// included, since it is read-only as a whole.
pub fn find_protected_git_directory(git: &OutsideGitDirectory, git_config: bool) -> ProtectedPaths {
    let Some(mut found) = ProtectionFinder::open(&git.common) else { return ProtectedPaths::default() };
    let (top, work_tree) = (Path::new(""), Path::new(NO_WORK_TREE));
    found.protect_git_directory(top, work_tree, git_config, true);
    found.protect_modules(Path::new("modules"), git_config);
    match &git.worktree {
        Some(own) => {
            found.protect_git_directory(own, work_tree, git_config, false);
            found.protect_modules(&own.join("modules"), git_config);
        }
        None => found.protect_worktrees(top, git_config),
    }
    for inner in &git.inner_work_trees {
        found.protect(inner, "another work tree of the repository", Origin::BUILT_IN);
    }
    let mut found = found.finish();
    // These are mounts, which no program can rename.
    let mounted = git.worktree.iter().flat_map(|own| own.ancestors());
    let mounted: Vec<_> = mounted.map(|path| git.common.join(path)).collect();
    found.pins.retain(|pin| pin.read_only || !mounted.contains(&pin.path));
    found
}

/// Finds the protected paths at or below `path` of a git directory that contains it; changes nothing. Returns that
/// directory with them.
pub fn find_protected_below_git_directory(path: &Path, git_config: bool) -> Option<(&Path, ProtectedPaths)> {
    let contains =
        |above: &&Path| BoundedTree::open(above).is_ok_and(|tree| is_git_directory(&tree, Path::new("")));
    let git = path.ancestors().skip(1).find(contains)?;
    let mut found = ProtectionFinder::open(git)?;
    found.protect_git_directory_tree(Path::new(""), Path::new(NO_WORK_TREE), git_config);
    Some((git, found.finish().below(path, git)))
}
