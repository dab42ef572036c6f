//! Paths of the host's system trees that this process may read and other users may not, as `/etc/ssl/private` is for the
//! group `ssl-cert`. The programs of an ordinary user keep its groups, since a user cannot give up groups in a user
//! namespace of its own (user_namespaces(7), setgroups). They are to find there what all users may read.

use nix::unistd::{AccessFlags, access, geteuid};
use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The trees of programs are too large to be searched as a whole at a start: there, these levels are.
const PROGRAM_LEVELS: usize = 2;

/// Directories of programs and headers, whose many files are not looked at.
const UNSEARCHED_FILES: [&str; 8] = [
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/games",
    "/usr/include",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/sbin",
];

/// Parts of it that are searched as trees of their own: what the administrator adds, and configuration.
const OWN_TREES: [&str; 3] = ["/usr/local", "/usr/local/etc", "/usr/etc"];

/// The most levels and names that are looked at in one tree, the nearest first.
const MAX_LEVELS: usize = 8;
const MAX_NAMES: usize = 4096;

/// The topmost paths of that kind which a start finds in these files and trees of the system, within the limits above.
pub fn paths<'a>(trees: impl IntoIterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for tree in trees.into_iter().chain(OWN_TREES.map(Path::new)) {
        let is_configuration = tree.starts_with("/etc") || tree.ends_with("etc");
        let levels = if is_configuration { MAX_LEVELS } else { PROGRAM_LEVELS };
        GroupOnlySearch { found: &mut found, levels, names_left: MAX_NAMES, skips: true }.search(tree);
    }
    // A tree of its own that is not for all is found where it is listed, too.
    found.sort_unstable();
    found.dedup();
    found
}

/// All of that kind in these trees. It takes a fraction of a second, and longer when the disk is to be read.
pub fn all_paths<'a>(trees: impl IntoIterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for tree in trees {
        let mut search =
            GroupOnlySearch { found: &mut found, levels: usize::MAX, names_left: usize::MAX, skips: false };
        search.search(tree);
    }
    found
}

struct GroupOnlySearch<'a> {
    found: &'a mut Vec<PathBuf>,
    levels: usize,
    names_left: usize,
    /// Whether the files of [`UNSEARCHED_FILES`] are passed over, and [`OWN_TREES`] below others.
    skips: bool,
}

impl GroupOnlySearch<'_> {
    fn search(&mut self, tree: &Path) {
        let Ok(meta) = fs::symlink_metadata(tree) else { return };
        // Of a link the target counts, where it is.
        let mut directories = VecDeque::new();
        if !meta.is_symlink() && self.is_open_directory(|| tree.to_owned(), &meta) {
            directories.push_back((tree.to_owned(), 1));
        }
        let skips = self.skips;
        let is_skipped =
            |path: &Path, of: &[&str]| skips && of.iter().any(|skipped| path == Path::new(skipped));
        while let Some((directory, level)) = directories.pop_front() {
            let files_too = !is_skipped(&directory, &UNSEARCHED_FILES);
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_symlink() || !kind.is_dir() && !files_too {
                    continue;
                }
                if self.names_left == 0 {
                    return;
                }
                self.names_left -= 1;
                let Ok(meta) = entry.metadata() else { continue };
                if !self.is_open_directory(|| entry.path(), &meta) || level == self.levels {
                    continue;
                }
                let path = entry.path();
                if !is_skipped(&path, &OWN_TREES) {
                    directories.push_back((path, level + 1));
                }
            }
        }
    }

    /// Notes a path that gives this process more than others; returns whether it is a directory for all.
    fn is_open_directory(&mut self, path: impl FnOnce() -> PathBuf, meta: &fs::Metadata) -> bool {
        let of_others = meta.permissions().mode();
        let lacks = |bit: u32| of_others & bit == 0;
        let lacks_search = meta.is_dir() && lacks(0o001);
        if !lacks(0o004) && !lacks_search {
            return meta.is_dir();
        }
        let path = path();
        let has = |wanted: AccessFlags| access(&path, wanted).is_ok();
        // The user's own programs below /usr/local, say.
        let is_own = meta.uid() == geteuid().as_raw() && !geteuid().is_root() && path.starts_with("/usr");
        if !is_own && (lacks(0o004) && has(AccessFlags::R_OK) || lacks_search && has(AccessFlags::X_OK)) {
            self.found.push(path);
        }
        false
    }
}
