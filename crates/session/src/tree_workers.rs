//! Operations on the trees of a session, each in a worker ([`saggar_sys::file_worker`]): compare, apply, discard.
//!
//! A worker of root has the ids of the folder's owner, who owns nearly all files, and no capability. If it meets files
//! of other owners it changes nothing, and a second worker does all the work with the capabilities needed; Landlock
//! restricts that to the same trees.

use super::apply::{self, ApplyOptions, check_changes};
use super::diff::{FileChange, WorkspaceTrees, compare_trees, text};
use super::discard;
use super::manifest::Manifest;
use super::select;
use super::workspace_origin::ChangeStorage;
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file_worker::{self, Confinement, FileAccess, WorkerLimits, WorkerOutput};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The files that a worker can access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerScope {
    /// Those of its own user: it has no capability.
    SameOwner,
    /// All files in its directories.
    AnyOwner,
}

/// The result of a worker.
#[derive(Debug, Serialize, Deserialize)]
enum WorkerAttempt<T> {
    /// It did all of the work.
    Done(T),
    /// It met files of other owners: nothing that it did obstructs a second worker.
    OtherOwners,
}

/// Compares the trees, and calls `job` in the worker for the changes at and below `paths`.
///
/// # Errors
/// As [`compare_trees`], [`select::select_changes`] and [`file_worker::run_worker_with_output`].
pub fn diff_in_worker<T: Serialize + DeserializeOwned>(
    trees: &WorkspaceTrees,
    paths: &[PathBuf],
    job: impl Fn(&[FileChange], &WorkerOutput) -> Result<T>,
    pass_on: impl FnMut(&str) -> Result<()>,
) -> Result<T> {
    let work = |owners, output: &WorkerOutput| {
        let Some(changes) = compare_changes(trees, owners)? else { return Ok(WorkerAttempt::OtherOwners) };
        job(&select::select_changes(changes, paths)?, output).map(WorkerAttempt::Done)
    };
    run_on_trees("compare", trees, (FileAccess::Read, FileAccess::Read), work, pass_on)
}

/// The result of an operation that changed trees.
#[derive(Debug, Serialize, Deserialize)]
struct ChangedTrees {
    /// The changes, a line for each.
    lines: Vec<String>,
    /// The new manifest of the workspace, if it has changed.
    manifest: Option<String>,
    /// The error, if one ended the operation.
    error: Option<Error>,
}

impl ChangedTrees {
    fn new(changes: &[FileChange]) -> Self {
        ChangedTrees { lines: changes.iter().map(FileChange::to_line).collect(), manifest: None, error: None }
    }

    /// Also stores what was done before an error.
    fn store(self, session: &Path) -> Result<Vec<String>> {
        if let Some(text) = &self.manifest {
            Manifest::parse(text.as_bytes()).store(session)?;
        }
        self.error.map_or(Ok(self.lines), Err)
    }
}

/// Applies the changes at and below `paths` to the folder, or only shows them; returns a line for each.
///
/// # Errors
/// As [`compare_trees`], [`check_changes`], [`apply::apply`] and [`file_worker::run_worker`].
pub fn apply_in_worker(
    session: &Path,
    trees: &WorkspaceTrees,
    paths: &[PathBuf],
    allowed: &ApplyOptions,
    dry_run: bool,
) -> Result<Vec<String>> {
    let _lock = if dry_run { None } else { Some(apply::lock_folder(trees)?) };
    let work = |owners, _: &WorkerOutput| {
        let Some(changes) = compare_changes(trees, owners)? else { return Ok(WorkerAttempt::OtherOwners) };
        let changes = select::select_with_parents(changes, paths)?;
        check_changes(&changes, allowed)?;
        let mut done = ChangedTrees::new(&changes);
        // Also without changes: removes files that a killed apply has left in the folder.
        if !dry_run {
            let mut trees = trees.try_clone()?;
            let applied = apply::apply(&mut trees, &changes, allowed);
            if owners == OwnerScope::SameOwner && applied.as_ref().is_err_and(|e| e.code() == Code::Refused) {
                // Nothing was changed; the owner of the folder may not be able to write in all of its directories.
                return Ok(WorkerAttempt::OtherOwners);
            }
            done.manifest = Some(trees.manifest.to_text());
            done.error = applied.and_then(|()| clear_applied(&trees)).err();
        }
        Ok(WorkerAttempt::Done(done))
    };
    run_on_trees("apply changes to", trees, (FileAccess::Write, FileAccess::Write), work, |_| Ok(()))?
        .store(session)
}

/// Clears an overlay's changes after they were applied: left in the upper layer they would hide later changes of the
/// folder.
fn clear_applied(trees: &WorkspaceTrees) -> Result<()> {
    if trees.origin.storage == ChangeStorage::Overlay && compare_trees(trees)?.is_empty() {
        discard::clear_upper(trees.changed_tree.as_fd())?;
    }
    Ok(())
}

/// Discards the changes at and below `paths`; returns a line for each.
///
/// # Errors
/// As [`compare_trees`], [`select::select_changes`], [`discard::discard_changes`], [`discard::recopy`] and
/// [`file_worker::run_worker`].
pub fn discard_in_worker(session: &Path, trees: &WorkspaceTrees, paths: &[PathBuf]) -> Result<Vec<String>> {
    let is_anew = trees.origin.storage == ChangeStorage::Copy && paths.is_empty();
    let work = |owners, _: &WorkerOutput| {
        let Some(changes) = compare_changes(trees, owners)? else { return Ok(WorkerAttempt::OtherOwners) };
        let mut done = ChangedTrees::new(&select::select_changes(changes, paths)?);
        if !is_anew {
            let mut trees = trees.try_clone()?;
            let discarded = discard::discard_changes(&mut trees, paths);
            if owners == OwnerScope::SameOwner && discarded.is_err() {
                // Changes that were discarded already need not be discarded again.
                return Ok(WorkerAttempt::OtherOwners);
            }
            done.manifest = (trees.origin.storage == ChangeStorage::Copy).then(|| trees.manifest.to_text());
            done.error = discarded.err();
        }
        Ok(WorkerAttempt::Done(done))
    };
    let lines =
        run_on_trees("discard changes to", trees, (FileAccess::Write, FileAccess::Read), work, |_| Ok(()))?
            .store(session)?;
    if is_anew {
        discard::recopy(session, trees)?;
    }
    Ok(lines)
}

/// The changes; `None` if files of several owners are in the way of a worker with the rights of one.
fn compare_changes(trees: &WorkspaceTrees, owners: OwnerScope) -> Result<Option<Vec<FileChange>>> {
    let compared = compare_trees(trees);
    if owners == OwnerScope::AnyOwner {
        return compared.map(Some);
    }
    let owner =
        beneath::stat_fd(trees.folder.as_fd()).map_err(|e| Error::system("look at the folder", e))?.owner;
    let is_other = |change: &FileChange| {
        let sides = [&change.before, &change.after];
        sides.into_iter().flatten().any(|side| side.meta.owner != owner)
    };
    Ok(compared.ok().filter(|changes| !changes.iter().any(is_other)))
}

fn run_on_trees<T: Serialize + DeserializeOwned>(
    verb: &str,
    trees: &WorkspaceTrees,
    (left, folder): (FileAccess, FileAccess),
    work: impl Fn(OwnerScope, &WorkerOutput) -> Result<WorkerAttempt<T>>,
    mut pass_on: impl FnMut(&str) -> Result<()>,
) -> Result<T> {
    let task = format!("{verb} {}", text::show_path(&trees.origin.folder));
    let owner = file_worker::worker_owner(trees.folder.as_fd())
        .map_err(|e| Error::system(format_args!("{task}: find its owner"), e))?;
    let mut run = |owners, capabilities| {
        let confinement = Confinement {
            task: &task,
            owner,
            capabilities,
            directories: &[(trees.session_directory.as_fd(), left), (trees.folder.as_fd(), folder)],
            files: &[trees.changed_tree.as_fd()],
            limits: WorkerLimits::default(),
        };
        file_worker::run_worker_with_output(&confinement, |output| work(owners, output), &mut pass_on)
    };
    if owner.is_some()
        && let WorkerAttempt::Done(done) = run(OwnerScope::SameOwner, 0)?
    {
        return Ok(done);
    }
    let reads = (left, folder) == (FileAccess::Read, FileAccess::Read);
    let capabilities = if reads {
        file_worker::READ_MULTI_OWNER_CAPABILITIES
    } else {
        file_worker::MULTI_OWNER_CAPABILITIES
    };
    match run(OwnerScope::AnyOwner, capabilities)? {
        WorkerAttempt::Done(done) => Ok(done),
        WorkerAttempt::OtherOwners => {
            Err(Error::new(Code::System, format!("{task}: files of other owners are in the way")))
        }
    }
}
