//! Paths of the host's system trees that this process may read and other users may not, as `/etc/ssl/private` is for the
//! group `ssl-cert`. The programs of an ordinary user keep its groups, since a user cannot give up groups in a user
//! namespace of its own (user_namespaces(7), setgroups). They are to find there what all users may read.

use nix::unistd::{AccessFlags, access};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Trees that are searched as a whole.
const CONFIGURATION: [&str; 5] =
    ["/etc/ca-certificates", "/etc/ssl", "/etc/pki", "/usr/etc", "/usr/local/etc"];

/// The tree of programs is too large for that: its directories of the first levels are looked at.
const PROGRAMS: &str = "/usr";
const PROGRAM_LEVELS: usize = 2;

/// The most levels and names that are looked at in one tree.
const MAX_LEVELS: usize = 8;
const MAX_NAMES: usize = 4096;

/// The topmost paths of that kind.
pub fn paths() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for tree in CONFIGURATION {
        let mut search = GroupOnlySearch { found: &mut found, names_left: MAX_NAMES, files_too: true };
        search.enter(tree.as_ref(), MAX_LEVELS);
    }
    let mut search = GroupOnlySearch { found: &mut found, names_left: MAX_NAMES, files_too: false };
    search.enter(PROGRAMS.as_ref(), PROGRAM_LEVELS);
    found
}

struct GroupOnlySearch<'a> {
    found: &'a mut Vec<PathBuf>,
    names_left: usize,
    files_too: bool,
}

impl GroupOnlySearch<'_> {
    fn enter(&mut self, directory: &Path, levels: usize) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if self.names_left == 0 {
                return;
            }
            self.names_left -= 1;
            // Of a link the target counts, where it is.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() || !kind.is_dir() && !self.files_too {
                continue;
            }
            let path = entry.path();
            let Ok(meta) = entry.metadata() else { continue };
            let (of_others, wanted) = match kind.is_dir() {
                true => (0o005, AccessFlags::X_OK),
                false => (0o004, AccessFlags::R_OK),
            };
            if meta.permissions().mode() & of_others != of_others {
                if access(&path, wanted).is_ok() || access(&path, AccessFlags::R_OK).is_ok() {
                    self.found.push(path);
                }
            } else if kind.is_dir() && levels > 1 {
                self.enter(&path, levels - 1);
            }
        }
    }
}
