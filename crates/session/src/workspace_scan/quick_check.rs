//! Checks whether a work tree is so small and plain that a scan cannot find anything. The launcher runs
//! this before it forks a worker for the scan. It compares names, opens only directories, and does not
//! allocate.

use super::baseline::WorkspaceBaseline;
use super::walk::is_git_name;
use rustix::fs::{FileType, RawDir};
use saggar_policy::protect::WORK_TREE_NAMES;
use saggar_sandbox::state::base64_bytes::Base64Bytes;
use saggar_sys::file::{self, Resolve};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most entries that are read, in all directories together. A scan of a larger tree takes longer than
/// forking a process.
const MAX_ENTRIES: usize = 256;
/// The most levels of directories below the top that are read.
const MAX_DEPTH: usize = 8;
/// The number of bytes of entries that are read at once.
const BUFFER_BYTES: usize = 2048;

/// Whether `root`, with the recorded `baseline`, contains no name that the walk would examine. False if the
/// check would exceed its bounds.
pub(super) fn is_trivially_clean(root: BorrowedFd<'_>, baseline: &WorkspaceBaseline) -> bool {
    let mut left = MAX_ENTRIES;
    baseline.pins.is_empty()
        && baseline.repositories.is_empty()
        && is_clean_directory(root, c".", &baseline.policy_paths, 0, &mut left)
}

fn is_clean_directory(
    above: BorrowedFd<'_>,
    name: &CStr,
    policy_paths: &[Base64Bytes],
    depth: usize,
    budget: &mut usize,
) -> bool {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let Ok(opened) = file::open(above, name, flags, 0, Resolve::BeneathNoLinks) else { return false };
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut entries = RawDir::new(&opened, &mut buffer);
    while let Some(entry) = entries.next() {
        let (Ok(entry), Some(rest)) = (entry, budget.checked_sub(1)) else { return false };
        *budget = rest;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if is_scanned_name(name, if depth == 0 { policy_paths } else { &[] }) {
            return false;
        }
        let is_plain = match entry.file_type() {
            FileType::Directory if depth == MAX_DEPTH => false,
            FileType::Directory => {
                is_clean_directory(opened.as_fd(), entry.file_name(), policy_paths, depth + 1, budget)
            }
            kind => kind != FileType::Unknown,
        };
        if !is_plain {
            return false;
        }
    }
    true
}

/// Whether the walk would examine an entry of this name, in a directory in which the protected names
/// `policy_paths` begin.
fn is_scanned_name(name: &OsStr, policy_paths: &[Base64Bytes]) -> bool {
    let begins = |path: &Path| path.iter().next().is_some_and(|first| first.eq_ignore_ascii_case(name));
    is_git_name(name)
        || WORK_TREE_NAMES.iter().any(|protected| begins(Path::new(protected.path)))
        || policy_paths.iter().any(|path| begins(path.as_path()))
}

#[cfg(test)]
mod tests {
    use super::super::{ScanBounds, WorkspaceScanner};
    use proptest::prelude::*;
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    const EVERYTHING: ScanBounds = ScanBounds { max_entries: 100_000, max_time: Duration::from_secs(60) };

    fn watched(workspace: &Path) -> WorkspaceScanner {
        WorkspaceScanner::new(workspace, true, &[Path::new("deploy.sh")], &[]).unwrap()
    }

    fn make(workspace: &Path, path: &str) {
        let path = workspace.join(path);
        // A path that conflicts with an earlier one is skipped.
        if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.exists() {
            fs::write(path, "[core]\n\thooksPath = x\n").unwrap();
        }
    }

    #[test]
    fn plain_names_are_ordinary_and_others_are_not() {
        for (path, is) in [
            ("src/main.rs", true),
            ("a/b/c/d", true),
            ("a/deploy.sh", true),
            ("deploy.sh", false),
            (".bashrc", false),
            ("a/.BASHRC", false),
            ("a/.git", false),
            ("a/hooks/x", false),
            (".cursor/rules", false),
            ("1/2/3/4/5/6/7/8/x", true),
            ("1/2/3/4/5/6/7/8/9/x", false),
        ] {
            let workspace = tempfile::tempdir().unwrap();
            let watched = watched(workspace.path());
            make(workspace.path(), path);
            assert_eq!(watched.is_trivially_clean(), is, "{path}");
        }
    }

    #[test]
    fn a_large_tree_is_not_ordinary() {
        let workspace = tempfile::tempdir().unwrap();
        let watched = watched(workspace.path());
        (0..300).for_each(|number| make(workspace.path(), &number.to_string()));
        assert!(!watched.is_trivially_clean());
    }

    proptest! {
        /// Where the walk is skipped, it would have found nothing.
        #[test]
        fn nothing_is_found_in_an_ordinary_tree(
            names in prop::collection::vec(
                prop::collection::vec(
                    prop::sample::select(vec![
                        "a", "b", "src", ".git", "config", "HEAD", "hooks", "objects", "refs", ".bashrc", ".vscode",
                        "tasks.json", "deploy.sh", ".gitmodules", ".claude", "settings.json", "node_modules", ".envrc",
                    ]),
                    1..4,
                ),
                0..6,
            )
        ) {
            let workspace = tempfile::tempdir().unwrap();
            let watched = watched(workspace.path());
            names.iter().for_each(|parts| make(workspace.path(), &parts.join("/")));
            let mut found = Vec::new();
            let unseen = watched.scan_all(EVERYTHING, &mut |one| found.push(one.path));
            prop_assert_eq!(unseen.directories, 0);
            prop_assert!(!watched.is_trivially_clean() || found.is_empty(), "{:?} in {:?}", found, names);
        }
    }
}
