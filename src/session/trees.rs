//! What is done with the trees of a session, each in a worker ([`worker`]): compare, apply, discard.
//!
//! A root's worker has the ids of the folder's owner, to whom nearly always everything belongs, and no capability. Only
//! where it meets files of other owners it does nothing, and another worker does it all with the capabilities that this
//! takes; landlock bounds those to the same trees.

use super::apply::{self, Allowed, check};
use super::beneath;
use super::choose;
use super::diff::{Change, Trees, compare, text};
use super::discard;
use super::manifest::Manifest;
use super::worker::{self, Access, Confinement, Limits, Output};
use super::workspace::Place;
use crate::error::{Code, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Whose files a worker can work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owners {
    /// Those of its own user: it has no capability.
    One,
    /// All in its directories.
    All,
}

/// What came of a worker's try.
#[derive(Debug, Serialize, Deserialize)]
enum Tried<T> {
    /// It did all of it.
    Done(T),
    /// Files of other owners are in its way: nothing that it did is in the way of another one.
    OtherOwners,
}

/// Compares the trees, and has `job` show the changes at and below `paths`.
///
/// # Errors
/// As [`compare`], [`choose::chosen`] and [`worker::run_with_output`].
pub fn diff<T: Serialize + DeserializeOwned>(
    trees: &Trees,
    paths: &[PathBuf],
    job: impl Fn(&[Change], &Output) -> Result<T>,
    pass_on: impl FnMut(&str) -> Result<()>,
) -> Result<T> {
    let work = |owners, output: &Output| {
        let Some(changes) = changes(trees, owners)? else { return Ok(Tried::OtherOwners) };
        job(&choose::chosen(changes, paths)?, output).map(Tried::Done)
    };
    on_trees("compare", trees, (Access::Read, Access::Read), work, pass_on)
}

/// What was done.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    /// The changes, a line for each.
    lines: Vec<String>,
    /// What is known of the workspace now, where that has changed.
    manifest: Option<String>,
    /// What failed in the end.
    failed: Option<Error>,
}

impl Done {
    fn new(changes: &[Change]) -> Self {
        Done { lines: changes.iter().map(Change::line).collect(), manifest: None, failed: None }
    }

    /// Also what was done until something failed is written down.
    fn keep(self, session: &Path) -> Result<Vec<String>> {
        if let Some(text) = &self.manifest {
            Manifest::parse(text.as_bytes()).store(session)?;
        }
        self.failed.map_or(Ok(self.lines), Err)
    }
}

/// Applies the changes at and below `paths` to the folder, or only shows them; a line for each.
///
/// # Errors
/// As [`compare`], [`check`], [`apply::apply`] and [`worker::run`].
pub fn apply(
    session: &Path,
    trees: &Trees,
    paths: &[PathBuf],
    allowed: &Allowed,
    dry_run: bool,
) -> Result<Vec<String>> {
    let _lock = if dry_run { None } else { Some(apply::hold(trees)?) };
    let work = |owners, _: &Output| {
        let Some(changes) = changes(trees, owners)? else { return Ok(Tried::OtherOwners) };
        let changes = choose::with_parents(changes, paths)?;
        check(&changes, allowed)?;
        let mut done = Done::new(&changes);
        // Also without changes: what a killed apply has left in the folder is removed.
        if !dry_run {
            let mut trees = trees.try_clone()?;
            let applied = apply::apply(&mut trees, &changes, allowed);
            if owners == Owners::One && applied.as_ref().is_err_and(|e| e.code() == Code::Refused) {
                // Nothing was done; the owner of the folder may not write in all of its directories.
                return Ok(Tried::OtherOwners);
            }
            done.manifest = Some(trees.manifest.to_text());
            done.failed = applied.and_then(|()| clear_applied(&trees)).err();
        }
        Ok(Tried::Done(done))
    };
    on_trees("apply changes to", trees, (Access::Write, Access::Write), work, |_| Ok(()))?.keep(session)
}

/// The folder has all changes of an overlay: left there they would hide what is changed in the folder later.
fn clear_applied(trees: &Trees) -> Result<()> {
    if trees.origin.place == Place::Overlay && compare(trees)?.is_empty() {
        discard::clear(trees.left.as_fd())?;
    }
    Ok(())
}

/// Discards the changes at and below `paths`; a line for each.
///
/// # Errors
/// As [`compare`], [`choose::chosen`], [`discard::discard`], [`discard::anew`] and [`worker::run`].
pub fn discard(session: &Path, trees: &Trees, paths: &[PathBuf]) -> Result<Vec<String>> {
    let is_anew = trees.origin.place == Place::Copy && paths.is_empty();
    let work = |owners, _: &Output| {
        let Some(changes) = changes(trees, owners)? else { return Ok(Tried::OtherOwners) };
        let mut done = Done::new(&choose::chosen(changes, paths)?);
        if !is_anew {
            let mut trees = trees.try_clone()?;
            let discarded = discard::discard(&mut trees, paths);
            if owners == Owners::One && discarded.is_err() {
                // What was discarded already is not there to be discarded again.
                return Ok(Tried::OtherOwners);
            }
            done.manifest = (trees.origin.place == Place::Copy).then(|| trees.manifest.to_text());
            done.failed = discarded.err();
        }
        Ok(Tried::Done(done))
    };
    let lines = on_trees("discard changes to", trees, (Access::Write, Access::Read), work, |_| Ok(()))?
        .keep(session)?;
    if is_anew {
        discard::anew(session, trees)?;
    }
    Ok(lines)
}

/// The changes; `None` where files of several owners are in the way of a worker that has the rights of one.
fn changes(trees: &Trees, owners: Owners) -> Result<Option<Vec<Change>>> {
    let compared = compare(trees);
    if owners == Owners::All {
        return compared.map(Some);
    }
    let owner =
        beneath::itself(trees.folder.as_fd()).map_err(|e| Error::system("look at the folder", e))?.owner;
    let is_other = |change: &Change| {
        let sides = [&change.before, &change.after];
        sides.into_iter().flatten().any(|side| side.meta.owner != owner)
    };
    Ok(compared.ok().filter(|changes| !changes.iter().any(is_other)))
}

fn on_trees<T: Serialize + DeserializeOwned>(
    verb: &str,
    trees: &Trees,
    (left, folder): (Access, Access),
    work: impl Fn(Owners, &Output) -> Result<Tried<T>>,
    mut pass_on: impl FnMut(&str) -> Result<()>,
) -> Result<T> {
    let task = format!("{verb} {}", text::path(&trees.origin.folder));
    let owner = worker::owner(trees.folder.as_fd())
        .map_err(|e| Error::system(format_args!("{task}: find its owner"), e))?;
    let mut run = |owners, capabilities| {
        let confinement = Confinement {
            task: &task,
            owner,
            capabilities,
            directories: &[(trees.place.as_fd(), left), (trees.folder.as_fd(), folder)],
            files: &[trees.left.as_fd()],
            limits: Limits::default(),
        };
        worker::run_with_output(&confinement, |output| work(owners, output), &mut pass_on)
    };
    if owner.is_some()
        && let Tried::Done(done) = run(Owners::One, 0)?
    {
        return Ok(done);
    }
    let reads = (left, folder) == (Access::Read, Access::Read);
    let capabilities = if reads { worker::READ_SEVERAL_OWNERS } else { worker::SEVERAL_OWNERS };
    match run(Owners::All, capabilities)? {
        Tried::Done(done) => Ok(done),
        Tried::OtherOwners => {
            Err(Error::new(Code::System, format!("{task}: files of other owners are in the way")))
        }
    }
}
