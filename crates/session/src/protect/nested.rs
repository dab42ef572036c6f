//! Protected names below the top level of the work tree: nested projects and nested repositories. A start
//! is bounded in time: directories near the top are searched first, and paths beyond the bounds are scanned
//! after the sandbox has exited ([`crate::workspace_scan`]).

use super::ProtectionFinder;
use crate::repository::is_git_directory;
use saggar_policy::protect::{ProtectedName, WORK_TREE_NAMES};
use saggar_sandbox::spec::Origin;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The maximum depth of the search.
const MAX_DEPTH: usize = 3;
/// The most directories that are read, the most names in each, and the maximum time.
const MAX_DIRECTORIES: usize = 128;
const MAX_NAMES: usize = 1024;
const MAX_TIME: Duration = Duration::from_millis(20);
/// The most names outside of git directories that are pinned.
const MAX_PINS: usize = 256;
/// Directories that contain thousands of directories in which people do not work.
const SKIPPED_DIRECTORIES: [&str; 3] = ["node_modules", "target", ".git"];

/// The rows of the table by the first component of their names, in lower case.
type NamesByFirstPart = HashMap<&'static [u8], Vec<&'static ProtectedName>>;

impl ProtectionFinder<'_> {
    /// Pins the protected names of the top level and of the directories below it.
    pub(super) fn protect_work_tree_names(&mut self, protect_config: bool) {
        let mut rows = NamesByFirstPart::new();
        for name in WORK_TREE_NAMES {
            let first = name.path.split('/').next().unwrap_or(name.path);
            rows.entry(first.as_bytes()).or_default().push(name);
        }
        let (names, whole) = self.tree.names(Path::new(""), MAX_NAMES);
        if whole {
            self.protect_matching_names(Path::new(""), &names, &rows);
        } else {
            WORK_TREE_NAMES.iter().for_each(|name| self.protect_name(Path::new(""), name));
        }
        let mut queue: VecDeque<(PathBuf, usize)> =
            names.into_iter().map(|name| (PathBuf::from(name), 1)).collect();
        let (mut left, until) = (MAX_DIRECTORIES, Instant::now() + MAX_TIME);
        while let Some((path, depth)) = queue.pop_front() {
            let skipped = path
                .file_name()
                .is_some_and(|name| SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped));
            if skipped || !self.tree.stat(&path).is_ok_and(|meta| meta.is_directory()) {
                continue;
            }
            if left == 0 || self.pins.len() > MAX_PINS || Instant::now() > until {
                return;
            }
            left -= 1;
            let (names, _) = self.tree.names(&path, MAX_NAMES);
            self.protect_matching_names(&path, &names, &rows);
            if names.iter().any(|name| name == ".git") {
                self.protect_repository(&path, protect_config);
            } else if is_git_directory(&self.tree, &path) {
                self.protect_git_directory_tree(&path, &path, protect_config);
                continue;
            }
            if depth < MAX_DEPTH {
                queue.extend(names.into_iter().map(|name| (path.join(name), depth + 1)));
            }
        }
    }

    /// Pins the rows whose first component is in `names`. The comparison ignores case, because some file
    /// systems do.
    fn protect_matching_names(&mut self, directory: &Path, names: &[OsString], rows: &NamesByFirstPart) {
        for name in names {
            let Some(rows) = rows.get(name.as_bytes().to_ascii_lowercase().as_slice()) else { continue };
            for row in rows {
                let rest = Path::new(row.path).components().skip(1);
                let path = directory.join(name).join(rest.collect::<PathBuf>());
                self.protect_table_row(&path, row);
            }
        }
    }

    fn protect_name(&mut self, directory: &Path, name: &'static ProtectedName) {
        self.protect_table_row(&directory.join(name.path), name);
    }

    fn protect_table_row(&mut self, path: &Path, row: &'static ProtectedName) {
        // Removes a trailing slash, which is not part of a name.
        let path: PathBuf = path.components().collect();
        self.protect_with_reason(
            &path,
            format!("started or obeyed by {}", row.program).into(),
            Origin::BUILT_IN,
        );
        if [".husky", ".githooks", ".git-hooks"].contains(&row.path) {
            let top = path.parent().unwrap_or(Path::new("")).to_owned();
            self.protect_hook_scripts(&path, &top);
        }
    }
}
