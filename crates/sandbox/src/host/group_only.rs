//! Paths of the host's system trees that this process may read and other users may not, as `/etc/ssl/private` is for the
//! group `ssl-cert`. The programs of an ordinary user keep its groups, since a user cannot give up groups in a user
//! namespace of its own (user_namespaces(7), setgroups). They are to find there what all users may read.

use nix::unistd::{AccessFlags, access, getegid, geteuid, getgroups};
use std::collections::VecDeque;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The trees of programs are too large to be searched as a whole at each start: there, these levels are.
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

/// What changes with the packages of the system: dpkg, RPM in each of its formats, apk and pacman.
const PACKAGE_DATABASES: [&str; 10] = [
    "/var/lib/dpkg/status",
    "/var/lib/dpkg/statoverride",
    "/var/lib/rpm/Packages",
    "/var/lib/rpm/Packages.db",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/Packages.db",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/lib/apk/db/installed",
    "/usr/lib/apk/db/installed",
    "/var/lib/pacman/local",
];

/// What each start finds.
#[derive(Debug)]
pub struct NearPaths {
    /// The topmost paths of that kind, some of them twice.
    pub paths: Vec<PathBuf>,
    /// Of the directories that were looked at, and of the packages of the system: when it is another one, what lies deeper
    /// may be as well.
    pub fingerprint: u64,
}

/// Searches these files and trees of the system, within the limits above.
pub fn near<'a>(trees: impl IntoIterator<Item = &'a Path>) -> NearPaths {
    let mut search = GroupOnlySearch { skips: true, ..GroupOnlySearch::default() };
    for path in PACKAGE_DATABASES.map(Path::new) {
        if let Ok(meta) = fs::metadata(path) {
            search.count(path, &meta);
        }
    }
    for tree in trees.into_iter().chain(OWN_TREES.map(Path::new)) {
        let is_configuration = tree.starts_with("/etc") || tree.ends_with("etc");
        search.search(tree, if is_configuration { MAX_LEVELS } else { PROGRAM_LEVELS }, MAX_NAMES);
    }
    NearPaths { paths: search.found, fingerprint: search.fingerprint }
}

/// All of that kind in these trees, among the first `max_names` names of each. It takes a fraction of a second, and longer
/// when the disk is to be read.
pub fn all<'a>(trees: impl IntoIterator<Item = &'a Path>, max_names: usize) -> Vec<PathBuf> {
    let mut search = GroupOnlySearch::default();
    trees.into_iter().for_each(|tree| search.search(tree, usize::MAX, max_names));
    search.found
}

/// Whether the path, which a search found earlier, is still of that kind, and still leads through no link.
pub(crate) fn is_group_only(path: &Path) -> bool {
    let is_real = path.canonicalize().is_ok_and(|real| real == path);
    is_real && fs::symlink_metadata(path).is_ok_and(|meta| gives_more_than_others(path, &meta))
}

/// The groups of this process, sorted; `None` when it cannot read them.
pub fn caller_groups() -> Option<Vec<u32>> {
    let mut groups: Vec<u32> = getgroups().ok()?.into_iter().map(|group| group.as_raw()).collect();
    groups.push(getegid().as_raw());
    groups.sort_unstable();
    groups.dedup();
    Some(groups)
}

/// Whether these groups of this process, or those that it cannot read, have one that others may be in: by convention,
/// nobody else is in the group that has the number of the user.
pub fn has_shared_group(groups: Option<&[u32]>) -> bool {
    groups.is_none_or(|groups| groups != [geteuid().as_raw()])
}

#[derive(Default)]
struct GroupOnlySearch {
    found: Vec<PathBuf>,
    /// [`NearPaths::fingerprint`] of what was looked at.
    fingerprint: u64,
    /// Whether the files of [`UNSEARCHED_FILES`] are passed over, and [`OWN_TREES`] below others.
    skips: bool,
}

impl GroupOnlySearch {
    fn search(&mut self, tree: &Path, levels: usize, mut names_left: usize) {
        let Ok(meta) = fs::symlink_metadata(tree) else { return };
        // Of a link the target counts, where it is.
        let mut directories = VecDeque::new();
        if !meta.is_symlink() {
            directories.extend(self.open_directory(|| tree.to_owned(), &meta).map(|tree| (tree, 1)));
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
                if names_left == 0 {
                    return;
                }
                names_left -= 1;
                let Ok(meta) = entry.metadata() else { continue };
                let Some(path) = self.open_directory(|| entry.path(), &meta) else { continue };
                if level < levels && !is_skipped(&path, &OWN_TREES) {
                    directories.push_back((path, level + 1));
                }
            }
        }
    }

    /// Notes a path that gives this process more than others; returns that of a directory for all.
    fn open_directory(&mut self, path: impl FnOnce() -> PathBuf, meta: &fs::Metadata) -> Option<PathBuf> {
        let is_for_all = is_for_all(meta);
        if is_for_all && !meta.is_dir() {
            return None;
        }
        let path = path();
        if meta.is_dir() {
            self.count(&path, meta);
        }
        if is_for_all {
            return Some(path);
        }
        if gives_more_than_others(&path, meta) {
            self.found.push(path);
        }
        None
    }

    /// Adds to the fingerprint: a sum, since directories are listed in any order, and some are met twice.
    fn count(&mut self, path: &Path, meta: &fs::Metadata) {
        let mut hasher = DefaultHasher::new();
        (path, meta.ino(), meta.ctime(), meta.ctime_nsec()).hash(&mut hasher);
        self.fingerprint = self.fingerprint.wrapping_add(hasher.finish());
    }
}

fn lacks(meta: &fs::Metadata, bit: u32) -> bool {
    meta.permissions().mode() & bit == 0
}

fn is_for_all(meta: &fs::Metadata) -> bool {
    !(lacks(meta, 0o004) || meta.is_dir() && lacks(meta, 0o001))
}

/// Whether this process may read or search what others may not, and not because it is the user's own.
fn gives_more_than_others(path: &Path, meta: &fs::Metadata) -> bool {
    let has = |wanted: AccessFlags| access(path, wanted).is_ok();
    // The user's own programs below /usr/local, say.
    let is_own = meta.uid() == geteuid().as_raw() && !geteuid().is_root() && path.starts_with("/usr");
    !is_own
        && (lacks(meta, 0o004) && has(AccessFlags::R_OK)
            || meta.is_dir() && lacks(meta, 0o001) && has(AccessFlags::X_OK))
}
