//! Lists a directory with everything below it, a part at a time.

use super::list::{DirectoryEntry, describe};
use super::{Workspace, file_error, parse_workspace_path};
use saggar_bridge::content::{from_base64, to_base64};
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Most levels of directories.
const MAX_DEPTH: usize = 128;
/// Most names in one directory.
const MAX_NAMES: usize = 200_000;

/// A part of the names below a directory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct TreeListing {
    /// The names, sorted; each is a path relative to the directory. A directory precedes what it contains.
    pub entries: Vec<DirectoryEntry>,
    /// Cursor of the next part; `None` after the last one.
    pub next: Option<String>,
}

impl Workspace {
    /// Lists at most `limit` names below the directory at `path`, after the cursor of an earlier part. Files and
    /// directories of the names in `exclude` are left out, with everything below them. A directory that cannot be opened,
    /// or is deeper than 128 levels, is listed without its content.
    ///
    /// # Errors
    /// As [`Workspace::list`]; `Invalid` for a cursor that no earlier part returned.
    pub fn walk(
        &self,
        path: &str,
        after: Option<&str>,
        limit: usize,
        exclude: &[String],
    ) -> Result<TreeListing> {
        let path = parse_workspace_path(path)?;
        let after = after.map(parse_cursor).transpose()?;
        let mut walk = TreeWalk { exclude, limit, entries: Vec::new(), last: PathBuf::new(), is_full: false };
        beneath::open_directory(self.root.as_fd(), &path)
            .and_then(|directory| walk.visit(directory.as_fd(), Path::new(""), after.as_deref(), 0))
            .map_err(|e| file_error("list", &path, &e))?;
        let next = walk.is_full.then(|| to_base64(walk.last.as_os_str().as_bytes()));
        Ok(TreeListing { entries: walk.entries, next })
    }
}

fn parse_cursor(cursor: &str) -> Result<PathBuf> {
    let path = from_base64(cursor).map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
    path.ok_or_else(|| {
        Error::new(Code::Invalid, format!("cursor {} is invalid", saggar_sys::text::quoted(cursor)))
            .hint("pass the value of next of an earlier result")
    })
}

struct TreeWalk<'a> {
    exclude: &'a [String],
    limit: usize,
    entries: Vec<DirectoryEntry>,
    /// Path of the last entry.
    last: PathBuf,
    /// There are more names than `limit`.
    is_full: bool,
}

impl TreeWalk<'_> {
    /// Adds the names of a directory and everything below, except for those up to `after`, relative to it.
    fn visit(
        &mut self,
        directory: BorrowedFd<'_>,
        above: &Path,
        after: Option<&Path>,
        depth: usize,
    ) -> io::Result<()> {
        let mut parts = after.map(Path::components);
        let first = parts.as_mut().and_then(|parts| Some(parts.next()?.as_os_str().to_owned()));
        let rest = parts.map(|parts| parts.as_path()).filter(|rest| !rest.as_os_str().is_empty());
        for name in beneath::read_names(directory, MAX_NAMES)? {
            // What is listed already.
            let is_first = first.as_ref() == Some(&name);
            if first.as_ref().is_some_and(|first| name < *first) || self.is_excluded(&name) {
                continue;
            }
            let Some(meta) = beneath::stat_beneath(directory, &name)? else { continue };
            let path = above.join(&name);
            if !is_first {
                if self.entries.len() == self.limit {
                    self.is_full = true;
                    return Ok(());
                }
                self.entries.push(describe(path.as_os_str(), &meta));
                self.last.clone_from(&path);
            }
            if meta.kind == FileKind::Directory
                && depth < MAX_DEPTH
                && let Ok(below) = beneath::open_directory(directory, &name)
            {
                let after = if is_first { rest } else { None };
                self.visit(below.as_fd(), &path, after, depth + 1)?;
                if self.is_full {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn is_excluded(&self, name: &OsStr) -> bool {
        self.exclude.iter().any(|excluded| excluded.as_bytes() == name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn workspace(files: &[&[u8]]) -> (tempfile::TempDir, Workspace) {
        let scratch = tempfile::tempdir().unwrap();
        for file in files {
            let path = scratch.path().join(OsStr::from_bytes(file));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "abc").unwrap();
        }
        let root = beneath::open_root(scratch.path()).unwrap();
        (scratch, Workspace::new(root, Vec::new()))
    }

    fn names(workspace: &Workspace, limit: usize, exclude: &[String]) -> Vec<String> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let TreeListing { entries, next } = workspace.walk("", after.as_deref(), limit, exclude).unwrap();
            assert!(entries.len() <= limit && !(entries.is_empty() && next.is_some()));
            found.extend(entries.into_iter().map(|entry| entry.name));
            match next {
                Some(next) => after = Some(next),
                None => return found,
            }
        }
    }

    #[test]
    fn excluded_names_and_links_are_not_entered() {
        let (scratch, workspace) = workspace(&[b"a/x/1", b"a/y", b"x/2", b"z"]);
        std::os::unix::fs::symlink("/etc", scratch.path().join("etc")).unwrap();
        assert_eq!(names(&workspace, 9, &["x".into()]), ["a", "a/y", "etc", "z"]);
        let below = workspace.walk("a", None, 9, &[]).unwrap();
        let below: Vec<_> = below.entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
        assert_eq!(below, [("x", "directory"), ("x/1", "file"), ("y", "file")]);
        for path in ["etc", "z", "none"] {
            assert_eq!(workspace.walk(path, None, 9, &[]).unwrap_err().code(), Code::Refused, "{path}");
        }
        assert_eq!(workspace.walk("", Some("!"), 9, &[]).unwrap_err().code(), Code::Invalid);
    }

    #[test]
    fn cursor_of_a_removed_name_continues_after_it() {
        let (scratch, workspace) = workspace(&[b"a/1", b"a/2", b"b/3"]);
        let part = workspace.walk("", None, 2, &[]).unwrap();
        fs::remove_dir_all(scratch.path().join("a")).unwrap();
        let rest = workspace.walk("", part.next.as_deref(), 9, &[]).unwrap();
        assert_eq!(rest.entries.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["b", "b/3"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn every_name_comes_once_and_sorted_by_components(
            files in proptest::collection::btree_set(proptest::collection::vec("[a-c.]{0,1}[ab]", 1..4), 0..12),
            limit in 1usize..5,
        ) {
            let scratch = tempfile::tempdir().unwrap();
            for file in &files {
                let path: PathBuf = file.iter().collect();
                // A name may be a file and a directory; then the first one stays.
                let _ = fs::create_dir_all(scratch.path().join(path.parent().unwrap()));
                let _ = fs::write(scratch.path().join(path), "x");
            }
            let workspace = Workspace::new(beneath::open_root(scratch.path()).unwrap(), Vec::new());
            let all = names(&workspace, 1000, &[]);
            prop_assert_eq!(&names(&workspace, limit, &[]), &all);
            let mut sorted: Vec<PathBuf> = all.iter().map(PathBuf::from).collect();
            sorted.sort();
            sorted.dedup();
            prop_assert_eq!(sorted, all.iter().map(PathBuf::from).collect::<Vec<_>>());
        }
    }
}
