//! Protected paths of git directories that are outside of the workspace: that of a linked worktree or a submodule, and one
//! that contains a writable path.

use super::git::GIT_CONTROL_REASON;
use super::{ProtectedPaths, ProtectionFinder};
use crate::protect::BoundedTree;
use crate::repository::{OutsideGitDirectory, is_git_directory};
use saggar_sandbox::spec::Origin;
use std::ffi::OsStr;
use std::path::Path;

/// The git directories of submodules, read-only as a whole and also if there are none at the start: the host's git would
/// take one over when it initializes a submodule of that name.
const MODULES: &str = "modules";
/// Further directories that are read-only: no work on a linked worktree needs them.
const READ_ONLY_DIRECTORIES: [&str; 3] = ["branches", "remotes", "rr-cache"];

/// Finds the protected paths of the git directory of a workspace; changes nothing. What belongs to other worktrees is not
/// included, since it is read-only as a whole.
pub fn find_protected_git_directory(git: &OutsideGitDirectory, git_config: bool) -> ProtectedPaths {
    let Some(mut found) = ProtectionFinder::open(&git.common) else { return ProtectedPaths::default() };
    let (top, work_tree) = (Path::new(""), work_tree_of(&git.common));
    found.protect_git_directory(top, work_tree, git_config, true);
    found.pin_or_create(Path::new(MODULES), None, GIT_CONTROL_REASON);
    for name in [MODULES].into_iter().chain(READ_ONLY_DIRECTORIES) {
        found.protect(Path::new(name), GIT_CONTROL_REASON, Origin::BUILT_IN);
    }
    match &git.worktree {
        Some(own) => {
            found.protect_git_directory(own, work_tree, git_config, false);
            found.protect_modules(&own.join(MODULES), git_config);
        }
        None => found.protect_worktrees(top, git_config),
    }
    let mut found = found.finish();
    // These are mounts, which no program can rename.
    let mounted = git.worktree.iter().flat_map(|own| own.ancestors());
    let mounted: Vec<_> = mounted.map(|path| git.common.join(path)).collect();
    found.pins.retain(|pin| pin.read_only || !mounted.contains(&pin.path));
    found
}

/// The work tree that paths in the configuration and in hooks of a git directory are relative to, as far as they lead back
/// into it.
fn work_tree_of(git: &Path) -> &Path {
    match git.parent() {
        Some(top) if git.file_name() == Some(OsStr::new(".git")) => top,
        _ => git,
    }
}

/// Finds the protected paths at or below `path` of a git directory that contains it; changes nothing. Returns that
/// directory with them.
pub fn find_protected_below_git_directory(path: &Path, git_config: bool) -> Option<(&Path, ProtectedPaths)> {
    let contains =
        |above: &&Path| BoundedTree::open(above).is_ok_and(|tree| is_git_directory(&tree, Path::new("")));
    let git = path.ancestors().skip(1).find(contains)?;
    let mut found = ProtectionFinder::open(git)?;
    found.protect_git_directory_tree(Path::new(""), work_tree_of(git), git_config);
    Some((git, found.finish().below(path, git)))
}
