//! Protected names below the top of the work tree: projects in projects, repositories in repositories. A start has
//! little time: the nearest directories come first, and what lies beyond the bounds is looked at when the sandbox is
//! over ([`crate::host::appeared`]).

use super::Found;
use crate::spec::Origin;
use crate::spec::protect::{Name, WORK_TREE};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How deep it goes.
const DEPTH: usize = 3;
/// How many directories are read, how many names in each, and for how long.
const DIRECTORIES: usize = 128;
const NAMES: usize = 1024;
const TIME: Duration = Duration::from_millis(20);
/// How many names outside of git directories are pinned.
const PINS: usize = 256;
/// What holds thousands of directories that nobody works in.
const SKIPPED: [&str; 3] = ["node_modules", "target", ".git"];

/// The rows of the table by the first part of their names, in lower case.
type Rows = HashMap<&'static [u8], Vec<&'static Name>>;

impl Found<'_> {
    /// Pins the protected names of the top, and of the directories below it.
    pub(super) fn work_tree_names(&mut self, config: bool) {
        let mut rows = Rows::new();
        for name in WORK_TREE {
            let first = name.path.split('/').next().unwrap_or(name.path);
            rows.entry(first.as_bytes()).or_default().push(name);
        }
        let (names, whole) = self.tree.names(Path::new(""), NAMES);
        if whole {
            self.rows(Path::new(""), &names, &rows);
        } else {
            WORK_TREE.iter().for_each(|name| self.name(Path::new(""), name));
        }
        let mut queue: VecDeque<(PathBuf, usize)> =
            names.into_iter().map(|name| (PathBuf::from(name), 1)).collect();
        let (mut left, until) = (DIRECTORIES, Instant::now() + TIME);
        while let Some((path, depth)) = queue.pop_front() {
            let skipped = path.file_name().is_some_and(|name| SKIPPED.iter().any(|skipped| name == *skipped));
            if skipped || !self.tree.look(&path).is_ok_and(|meta| meta.is_directory()) {
                continue;
            }
            if left == 0 || self.pins.len() > PINS || Instant::now() > until {
                return;
            }
            left -= 1;
            let (names, _) = self.tree.names(&path, NAMES);
            self.rows(&path, &names, &rows);
            if names.iter().any(|name| name == ".git") {
                self.repository(&path, config);
            } else if self.is_bare(&path) {
                self.git(&path, &path, config);
                continue;
            }
            if depth < DEPTH {
                queue.extend(names.into_iter().map(|name| (path.join(name), depth + 1)));
            }
        }
    }

    /// Pins the rows whose first part is among `names`. Case does not count: there are file systems for which it
    /// does not.
    fn rows(&mut self, directory: &Path, names: &[OsString], rows: &Rows) {
        for name in names {
            let Some(rows) = rows.get(name.as_bytes().to_ascii_lowercase().as_slice()) else { continue };
            for row in rows {
                let rest = Path::new(row.path).components().skip(1);
                let path = directory.join(name).join(rest.collect::<PathBuf>());
                self.table_row(&path, row);
            }
        }
    }

    fn name(&mut self, directory: &Path, name: &'static Name) {
        self.table_row(&directory.join(name.path), name);
    }

    fn table_row(&mut self, path: &Path, row: &'static Name) {
        // A trailing slash would be no name.
        let path: PathBuf = path.components().collect();
        self.protect_because(&path, format!("started or obeyed by {}", row.program).into(), Origin::BUILT_IN);
        if [".husky", ".githooks", ".git-hooks"].contains(&row.path) {
            let top = path.parent().unwrap_or(Path::new("")).to_owned();
            self.scripts(&path, &top);
        }
    }
}
