//! What the last search of all of the host's system trees found that only a group of the user may read
//! ([`crate::host::group_only`]). A search takes too long for each start; what it found is kept beside the directory of
//! sessions, and is searched again when the system has changed, and once a day.

use super::{check_private_directory, ensure_private_directory, sessions_path};
use crate::host::group_only::{self, NearPaths};
use crate::spec::agent::system_paths;
use saggar_sys::error::{Error, Result};
use saggar_sys::replace_file::{SyncPolicy, Writers, replace_file};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const VERSION: u32 = 1;

/// What a hand changes deep in a tree, and no package, is found after this time at the latest.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The most names of one tree that a start looks at, which takes it half a second.
const MAX_NAMES: usize = 500_000;

/// A file of a user, written by a start and by `doctor`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupOnlyRecord {
    version: u32,
    /// For which groups, sorted.
    groups: Vec<u32>,
    /// [`NearPaths::newest_change`] before the search.
    newest_change: (i64, i64),
    searched: SystemTime,
    paths: Vec<PathBuf>,
}

impl GroupOnlyRecord {
    fn load() -> Option<GroupOnlyRecord> {
        let path = record_path().ok()?;
        check_private_directory(path.parent()?).ok()?;
        let record: GroupOnlyRecord = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (record.version == VERSION).then_some(record)
    }

    fn save(near: &NearPaths, paths: Vec<PathBuf>) -> Result<()> {
        let path = record_path()?;
        if let Some(directory) = path.parent() {
            ensure_private_directory(directory)?;
        }
        let fail = |source: std::io::Error| Error::system(format_args!("write {}", path.display()), source);
        let record = GroupOnlyRecord {
            version: VERSION,
            groups: group_only::caller_groups(),
            newest_change: near.newest_change,
            searched: SystemTime::now(),
            paths,
        };
        // Fails for a path that is not UTF-8.
        let bytes = serde_json::to_vec(&record).map_err(|e| fail(e.into()))?;
        replace_file(&path, Writers::Many, 0o600, SyncPolicy::None, |file| file.write_all(&bytes))
            .map_err(fail)
    }

    fn is_current(&self, near: &NearPaths) -> bool {
        self.newest_change == near.newest_change
            && self.groups == group_only::caller_groups()
            && self.searched.elapsed().is_ok_and(|age| age < MAX_AGE)
    }
}

/// The paths that a start hides of these trees: those near their tops, and what the last whole search found. When that
/// is due again, a user who has a group together with others waits for it; of others `doctor` makes it.
pub fn paths_to_hide<'a>(trees: impl IntoIterator<Item = &'a Path> + Clone) -> Vec<PathBuf> {
    let near = group_only::near(trees.clone());
    let record = GroupOnlyRecord::load();
    let is_current = record.as_ref().is_some_and(|record| record.is_current(&near));
    let mut paths = record.map(|record| record.paths).unwrap_or_default();
    paths.retain(|path| group_only::is_group_only(path));
    if !is_current && group_only::has_shared_group() {
        paths.extend(group_only::all(system_paths(), MAX_NAMES));
        keep_topmost(&mut paths);
        // What cannot be kept is searched at each start.
        let _ = GroupOnlyRecord::save(&near, paths.clone());
    }
    let is_shown = |path: &PathBuf| trees.clone().into_iter().any(|tree| path.starts_with(tree));
    paths.retain(is_shown);
    paths.extend(near.paths);
    keep_topmost(&mut paths);
    paths
}

/// Searches all trees of the system as a whole, and keeps what it finds for the starts to come.
///
/// # Errors
/// Those of the record, beside what was found.
pub fn search_all() -> (Vec<PathBuf>, Result<()>) {
    let near = group_only::near(system_paths());
    let mut paths = group_only::all(system_paths(), usize::MAX);
    keep_topmost(&mut paths);
    let saved = GroupOnlyRecord::save(&near, paths.clone());
    (paths, saved)
}

fn record_path() -> Result<PathBuf> {
    Ok(sessions_path()?.with_file_name("group-only.json"))
}

/// Sorts them, and drops what lies below another.
fn keep_topmost(paths: &mut Vec<PathBuf>) {
    paths.sort_unstable();
    paths.dedup_by(|path, above| path.starts_with(above));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_paths_in_each_other_the_topmost_stays() {
        let mut paths = ["/b/c", "/a/x", "/b", "/a/x", "/a-x", "/b/c/d"].map(PathBuf::from).to_vec();
        keep_topmost(&mut paths);
        assert_eq!(paths, ["/a/x", "/a-x", "/b"].map(PathBuf::from));
    }
}
