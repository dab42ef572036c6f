//! Git directories that were not there at the start, or not as they are: what in them the host's git would run.

use super::git_config::{Verdict, judge};
use super::{APPEARED, Here, Remedy, Take, c_path, changed, made, open_directory, walk};
use crate::sys::file::{self, Resolve};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A directory of hooks with more entries than this goes as a whole.
const HOOKS: usize = 128;
/// A configuration that is longer is not read.
const CONFIG_LIMIT: u64 = 1 << 20;
/// What `commondir` of a linked worktree says (gitrepository-layout(5)).
const COMMON: &[u8] = b"../..\n";

/// Looks at `name`, a `.git` that was not there at the start; with `since` it may have been, and only what is
/// newer counts.
pub(super) fn new_repository(here: &Here<'_>, name: &OsStr, since: Option<SystemTime>, take: Take<'_>) {
    let Ok(meta) = here.look(name) else { return };
    if !meta.is_dir() {
        if since.is_none_or(|since| made(&meta, since)) {
            // In a subdirectory it is how submodules and worktrees look; where it leads is looked at there.
            let remedy = if since.is_none() { Remedy::Move } else { Remedy::Report };
            here.found(name, "says where git's directory is", remedy, take);
        }
        return;
    }
    let since = since.filter(|since| !made(&meta, *since));
    let Ok(directory) = open_directory(here.directory, Path::new(name)) else { return };
    let path = here.path.join(name);
    let git = Here { path: &path, directory: std::os::fd::AsFd::as_fd(&directory) };
    inside(&git, since, take);
    new_worktrees(&git, &BTreeSet::new(), take);
}

/// Looks at linked worktrees and submodules that are not `known`.
pub(super) fn new_worktrees(git: &Here<'_>, known: &BTreeSet<PathBuf>, take: Take<'_>) {
    for (holder, linked) in [("worktrees", true), ("modules", false)] {
        for path in walk::directories(git, Path::new(holder)) {
            if known.contains(&git.path.join(&path)) {
                continue;
            }
            let Ok(directory) = open_directory(git.directory, &path) else { continue };
            let path = git.path.join(&path);
            let here = Here { path: &path, directory: std::os::fd::AsFd::as_fd(&directory) };
            if linked {
                common_directory(&here, take);
            }
            inside(&here, None, take);
        }
    }
}

/// Looks at hooks and configuration in an open git directory. With `since`, the directory is older: what was
/// made in it since then is taken out, what was changed is told.
fn inside(git: &Here<'_>, since: Option<SystemTime>, take: Take<'_>) {
    hooks(git, since, take);
    for name in ["config", "config.worktree"] {
        config(git, OsStr::new(name), since, take);
    }
}

fn hooks(git: &Here<'_>, since: Option<SystemTime>, take: Take<'_>) {
    const NAME: &str = "hooks";
    let Ok(meta) = git.look(OsStr::new(NAME)) else { return };
    if meta.file_type().is_symlink() {
        return judged(git, OsStr::new(NAME), &meta, since, "a link to hooks that git runs", take);
    }
    let Ok(directory) = open_directory(git.directory, Path::new(NAME)) else { return };
    let path = git.path.join(NAME);
    let here = Here { path: &path, directory: std::os::fd::AsFd::as_fd(&directory) };
    let (entries, more) = here.entries(HOOKS);
    if more {
        return judged(git, OsStr::new(NAME), &meta, since, "more hooks than are looked at", take);
    }
    for entry in entries {
        let name = entry.file_name();
        let Ok(meta) = here.look(&name) else { continue };
        let sample = name.as_encoded_bytes().ends_with(b".sample");
        // Git runs what is executable, a link's target too.
        if !sample && !meta.is_dir() && meta.permissions().mode() & 0o111 != 0 {
            judged(&here, &name, &meta, since, "a hook that git runs", take);
        }
    }
}

/// Takes something out when it was made since, and tells of it when it was changed since.
fn judged(
    here: &Here<'_>,
    name: &OsStr,
    meta: &Metadata,
    since: Option<SystemTime>,
    why: &str,
    take: Take<'_>,
) {
    let remedy = match since {
        None => Remedy::Move,
        Some(since) if made(meta, since) => Remedy::Move,
        Some(since) if changed(meta, since) => Remedy::Report,
        Some(_) => return,
    };
    here.found(name, why, remedy, take);
}

/// A configuration loses the keys that run something: without one, git would not take the directory for its
/// own, and the agent's work would be out of reach. What it was goes to quarantine as a whole. In a repository
/// that is older the file may be the user's own, and is only told of.
fn config(git: &Here<'_>, name: &OsStr, since: Option<SystemTime>, take: Take<'_>) {
    let Ok(meta) = git.look(name) else { return };
    if since.is_some_and(|since| !changed(&meta, since)) {
        return;
    }
    let remedy = |remedy| if since.is_some() { Remedy::Report } else { remedy };
    if !meta.is_file() {
        return git.found(name, "no file, where git reads its configuration", remedy(Remedy::Move), take);
    }
    let Some(text) = read(git, name) else {
        return git.found(name, "a configuration that cannot be read", remedy(Remedy::Move), take);
    };
    match judge(&text) {
        Verdict::Harmless => {}
        Verdict::Unreadable => {
            git.found(name, "a configuration that git does not read", remedy(Remedy::Move), take);
        }
        Verdict::Says { keys, rest } => {
            let why = format!("says {}", keys.join(", "));
            git.found(name, why, remedy(Remedy::Replace(rest)), take);
        }
    }
}

/// A linked worktree whose common directory is another one obeys that one's hooks and configuration.
fn common_directory(worktree: &Here<'_>, take: Take<'_>) {
    let name = OsStr::new("commondir");
    if worktree.look(name).is_ok() && read(worktree, name).is_none_or(|text| text != COMMON) {
        worktree.found(name, APPEARED, Remedy::Move, take);
    }
}

/// The content of a regular file of a bounded size. What it is may have changed since it was looked at:
/// O_NONBLOCK does not wait for the other end of a FIFO (open(2)).
fn read(here: &Here<'_>, name: &OsStr) -> Option<Vec<u8>> {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
    let file = file::open(here.directory, &c_path(name).ok()?, flags, 0, Resolve::BeneathNoLinks).ok()?;
    let file = File::from(file);
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > CONFIG_LIMIT {
        return None;
    }
    let mut text = Vec::new();
    file.take(CONFIG_LIMIT + 1).read_to_end(&mut text).ok()?;
    (text.len() as u64 <= CONFIG_LIMIT).then_some(text)
}
