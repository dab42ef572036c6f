//! The protected paths of what is writable in a sandbox: the workspace, the git directory of its repository, and other
//! trees of the host that a layer names.

use super::LaunchRequest;
use crate::error::Result;
use crate::session::named_paths::{self, NamedPath, NamedPaths};
use crate::session::protect::{self, ProtectedPaths};
use crate::session::repository::OutsideGitDirectory;
use crate::spec::PinnedPath;
use crate::spec::policy::{BindAccess, BindMount, EffectivePolicy, LoadedPolicy, PolicyLayer};
use crate::text::DisplayEscaped;
use std::path::{Path, PathBuf};

/// The protected paths of other trees of the host that are writable inside: an operator that names a repository does
/// not mean its hooks. Trees may lie in each other, so a start makes what one lacks before it looks at the next.
pub(super) fn writable_trees(policy: &EffectivePolicy, start: bool) -> Result<Vec<PinnedPath>> {
    let binds = policy.files.binds.iter().map(|bind| &bind.value);
    let git_config = policy.protect.git_config.value;
    let mut pins = Vec::new();
    for bind in binds.filter(|bind| bind.access == BindAccess::ReadWrite) {
        let source = &bind.source;
        let tree = (source.as_path(), protect::find_protected(source, git_config, None, &[]));
        let git = protect::find_protected_below_git_directory(source, git_config);
        for (root, found) in [Some(tree), git].into_iter().flatten() {
            if start {
                found.create_missing(root)?;
                found.separate_hard_links(root)?;
            }
            pins.extend(found.pins.into_iter().filter_map(|pin| pin_inside(policy, bind, pin)));
        }
    }
    Ok(pins)
}

/// The pin of a path of the host at its place in the sandbox, if that file is there.
fn pin_inside(policy: &EffectivePolicy, bind: &BindMount, mut pin: PinnedPath) -> Option<PinnedPath> {
    let file = pin.path.clone();
    if let Ok(relative) = file.strip_prefix(&bind.source) {
        pin.path = bind.destination.join(relative);
    }
    (!is_covered(policy, &bind.destination, &pin.path, &file)).then_some(pin)
}

/// The protected paths of the git directory of the workspace's repository, and those that its configuration names and that
/// do not exist.
pub(super) fn git_directory(
    git: &OutsideGitDirectory,
    policy: &EffectivePolicy,
    start: bool,
) -> Result<(Vec<PinnedPath>, Vec<PathBuf>)> {
    let mut found = protect::find_protected_git_directory(git, policy.protect.git_config.value);
    if start {
        found.create_missing(&git.common)?;
        found.separate_hard_links(&git.common)?;
    }
    found.pins.retain(|pin| !is_covered(policy, &git.common, &pin.path, &pin.path));
    Ok((found.pins, found.unresolved_paths))
}

/// Whether a layer mounts something else over this file of a tree. Nothing of the file is at `path` then, and the pin
/// that protects it would be made of what covers it.
pub(super) fn is_covered(policy: &EffectivePolicy, tree: &Path, path: &Path, file: &Path) -> bool {
    let binds = policy.files.binds.iter().map(|bind| &bind.value);
    let over = binds.filter(|bind| path.starts_with(&bind.destination) && bind.destination.starts_with(tree));
    let topmost = over.max_by_key(|bind| bind.destination.components().count());
    topmost.is_some_and(|bind| {
        path.strip_prefix(&bind.destination).is_ok_and(|below| bind.source.join(below) != file)
    })
}

/// The paths that the policy names in the workspace, and a warning about entries of the caller's that name none. Those of a
/// copy that is still to be made are found in what is copied.
pub(super) fn find_named(request: &LaunchRequest, policy: &EffectivePolicy) -> Result<NamedPaths> {
    let root = request.copied_from().unwrap_or(&request.workspace);
    let named = named_paths::find_named(root, &request.workspace, policy)?;
    if request.will_start && !policy.quiet_degraded.value {
        // The configuration of a host is for all its workspaces.
        let of_caller = |layer: &PolicyLayer| !matches!(layer, PolicyLayer::Operator(_));
        for entry in named.unmatched.iter().filter(|entry| of_caller(&entry.layer)) {
            log::warn!("{entry} in {} (from {})", request.workspace.escaped(), entry.layer);
        }
    }
    Ok(named)
}

/// The protected paths of the workspace. Those of a copy that is still to be made are found in what is copied.
pub(super) fn workspace(
    request: &LaunchRequest,
    policy: &LoadedPolicy,
    git: Option<&OutsideGitDirectory>,
    named: &[NamedPath],
) -> ProtectedPaths {
    let protect = &policy.effective.protect;
    let mut more: Vec<(&Path, &PolicyLayer)> =
        named.iter().map(|named| (named.path.as_path(), &named.layer)).collect();
    let files: Vec<(PathBuf, &PolicyLayer)> =
        policy.files.iter().filter_map(|file| Some((file.path.canonicalize().ok()?, &file.layer))).collect();
    more.extend(
        files.iter().filter_map(|(file, layer)| Some((file.strip_prefix(&request.workspace).ok()?, *layer))),
    );
    let Some(original) = request.copied_from() else {
        return protect::find_protected(&request.workspace, protect.git_config.value, git, &more);
    };
    let mut found = protect::find_protected(original, protect.git_config.value, None, &more);
    let rebase = |path: &mut PathBuf| {
        if let Ok(relative) = path.strip_prefix(original) {
            *path = request.workspace.join(relative);
        }
    };
    found.pins.iter_mut().for_each(|pin| rebase(&mut pin.path));
    found.paths_to_create.iter_mut().for_each(|missing| rebase(&mut missing.path));
    found
}
