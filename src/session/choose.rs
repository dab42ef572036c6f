//! Which of the changes are meant.

use super::diff::{Act, Change, text};
use crate::error::{Code, Error, Result};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Paths as an operator writes them: relative to the workspace, `./` and a slash at the end allowed.
///
/// # Errors
/// [`Code::Usage`] for one that is absolute, empty or leads out.
pub fn relative(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    paths
        .iter()
        .map(|path| {
            let plain = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
            let clean: PathBuf =
                path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
            if clean.as_os_str().is_empty() || !path.components().all(|part| plain(&part)) {
                let message = format!("{}: paths are those that the difference shows", text::path(path));
                return Err(Error::new(Code::Usage, message).hint("relative to the workspace, without .."));
            }
            Ok(clean)
        })
        .collect()
}

/// The changes at and below these paths, or all when there is none.
///
/// # Errors
/// [`Code::Invalid`] for a path at and below which nothing has changed.
pub fn chosen(changes: Vec<Change>, paths: &[PathBuf]) -> Result<Vec<Change>> {
    if paths.is_empty() {
        return Ok(changes);
    }
    if let Some(path) = paths.iter().find(|path| !changes.iter().any(|change| change.path.starts_with(path)))
    {
        let message = format!("{}: nothing has changed there", text::path(path));
        return Err(Error::new(Code::Invalid, message).hint("saggar session diff shows what has"));
    }
    Ok(changes.into_iter().filter(|change| paths.iter().any(|path| change.path.starts_with(path))).collect())
}

/// As [`chosen`], with the directories that must be made above them.
///
/// # Errors
/// As [`chosen`].
pub fn with_parents(changes: Vec<Change>, paths: &[PathBuf]) -> Result<Vec<Change>> {
    let made: BTreeSet<PathBuf> =
        changes.iter().filter(|change| change.act == Act::Added).map(|change| change.path.clone()).collect();
    let wanted: BTreeSet<PathBuf> =
        chosen(changes.clone(), paths)?.into_iter().map(|change| change.path).collect();
    let mut all = wanted.clone();
    for path in &wanted {
        all.extend(path.ancestors().skip(1).filter(|above| made.contains(*above)).map(Path::to_owned));
    }
    // What was in the place of something new goes whole.
    let replaced = |path: &Path| path.ancestors().any(|above| all.contains(above) && made.contains(above));
    let kept: Vec<bool> = changes
        .iter()
        .map(|change| all.contains(&change.path) || change.act == Act::Deleted && replaced(&change.path))
        .collect();
    Ok(changes.into_iter().zip(kept).filter_map(|(change, kept)| kept.then_some(change)).collect())
}
