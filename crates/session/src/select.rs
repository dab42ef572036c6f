//! Selects changes by path.

use super::diff::{ChangeKind, FileChange, text};
use saggar_sys::error::{Code, Error, Result};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Normalizes paths that an operator gave: relative to the workspace; `./` and a trailing slash are allowed.
///
/// # Errors
/// [`Code::Usage`] for a path that is absolute, empty or leads out of the workspace.
pub fn relative_paths(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    paths
        .iter()
        .map(|path| {
            let plain = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
            let clean: PathBuf =
                path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
            if clean.as_os_str().is_empty() || !path.components().all(|part| plain(&part)) {
                let message = format!("{}: paths are those that the difference shows", text::show_path(path));
                return Err(Error::new(Code::Usage, message).hint("relative to the workspace, without .."));
            }
            Ok(clean)
        })
        .collect()
}

/// The changes at and below these paths, or all changes if there is no path.
///
/// # Errors
/// [`Code::Invalid`] for a path without changes at or below it.
pub(crate) fn select_changes(changes: Vec<FileChange>, paths: &[PathBuf]) -> Result<Vec<FileChange>> {
    if paths.is_empty() {
        return Ok(changes);
    }
    if let Some(path) = paths.iter().find(|path| !changes.iter().any(|change| change.path.starts_with(path)))
    {
        let message = format!("{}: nothing has changed there", text::show_path(path));
        return Err(Error::new(Code::Invalid, message).hint("saggar session diff shows what has"));
    }
    Ok(changes.into_iter().filter(|change| paths.iter().any(|path| change.path.starts_with(path))).collect())
}

/// Like [`select_changes`], with the directories above them that must be created.
///
/// # Errors
/// As [`select_changes`].
pub fn select_with_parents(changes: Vec<FileChange>, paths: &[PathBuf]) -> Result<Vec<FileChange>> {
    let made: BTreeSet<PathBuf> = changes
        .iter()
        .filter(|change| change.kind == ChangeKind::Added)
        .map(|change| change.path.clone())
        .collect();
    let wanted: BTreeSet<PathBuf> =
        select_changes(changes.clone(), paths)?.into_iter().map(|change| change.path).collect();
    let mut all = wanted.clone();
    for path in &wanted {
        all.extend(path.ancestors().skip(1).filter(|above| made.contains(*above)).map(Path::to_owned));
    }
    // A file that is replaced by a new directory is deleted with all changes below it.
    let replaced = |path: &Path| path.ancestors().any(|above| all.contains(above) && made.contains(above));
    let kept: Vec<bool> = changes
        .iter()
        .map(|change| {
            all.contains(&change.path) || change.kind == ChangeKind::Deleted && replaced(&change.path)
        })
        .collect();
    Ok(changes.into_iter().zip(kept).filter_map(|(change, kept)| kept.then_some(change)).collect())
}
