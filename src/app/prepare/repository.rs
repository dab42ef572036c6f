//! The repository of the workspace: the work tree that a command without `--workspace` is for, and the git directory that
//! git needs beside the workspace.

use super::program_lookup::is_in_hidden_directory_of_home;
use super::{LaunchRequest, OwnBind, check_workspace};
use crate::app::SandboxOptions;
use crate::error::{Error, Result};
use crate::session::repository::{
    self, GitDirectoryPlace, OutsideGitDirectory, UnverifiedGitDirectory, UnverifiedReason, find_work_tree,
    plain_path,
};
use crate::session::unfinished_scan::pending_writers;
use crate::spec::policy::{BindAccess, BindMount, EffectivePolicy, FOLDER_FILE_NAMES, PolicyPart};
use crate::supervise::quarantine_monitor::finish_abandoned_scans;
use crate::text::DisplayEscaped;
use std::path::{Path, PathBuf};

/// What a work tree does not contain, but a home directory does.
const HOME_MARKS: [&str; 3] = [".ssh", ".gnupg", ".netrc"];

/// The git directory of the workspace, if that is outside of it.
#[derive(Debug, Default)]
pub(super) struct RepositoryAccess {
    /// The directory that programs see.
    pub(super) found: Option<(OutsideGitDirectory, GitMount)>,
    /// Why git does not work in the workspace, for people.
    pub(super) problem: Option<String>,
}

/// What mounts a git directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitMount {
    /// The built-in mounts.
    BuiltIn,
    /// A mount of a layer, which may be writable.
    Layer { is_writable: bool },
}

impl RepositoryAccess {
    fn found(git: OutsideGitDirectory, mount: GitMount) -> Self {
        RepositoryAccess { found: Some((git, mount)), problem: None }
    }

    fn problem(problem: String) -> Self {
        RepositoryAccess { problem: Some(problem), ..RepositoryAccess::default() }
    }
}

/// The workspace of a command that is started in `current`, a path without links: the work tree of its repository. A
/// directory with a policy file is a workspace itself. A work tree of another user, and one that would show a home
/// directory or the system, is none.
pub(crate) fn workspace_of(current: &Path) -> &Path {
    let Some(tree) = find_work_tree(current) else { return current };
    let has_policy = |directory: &&Path| {
        FOLDER_FILE_NAMES.iter().any(|name| directory.join(name).symlink_metadata().is_ok())
    };
    let within = current.ancestors().take_while(|directory| directory.starts_with(&tree.top));
    let top = within.clone().find(has_policy).or_else(|| within.last()).unwrap_or(current);
    let is_home = HOME_MARKS.iter().any(|name| top.join(name).symlink_metadata().is_ok());
    let is_usable = !is_home
        && !is_in_hidden_directory_of_home(top)
        && check_workspace(top, false).is_ok()
        && callers().any(|caller| tree.belongs_to(caller));
    if is_usable { top } else { current }
}

/// The users whose repositories git trusts: the caller, and for root the user of sudo(8) (git-config(1),
/// `safe.directory`).
fn callers() -> impl Iterator<Item = u32> {
    let caller = nix::unistd::geteuid();
    let user = caller.is_root().then(|| std::env::var("SUDO_UID").ok()?.parse().ok()).flatten();
    [caller.as_raw()].into_iter().chain(user)
}

/// Where programs start: `named` from the caller's current directory if that leads into the workspace, else from
/// `default`.
pub(crate) fn start_directory(
    named: Option<&Path>,
    current: &Path,
    workspace: &Path,
    default: &Path,
) -> PathBuf {
    let Some(named) = named else { return default.to_owned() };
    let of_caller = plain_path(current, named);
    if of_caller.starts_with(workspace) { of_caller } else { plain_path(default, named) }
}

/// Where an agent starts, from its workspace: the workspace itself, unless an option names a directory.
///
/// # Errors
/// [`crate::error::Code::System`]: there is no current directory.
pub(crate) fn agent_start_directory(options: &SandboxOptions, workspace: &Path) -> Result<PathBuf> {
    let Some(named) = &options.start_directory else { return Ok(PathBuf::new()) };
    let current = std::env::current_dir().map_err(|e| Error::system("find the current directory", e))?;
    let of_caller = plain_path(&current, named);
    Ok(if of_caller.starts_with(workspace) { of_caller } else { named.clone() })
}

/// Finds the git directory that is shown beside the workspace. A layer that mounts it decides how; one that locks files
/// leaves it out.
pub(super) fn find_git_directory(request: &LaunchRequest, policy: &EffectivePolicy) -> RepositoryAccess {
    // The `.git` of a copy names the git directory of what was copied.
    if request.is_copy {
        return RepositoryAccess::default();
    }
    let binds = || policy.files.binds.iter().map(|bind| &bind.value);
    let is_mounted = |directory: &Path| binds().any(|bind| directory.starts_with(&bind.destination));
    let layer_mount = |directory: &Path| {
        let is_it = |bind: &BindMount| bind.source == directory && bind.destination == directory;
        let is_writable = binds().any(|bind| bind.access == BindAccess::ReadWrite && is_it(bind));
        GitMount::Layer { is_writable }
    };
    let workspace = request.workspace.escaped();
    match find_verified(request) {
        GitDirectoryPlace::Inside => RepositoryAccess::default(),
        GitDirectoryPlace::Outside(git) if is_mounted(&git.common) => {
            let mount = layer_mount(&git.common);
            RepositoryAccess::found(git, mount)
        }
        GitDirectoryPlace::Outside(git) => {
            let (common, allow_home) = (git.common.escaped(), policy.allow_home.value);
            match (policy.locked_by(PolicyPart::Files), check_workspace(&git.common, allow_home)) {
                (Some(layer), _) => RepositoryAccess::problem(format!(
                    "git does not work in {workspace}: its git directory {common} is not mounted, because {layer} locks files"
                )),
                (None, Err(error)) => RepositoryAccess::problem(format!(
                    "git does not work in {workspace}: its git directory is not mounted: {error}"
                )),
                (None, Ok(())) => RepositoryAccess::found(git, GitMount::BuiltIn),
            }
        }
        GitDirectoryPlace::Unverified(unverified) if is_mounted(&unverified.directory) => RepositoryAccess {
            // Its name is the caller's word for it.
            found: unverified.if_named.map(|git| {
                let mount = layer_mount(&git.common);
                (git, mount)
            }),
            problem: None,
        },
        GitDirectoryPlace::Unverified(unverified) => {
            RepositoryAccess::problem(describe(&request.workspace, &unverified))
        }
    }
}

/// The mounts of the git directory, without those at paths that a layer mounts.
pub(super) fn mounts(
    git: &OutsideGitDirectory,
    is_writable: bool,
    policy: &EffectivePolicy,
) -> impl Iterator<Item = OwnBind> {
    let is_free =
        |path: &Path| !policy.files.binds.iter().any(|bind| path.starts_with(&bind.value.destination));
    let mounts = git.mounts(is_writable).filter(move |(path, ..)| is_free(path));
    mounts.map(|(path, writable, why)| (path.clone(), path, writable, why))
}

/// What programs of other sandboxes left as `.git` is taken away when these end; those that run are asked about.
fn find_verified(request: &LaunchRequest) -> GitDirectoryPlace {
    let find = || repository::find_git_directory(&request.workspace);
    let mut found = find();
    if found != GitDirectoryPlace::Inside && request.will_start && finish_abandoned_scans(None) > 0 {
        found = find();
    }
    let GitDirectoryPlace::Outside(git) = found else { return found };
    let writers = pending_writers(&request.workspace.join(".git"));
    if writers.iter().any(|workspace| !git.common.starts_with(workspace)) {
        let (directory, reason) = (git.common, UnverifiedReason::WritableByOthers);
        return GitDirectoryPlace::Unverified(UnverifiedGitDirectory { directory, reason, if_named: None });
    }
    GitDirectoryPlace::Outside(git)
}

fn describe(workspace: &Path, unverified: &UnverifiedGitDirectory) -> String {
    let UnverifiedGitDirectory { directory, reason, if_named } = unverified;
    let (shown, directory) = (workspace.escaped(), directory.escaped());
    let remedy = match reason {
        UnverifiedReason::MovedWorktree => {
            "; if it is this worktree that was moved, run git worktree repair".to_owned()
        }
        _ if if_named.is_some() => {
            format!("; if it is yours, --rw {directory} mounts it, with hooks and configuration read-only")
        }
        _ => String::new(),
    };
    format!(
        "git does not work in {shown}: its git directory {directory} is not mounted, because {reason}{remedy}"
    )
}
