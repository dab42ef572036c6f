//! What the last search of all of the host's system trees found that only a group of the user may read
//! ([`crate::host::group_only`]). A search takes too long for each start; what it found is kept beside the directory of
//! sessions, and is searched again when the system has changed, and once a day.

use super::{check_private_directory, ensure_private_directory, sessions_path};
use crate::host::group_only::{self, NearPaths};
use crate::spec::agent::system_paths;
use saggar_sys::error::{Error, Result};
use saggar_sys::read::small_file;
use saggar_sys::replace_file::{SyncPolicy, Writers, replace_file};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const VERSION: u32 = 1;

/// What changes deep in a tree, and not by a package, is found after this time at the latest.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The most names of one tree that a start looks at, which takes it half a second.
const MAX_NAMES: usize = 500_000;

/// The largest record that is read, in bytes; a larger one counts as none.
const MAX_SIZE: u64 = 1 << 20;

/// Whether what a search finds is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// For the starts to come.
    Record,
    /// Nothing may be made on the host.
    Nothing,
}

/// A file of a user, written by a start and by `doctor`. One that is damaged is made again: it only saves time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupOnlyRecord {
    version: u32,
    /// For which groups, sorted.
    groups: Vec<u32>,
    /// [`NearPaths::fingerprint`] before the search.
    fingerprint: u64,
    searched: SystemTime,
    #[serde(with = "saggar_sys::exact_name::list")]
    paths: Vec<PathBuf>,
}

impl GroupOnlyRecord {
    fn load() -> Option<GroupOnlyRecord> {
        let path = record_path().ok()?;
        check_private_directory(path.parent()?).ok()?;
        GroupOnlyRecord::parse(&small_file(&path, MAX_SIZE)?)
    }

    fn parse(bytes: &[u8]) -> Option<GroupOnlyRecord> {
        let record: GroupOnlyRecord = serde_json::from_slice(bytes).ok()?;
        (record.version == VERSION).then_some(record)
    }

    fn save(&self) -> Result<()> {
        let path = record_path()?;
        if let Some(directory) = path.parent() {
            ensure_private_directory(directory)?;
        }
        let fail = |source: std::io::Error| Error::system(format_args!("write {}", path.display()), source);
        let bytes = serde_json::to_vec(self).map_err(|e| fail(e.into()))?;
        replace_file(&path, Writers::Many, 0o600, SyncPolicy::None, |file| file.write_all(&bytes))
            .map_err(fail)
    }

    fn is_current(&self, fingerprint: u64, groups: Option<&[u32]>, now: SystemTime) -> bool {
        self.fingerprint == fingerprint
            && groups == Some(&self.groups)
            && now.duration_since(self.searched).is_ok_and(|age| age < MAX_AGE)
    }
}

/// The paths that a start hides of these trees: those near their tops, and what the last whole search found. When that
/// is due again, a user who has a group together with others waits for it; of others `doctor` makes it.
pub fn paths_to_hide<'a>(trees: impl IntoIterator<Item = &'a Path> + Clone, keep: Keep) -> Vec<PathBuf> {
    let near = group_only::near(trees.clone());
    let groups = group_only::caller_groups();
    let record = GroupOnlyRecord::load();
    let is_current = record
        .as_ref()
        .is_some_and(|record| record.is_current(near.fingerprint, groups.as_deref(), SystemTime::now()));
    let mut paths = record.map(|record| record.paths).unwrap_or_default();
    paths.retain(|path| group_only::is_group_only(path));
    if !is_current && group_only::has_shared_group(groups.as_deref()) {
        paths.extend(group_only::all(system_paths(), MAX_NAMES));
        keep_topmost(&mut paths);
        if keep == Keep::Record
            && let Err(error) = record_of(&near, groups, paths.clone()).save()
        {
            log::debug!("each start searches all of /usr: {error}");
        }
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
    let saved = record_of(&near, group_only::caller_groups(), paths.clone()).save();
    (paths, saved)
}

/// What was found now, for the groups of this process.
fn record_of(near: &NearPaths, groups: Option<Vec<u32>>, paths: Vec<PathBuf>) -> GroupOnlyRecord {
    GroupOnlyRecord {
        version: VERSION,
        groups: groups.unwrap_or_default(),
        fingerprint: near.fingerprint,
        searched: SystemTime::now(),
        paths,
    }
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
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_record_counts_for_its_groups_and_its_system_and_a_day() {
        let now = SystemTime::now();
        let record = GroupOnlyRecord {
            version: VERSION,
            groups: vec![4, 27],
            fingerprint: 7,
            searched: now,
            paths: Vec::new(),
        };
        let groups: Option<&[u32]> = Some(&[4, 27]);
        let second = Duration::from_secs(1);
        assert!(record.is_current(7, groups, now));
        assert!(record.is_current(7, groups, now + MAX_AGE - second));
        for (fingerprint, groups, at) in [
            (8, groups, now),
            (7, Some(&[4][..]), now),
            (7, None, now),
            (7, groups, now + MAX_AGE),
            (7, groups, now - second),
        ] {
            assert!(!record.is_current(fingerprint, groups, at), "{fingerprint} {groups:?} {at:?}");
        }
    }

    #[test]
    fn names_of_any_bytes_come_back_and_a_damaged_record_is_none() {
        let odd = PathBuf::from(std::ffi::OsStr::from_bytes(b"/usr/share/\xff"));
        let record = GroupOnlyRecord {
            version: VERSION,
            groups: vec![1],
            fingerprint: u64::MAX,
            searched: SystemTime::now(),
            paths: vec![odd, "/usr/share/key".into()],
        };
        let bytes = serde_json::to_vec(&record).unwrap();
        let read = GroupOnlyRecord::parse(&bytes).unwrap();
        assert_eq!((read.paths, read.fingerprint), (record.paths, u64::MAX));
        assert!(GroupOnlyRecord::parse(&bytes[..bytes.len() / 2]).is_none());
        let later = String::from_utf8(bytes).unwrap().replace("\"version\":1", "\"version\":2");
        assert!(GroupOnlyRecord::parse(later.as_bytes()).is_none());
    }

    #[test]
    fn of_paths_in_each_other_the_topmost_stays() {
        let mut paths = ["/b/c", "/a/x", "/b", "/a/x", "/a-x", "/b/c/d"].map(PathBuf::from).to_vec();
        keep_topmost(&mut paths);
        assert_eq!(paths, ["/a/x", "/a-x", "/b"].map(PathBuf::from));
    }
}
