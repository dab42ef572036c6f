//! The repository of the workspace: the work tree that a command without `--workspace` is for, and the git directory that
//! git needs beside the workspace.

use super::{LaunchRequest, check_workspace};
use crate::session::repository::{
    OutsideGitDirectory, UnverifiedGitDirectory, UnverifiedReason, find_outside_git_directory, find_work_tree,
};
use crate::session::unfinished_scan::{PendingScan, find_pending};
use crate::spec::policy::{EffectivePolicy, FOLDER_FILE_NAMES, PolicyPart};
use crate::supervise::quarantine_monitor::finish_abandoned_scans;
use crate::text::DisplayEscaped;
use std::path::Path;

/// The git directory of the workspace, outside of it.
#[derive(Debug, Default)]
pub(super) struct RepositoryAccess {
    /// The directory that the sandbox shows.
    pub(super) shown: Option<OutsideGitDirectory>,
    /// Why git does not work in the workspace, for people.
    pub(super) problem: Option<String>,
}

/// The workspace of a command that is started in `current`, a path without links: the work tree of its repository. A
/// directory with a policy file is a workspace itself. A work tree that another user may have planted, and one that would
/// show a home directory or the system, is none.
pub(crate) fn workspace_of(current: &Path) -> &Path {
    let Some(tree) = find_work_tree(current) else { return current };
    let has_policy = |directory: &&Path| {
        FOLDER_FILE_NAMES.iter().any(|name| directory.join(name).symlink_metadata().is_ok())
    };
    let within = current.ancestors().take_while(|directory| directory.starts_with(&tree.top));
    let top = within.clone().find(has_policy).or_else(|| within.last()).unwrap_or(current);
    let is_usable = check_workspace(top, false).is_ok() && tree.has_owner_of(current);
    if is_usable { top } else { current }
}

/// Finds the git directory that is shown beside the workspace. A layer that mounts it decides how; one that locks files
/// leaves it out.
pub(super) fn find_git_directory(request: &LaunchRequest, policy: &EffectivePolicy) -> RepositoryAccess {
    // The `.git` of a copy names the git directory of what was copied.
    if request.is_copy {
        return RepositoryAccess::default();
    }
    let is_mounted = |directory: &Path| {
        policy.files.binds.iter().any(|bind| directory.starts_with(&bind.value.destination))
    };
    let workspace = request.workspace.escaped();
    match find_verified(request) {
        Ok(Some(git)) if !is_mounted(&git.common) => match policy.locked_by(PolicyPart::Files) {
            None => RepositoryAccess { shown: Some(git), problem: None },
            Some(layer) => RepositoryAccess {
                shown: None,
                problem: Some(format!(
                    "git does not work in {workspace}: its git directory {} is not mounted, because {layer} locks files",
                    git.common.escaped()
                )),
            },
        },
        Err(unverified) if !is_mounted(&unverified.directory) => {
            RepositoryAccess { shown: None, problem: Some(describe(&request.workspace, &unverified)) }
        }
        Ok(_) | Err(_) => RepositoryAccess::default(),
    }
}

/// What programs of other sandboxes left as `.git` is taken away when these end; those that run are asked about.
fn find_verified(request: &LaunchRequest) -> Result<Option<OutsideGitDirectory>, UnverifiedGitDirectory> {
    let find = || find_outside_git_directory(&request.workspace);
    let found = match find()? {
        Some(_) if request.will_start && finish_abandoned_scans(None) > 0 => find()?,
        found => found,
    };
    let Some(git) = found else { return Ok(None) };
    let wrote = |pending: &PendingScan| {
        git.pointer_changed_ns >= pending.since_ns && !git.common.starts_with(&pending.workspace)
    };
    match find_pending(&request.workspace).iter().any(wrote) {
        true => {
            Err(UnverifiedGitDirectory { directory: git.common, reason: UnverifiedReason::WritableByOthers })
        }
        false => Ok(Some(git)),
    }
}

fn describe(workspace: &Path, unverified: &UnverifiedGitDirectory) -> String {
    let UnverifiedGitDirectory { directory, reason } = unverified;
    let (shown, directory) = (workspace.escaped(), directory.escaped());
    let remedy = match reason {
        UnverifiedReason::MovedWorktree => "run git worktree repair there".to_owned(),
        _ => format!("--rw {directory} mounts it, with hooks and configuration read-only"),
    };
    format!(
        "git does not work in {shown}: its git directory {directory} is not mounted, because {reason}; {remedy}"
    )
}
