//! The worktree of a session (git-worktree(1)): the caller's git makes it before the session starts, and removes it with
//! the session. Its branch stays.
//!
//! ```text
//! <state>/worktrees/<id>               the worktree
//! <state>/worktrees/<id>.repository    the path of the repository's git directory
//! ```
//!
//! Programs of a sandbox write what git reads here: the branch, and what is in the worktree. So git runs no hooks, no file
//! system monitor, and no filter that is a file of the work tree.

use super::git_command::GitCommand;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::remove::remove_directory;
use crate::session::repository::{GitDirectoryPlace, find_git_directory};
use crate::session::unfinished_scan::pending_writers;
use crate::state;
use crate::supervise::quarantine_monitor::finish_abandoned_scans;
use crate::text::DisplayEscaped;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const DIRECTORY_NAME: &str = "worktrees";

/// Where the worktree of a session is, if it has one.
///
/// # Errors
/// As [`state::sessions_path`].
pub fn worktree_path(id: &SandboxId) -> Result<PathBuf> {
    let sessions = state::sessions_path()?;
    Ok(sessions.with_file_name(DIRECTORY_NAME).join(id.as_str()))
}

/// The file with the path of its repository.
fn repository_file(worktree: &Path) -> PathBuf {
    let mut name = worktree.as_os_str().to_owned();
    name.push(".repository");
    name.into()
}

/// A worktree of a session that has not started yet.
#[derive(Debug)]
pub(super) struct NewWorktree {
    pub(super) path: PathBuf,
    /// The git directory of the repository.
    repository: PathBuf,
    /// The branch, if it was made for this worktree.
    new_branch: Option<String>,
}

impl NewWorktree {
    /// Makes a worktree of the repository that contains `directory`, on `branch`, which is made from its HEAD if it does
    /// not exist.
    ///
    /// # Errors
    /// [`Code::Exists`] if there is something at its path; [`Code::Refused`] for the repository of another user, and one
    /// whose configuration a running sandbox could have written; [`Code::Invalid`] with the words of git. Nothing is left
    /// behind.
    pub(super) fn create(id: &SandboxId, directory: &Path, branch: &str) -> Result<Self> {
        let path = worktree_path(id)?;
        if path.symlink_metadata().is_ok() {
            let message = format!("make a worktree for session {id}: {} exists", path.display());
            return Err(
                Error::new(Code::Exists, message).hint("choose another --session, or remove that worktree")
            );
        }
        finish_abandoned_scans(None);
        let what = format!("make a worktree of {}", directory.escaped());
        let repository = common_directory(directory).map_err(|error| error.context(&what))?;
        check_repository(&repository).map_err(|error| error.context(&what))?;
        let parents = [path.ancestors().nth(2), path.parent()];
        parents.into_iter().flatten().try_for_each(state::ensure_private_directory)?;
        let file = repository_file(&path);
        fs::write(&file, repository.as_os_str().as_bytes())
            .map_err(|e| Error::system(format_args!("write {}", file.display()), e))?;
        let reference = format!("refs/heads/{branch}");
        let exists =
            GitCommand::new(&repository).run(["show-ref", "--verify", "--quiet", &reference])?.is_ok();
        let worktree = NewWorktree {
            path,
            repository,
            // A name that git refuses is that of no branch.
            new_branch: (!exists).then(|| branch.to_owned()),
        };
        let made = worktree.add(branch).map_err(|error| error.context(&what));
        made.inspect_err(|_| worktree.discard())?;
        Ok(worktree)
    }

    fn add(&self, branch: &str) -> Result<()> {
        let command = GitCommand::new(&self.repository).without_programs_of_the_work_tree()?;
        let path = self.path.as_os_str();
        let words: Vec<&OsStr> = match self.new_branch {
            None => ["worktree", "add", "--quiet", "--"]
                .map(OsStr::new)
                .into_iter()
                .chain([path, branch.as_ref()])
                .collect(),
            Some(_) => ["worktree", "add", "--quiet", "-b", branch, "--"]
                .map(OsStr::new)
                .into_iter()
                .chain([path])
                .collect(),
        };
        command.run(words)?
    }

    /// Removes what there is of it, with a branch that was made for it.
    pub(super) fn discard(&self) {
        if let Err(error) = remove_from(&self.repository, &self.path, true)
            && self.path.symlink_metadata().is_ok()
        {
            return log::warn!("{error}; the worktree {} stays", self.path.display());
        }
        let _ = fs::remove_file(repository_file(&self.path));
        let removed = self.new_branch.as_ref().map_or(Ok(()), |branch| self.remove_branch(branch));
        if let Err(error) = removed {
            log::warn!("{error}");
        }
    }

    fn remove_branch(&self, branch: &str) -> Result<()> {
        let git = GitCommand::new(&self.repository);
        let reference = format!("refs/heads/{branch}");
        match git.run(["show-ref", "--verify", "--quiet", &reference])? {
            Ok(()) => git.run(["branch", "--quiet", "-D", "--", branch])?,
            // It was not made.
            Err(_) => Ok(()),
        }
    }
}

/// Removes the worktree of a session, if it has one. Its branch stays.
///
/// # Errors
/// [`Code::State`] without `force`, if it has changes that are not committed, or commits on no branch.
pub(super) fn remove(id: &SandboxId, force: bool) -> Result<()> {
    let path = worktree_path(id)?;
    let Ok(repository) = fs::read(repository_file(&path)) else { return Ok(()) };
    let repository = PathBuf::from(OsString::from_vec(repository));
    finish_abandoned_scans(None);
    let failed = |why: &str, hint: &str| {
        Error::new(Code::State, format!("remove the worktree {} of session {id}: {why}", path.display()))
            .hint(hint.to_owned())
    };
    let is_known = match find_git_directory(&path) {
        GitDirectoryPlace::Outside(git) => git.common == repository,
        // It was removed by hand; git still knows it.
        _ => path.symlink_metadata().is_err(),
    };
    if !is_known && !force {
        let hint =
            "if the repository was moved, run git worktree repair there; or saggar session remove --force";
        return Err(failed("git does not know it", hint));
    }
    let discard = "commit the changes on a branch, or discard them with saggar session remove --force";
    if !force && has_unreachable_commits(&path)? {
        return Err(failed("its HEAD is on no branch", discard));
    }
    let removed = remove_from(&repository, &path, force);
    match removed {
        Err(_) if force => remove_directory(&path)?,
        other => other.map_err(|error| failed(&error.to_string(), discard))?,
    }
    let _ = fs::remove_file(repository_file(&path));
    Ok(())
}

fn remove_from(repository: &Path, path: &Path, force: bool) -> Result<()> {
    let command = GitCommand::new(repository).without_programs_of_the_work_tree()?;
    // Twice, for one that is locked.
    let force = if force { ["--force"; 2].as_slice() } else { &[] };
    let words = ["worktree", "remove"].iter().chain(force).chain(&["--"]).map(OsStr::new);
    command.run(words.chain([path.as_os_str()]))?
}

/// Whether the commit of a worktree is in no branch and in no tag.
fn has_unreachable_commits(path: &Path) -> Result<bool> {
    if path.symlink_metadata().is_err() {
        return Ok(false);
    }
    let git = GitCommand::new(path);
    if git.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.is_err() {
        return Ok(false);
    }
    Ok(git.output(["for-each-ref", "--count=1", "--contains", "HEAD"])?.is_empty())
}

/// The git directory that the worktrees of the repository around `directory` share.
fn common_directory(directory: &Path) -> Result<PathBuf> {
    let words = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
    let mut path = GitCommand::new(directory).output(words)?;
    path.truncate(path.trim_ascii_end().len());
    let path = PathBuf::from(OsString::from_vec(path));
    path.canonicalize().map_err(|e| Error::system(format_args!("find {}", path.display()), e))
}

/// Refuses a repository that is not the caller's, and one whose configuration was not searched yet.
fn check_repository(repository: &Path) -> Result<()> {
    let owner = repository.metadata().map(|meta| meta.uid());
    let owner = owner.map_err(|e| Error::system(format_args!("look at {}", repository.display()), e))?;
    if owner != nix::unistd::geteuid().as_raw() {
        let message = format!("{} belongs to the user {owner}", repository.display());
        return Err(Error::new(Code::Refused, message).hint("run this as that user"));
    }
    for name in ["config", "config.worktree"] {
        let file = repository.join(name);
        if !pending_writers(&file).is_empty() {
            let message = format!("a sandbox that runs could have written {}", file.display());
            return Err(Error::new(Code::Refused, message).hint("end that sandbox first"));
        }
    }
    Ok(())
}
