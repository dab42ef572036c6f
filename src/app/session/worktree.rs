//! The worktree of a session (git-worktree(1)): the caller's git makes it before the session starts, and removes it with
//! the session. Its branch stays.
//!
//! ```text
//! <state>/worktrees/<id>
//! ```

use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::remove::remove_directory;
use crate::session::repository::{GitDirectoryPlace, find_git_directory};
use crate::state;
use crate::supervise::quarantine_monitor::finish_abandoned_scans;
use crate::text::DisplayEscaped;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const DIRECTORY_NAME: &str = "worktrees";

/// Variables by which git would find another repository (git-rev-parse(1), `--local-env-vars`).
const LOCAL_VARIABLES: [&str; 9] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
];

/// Where the worktree of a session is, if it has one.
///
/// # Errors
/// As [`state::sessions_path`].
pub fn worktree_path(id: &SandboxId) -> Result<PathBuf> {
    let sessions = state::sessions_path()?;
    Ok(sessions.with_file_name(DIRECTORY_NAME).join(id.as_str()))
}

/// A worktree of a session that has not started yet.
#[derive(Debug)]
pub(super) struct NewWorktree {
    pub(super) path: PathBuf,
    repository: PathBuf,
    /// The branch, if it was made for this worktree.
    new_branch: Option<String>,
}

impl NewWorktree {
    /// Makes a worktree of the repository that contains `repository`, on `branch`, which is made from its HEAD if it does
    /// not exist.
    ///
    /// # Errors
    /// [`Code::Exists`] if there is something at its path; [`Code::Invalid`] with the words of git.
    pub(super) fn create(id: &SandboxId, repository: &Path, branch: &str) -> Result<Self> {
        let path = worktree_path(id)?;
        if path.symlink_metadata().is_ok() {
            let message = format!("make a worktree for session {id}: {} exists", path.display());
            return Err(
                Error::new(Code::Exists, message).hint("choose another --session, or remove that worktree")
            );
        }
        let parents = [path.ancestors().nth(2), path.parent()];
        parents.into_iter().flatten().try_for_each(state::ensure_private_directory)?;
        let reference = format!("refs/heads/{branch}");
        let exists = git(repository, ["show-ref", "--verify", "--quiet", &reference])?.status.success();
        let (add, text) = ("worktree", path.to_string_lossy());
        let arguments = match exists {
            true => [add, "add", "--quiet", "--", &text, branch].to_vec(),
            false => [add, "add", "--quiet", "-b", branch, "--", &text].to_vec(),
        };
        check(git(repository, arguments)?)
            .map_err(|error| error.context(format_args!("make a worktree of {}", repository.escaped())))?;
        let new_branch = (!exists).then(|| branch.to_owned());
        Ok(NewWorktree { path, repository: repository.to_owned(), new_branch })
    }

    /// Removes it again, with a branch that was made for it.
    pub(super) fn discard(&self) {
        let path = self.path.as_os_str();
        let removed = git(
            &self.repository,
            ["worktree", "remove", "--force", "--"].map(OsStr::new).into_iter().chain([path]),
        );
        let removed = removed.and_then(check).and_then(|()| match &self.new_branch {
            Some(branch) => git(&self.repository, ["branch", "--quiet", "-D", "--", branch]).and_then(check),
            None => Ok(()),
        });
        if let Err(error) = removed {
            log::warn!("{error}; the worktree {} stays", self.path.display());
        }
    }
}

/// Removes the worktree of a session, if it has one. Its branch stays.
///
/// # Errors
/// [`Code::State`] if it has changes that are not committed, without `force`.
pub(super) fn remove(id: &SandboxId, force: bool) -> Result<()> {
    let path = worktree_path(id)?;
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    finish_abandoned_scans(Some(&path));
    let found = find_git_directory(&path);
    let failed = |error: Error| {
        Error::new(Code::State, format!("remove the worktree {} of session {id}: {error}", path.display()))
            .hint("commit its changes, or discard them with --force")
    };
    let removed = match found {
        GitDirectoryPlace::Outside(repository) => {
            // Nothing of the worktree runs here.
            let quiet =
                ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "worktree", "remove"];
            let force = force.then_some("--force");
            let words = quiet.into_iter().chain(force).chain(["--"]).map(OsStr::new);
            git(&repository.common, words.chain([path.as_os_str()])).and_then(check)
        }
        _ if force => remove_directory(&path),
        _ => Err(Error::new(Code::State, "git does not know it")),
    };
    removed.map_err(failed)
}

/// Runs the caller's git in `directory`.
fn git<S: AsRef<OsStr>>(directory: &Path, arguments: impl IntoIterator<Item = S>) -> Result<Output> {
    let mut command = Command::new("git");
    LOCAL_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    let output = command.arg("-C").arg(directory).args(arguments).stdin(Stdio::null()).output();
    output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::new(Code::NotFound, "run git: not found").hint("a worktree needs git: install it")
        }
        _ => Error::system("run git", error),
    })
}

/// The error that git wrote, if it failed: its last line that is no hint.
fn check(output: Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines = text.lines().rev().filter(|line| !line.trim().is_empty() && !line.starts_with("hint:"));
    let last = lines.next().unwrap_or("it failed");
    Err(Error::new(Code::Invalid, format!("git: {last}")))
}
