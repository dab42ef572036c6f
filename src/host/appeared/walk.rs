//! Walks of the work tree, bounded in entries and in depth.

use super::{Here, Remedy, Take, Watched, changed, git, made, open_directory};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How deep it goes; each level holds a descriptor.
const DEPTH: usize = 64;
/// How many linked worktrees, or submodules, are looked at, and how deep in `modules` they may be.
const GIT_DIRECTORIES: usize = 1024;
const MODULE_DEPTH: usize = 16;

/// Looks for repositories in the work tree, but for the one that is at its top; false when it has more than so
/// many entries, or is too deep.
pub(super) fn tree(watched: &Watched, entries: usize, take: Take<'_>) -> bool {
    let mut walk = Walk { since: watched.since, skip: watched.git.as_deref(), left: entries };
    let root = Here { path: Path::new(""), directory: watched.root.as_fd() };
    walk.directory(&root, DEPTH, take)
}

struct Walk<'a> {
    since: SystemTime,
    skip: Option<&'a Path>,
    left: usize,
}

impl Walk<'_> {
    /// False when there was too much.
    fn directory(&mut self, here: &Here<'_>, depth: usize, take: Take<'_>) -> bool {
        let (entries, more) = here.entries(self.left);
        self.left = self.left.saturating_sub(entries.len());
        if more {
            return false;
        }
        let has = |name: &str| entries.iter().any(|entry| entry.file_name() == name);
        if ["HEAD", "objects", "refs"].into_iter().all(has) {
            // This is how git knows a repository (gitrepository-layout(5)).
            self.bare(here, take);
        }
        let at_top = here.path.as_os_str().is_empty();
        let mut whole = true;
        for entry in entries {
            let name = entry.file_name();
            let path = here.path.join(&name);
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if self.skip == Some(&path) {
                continue;
            }
            if name == ".git" {
                if !at_top {
                    git::new_repository(here, &name, Some(self.since), take);
                }
            } else if is_directory && let Ok(directory) = open_directory(here.directory, Path::new(&name)) {
                let below = Here { path: &path, directory: directory.as_fd() };
                whole &= depth > 0 && self.directory(&below, depth - 1, take);
            }
        }
        whole
    }

    fn bare(&self, here: &Here<'_>, take: Take<'_>) {
        let look = |name: &str| here.look(OsStr::new(name));
        let new = look(".").is_ok_and(|meta| made(&meta, self.since))
            || look("config").is_ok_and(|meta| changed(&meta, self.since))
            || look("hooks").is_ok_and(|meta| changed(&meta, self.since));
        if new {
            here.found(OsStr::new("."), "a bare repository", Remedy::Report, take);
        }
    }
}

/// The directories in `holder` of a git directory that are git directories themselves: names of submodules have
/// slashes in them.
pub(super) fn directories(git: &Here<'_>, holder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(git, holder, MODULE_DEPTH, &mut found);
    found
}

fn collect(git: &Here<'_>, holder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(directory) = open_directory(git.directory, holder) else { return };
    let here = Here { path: holder, directory: directory.as_fd() };
    let room = GIT_DIRECTORIES.saturating_sub(found.len());
    for entry in here.entries(room).0 {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = holder.join(entry.file_name());
        let look = |name: &str| here.look(Path::new(&entry.file_name()).join(name).as_os_str()).is_ok();
        if ["HEAD", "config", "objects", "commondir"].into_iter().any(look) {
            found.push(path.clone());
            if depth > 0 {
                collect(git, &path.join("modules"), depth - 1, found);
            }
        } else if depth > 0 {
            collect(git, &path, depth - 1, found);
        }
    }
}

/// The same at the start, by path; `relative` is what their paths begin with.
pub(super) fn below(holder: &Path, relative: &Path) -> Vec<PathBuf> {
    let Ok(directory) = fs::File::open(holder) else { return Vec::new() };
    let here = Here { path: relative, directory: directory.as_fd() };
    directories(&here, Path::new("."))
        .into_iter()
        .map(|path| relative.join(path.strip_prefix(".").unwrap_or(&path)))
        .collect()
}
