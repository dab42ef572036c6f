//! Paths of the host's system trees that this process may read and other users may not, as `/etc/ssl/private` is for the
//! group `ssl-cert`. The programs of an ordinary user keep its groups, since a user cannot give up groups in a user
//! namespace of its own (user_namespaces(7), setgroups). They are to find there what all users may read.

use nix::unistd::{AccessFlags, access};
use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The tree of programs is too large to be searched at a start: there, these levels are.
const PROGRAMS: &str = "/usr";
const PROGRAM_LEVELS: usize = 2;

/// Its directories of programs and headers, whose many files are not looked at.
const PUBLIC_FILES: [&str; 4] = ["/usr/bin", "/usr/games", "/usr/include", "/usr/sbin"];

/// The parts of it that the administrator fills, which are searched like configuration.
const LOCAL: [&str; 2] = ["/usr/local", "/usr/etc"];

/// The most levels and names that are looked at in one tree of configuration, the nearest first.
const MAX_LEVELS: usize = 8;
const MAX_NAMES: usize = 4096;

/// The topmost paths of that kind which a start finds in these files and trees of the system: all of configuration, and
/// of `/usr` what is near its top.
pub fn paths<'a>(trees: impl IntoIterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for tree in trees.into_iter().chain(LOCAL.map(Path::new)) {
        let levels = if tree == Path::new(PROGRAMS) { PROGRAM_LEVELS } else { MAX_LEVELS };
        GroupOnlySearch { found: &mut found, levels, names_left: MAX_NAMES, skips: true }.search(tree);
    }
    // A local tree that a package made group-only as a whole is found twice.
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
    /// Whether the files of [`PUBLIC_FILES`] are passed over.
    skips: bool,
}

impl GroupOnlySearch<'_> {
    fn search(&mut self, tree: &Path) {
        let Ok(meta) = fs::symlink_metadata(tree) else { return };
        // Of a link the target counts, where it is.
        let mut directories = VecDeque::new();
        if !meta.is_symlink() && self.is_open_directory(tree.to_owned(), &meta) {
            directories.push_back((tree.to_owned(), 1));
        }
        while let Some((directory, level)) = directories.pop_front() {
            let files_too = !(self.skips && PUBLIC_FILES.iter().any(|public| directory == Path::new(public)));
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if self.names_left == 0 {
                    return;
                }
                self.names_left -= 1;
                let Ok(kind) = entry.file_type() else { continue };
                if kind.is_symlink() || !kind.is_dir() && !files_too {
                    continue;
                }
                let Ok(meta) = entry.metadata() else { continue };
                let path = entry.path();
                if self.is_open_directory(path.clone(), &meta) && level < self.levels {
                    directories.push_back((path, level + 1));
                }
            }
        }
    }

    /// Notes a path that is not for all; returns whether it is a directory that is.
    fn is_open_directory(&mut self, path: PathBuf, meta: &fs::Metadata) -> bool {
        let (of_others, wanted) = match meta.is_dir() {
            true => (0o005, AccessFlags::X_OK),
            false => (0o004, AccessFlags::R_OK),
        };
        if meta.permissions().mode() & of_others == of_others {
            return meta.is_dir();
        }
        if access(&path, wanted).is_ok() || access(&path, AccessFlags::R_OK).is_ok() {
            self.found.push(path);
        }
        false
    }
}
