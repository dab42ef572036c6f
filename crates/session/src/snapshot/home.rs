//! What a snapshot holds of an agent's home.
//!
//! Each agent keeps its conversations below a name of its own. A snapshot of everything holds the whole home. A restore
//! replaces what the snapshot holds, and leaves the rest of the home alone.

use crate::create::{self, FileOwner};
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};

/// State of known agents, relative to the home.
const AGENT_STATE: [&str; 14] = [
    // Claude Code.
    ".claude",
    ".claude.json",
    // Codex, Gemini CLI, Qwen Code, GitHub Copilot CLI, Cursor CLI, Continue, Cline, Kimi CLI, Factory Droid.
    ".codex",
    ".gemini",
    ".qwen",
    ".copilot",
    ".cursor",
    ".continue",
    ".cline",
    ".kimi",
    ".factory",
    // The demo agent.
    ".demo",
    // opencode and Goose.
    ".local/share/goose",
    ".local/share/opencode",
];

/// Most names in a home.
pub(super) const MAX_NAMES: usize = 10_000;
/// Longest name in bytes: the old version gets a prefix, and a file name has at most 255 bytes (`NAME_MAX`).
const MAX_NAME: usize = 255 - ASIDE_PREFIX.len();
/// The old version of a name in the home, until the restore is complete.
const ASIDE_PREFIX: &str = "old-home-";

/// What is written of a directory of the home.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StateName {
    /// The name with everything below it.
    Whole(OsString),
    /// The directory, with what [`state_names`] has for it.
    Above(OsString),
}

/// The names with state of known agents in the directory `above` of the home, sorted.
pub(super) fn state_names(above: &Path) -> Vec<StateName> {
    let below = AGENT_STATE.iter().filter_map(|state| Path::new(state).strip_prefix(above).ok());
    let mut names: Vec<StateName> = below
        .filter_map(|rest| {
            let mut parts = rest.components();
            let name = parts.next()?.as_os_str().to_owned();
            Some(if parts.next().is_none() { StateName::Whole(name) } else { StateName::Above(name) })
        })
        .collect();
    names.dedup();
    names
}

/// All names in the home, sorted.
///
/// # Errors
/// [`Code::Invalid`] for more names than a snapshot may hold, [`Code::System`].
pub(super) fn all_names(home: BorrowedFd<'_>) -> Result<Vec<OsString>> {
    let names = beneath::read_names(home, MAX_NAMES + 1);
    let names = names.map_err(|e| Error::system("take a snapshot of home", e))?;
    check(&names).map_err(|why| {
        Error::new(Code::Invalid, format!("take a snapshot of home: {why}"))
            .hint("without --all a snapshot holds only the state of the agent")
    })?;
    Ok(names)
}

/// The paths that a restore replaces, relative to the home, given the extracted trees: a name as a whole, or if it holds
/// nothing but state of known agents, that state alone.
///
/// # Errors
/// Those of opening and reading the directories; more names than a snapshot may hold.
pub(super) fn paths_to_restore(extracted: BorrowedFd<'_>) -> io::Result<Vec<PathBuf>> {
    let home = match beneath::open_directory(extracted, "home") {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let names = beneath::read_names(home.as_fd(), MAX_NAMES + 1)?;
    check(&names).map_err(io::Error::other)?;
    let mut paths = Vec::new();
    for name in names.into_iter().map(PathBuf::from) {
        let mut states = Vec::new();
        match find_states(home.as_fd(), &name, &mut states)? {
            true => paths.append(&mut states),
            false => paths.push(name),
        }
    }
    Ok(paths)
}

/// Collects the state of known agents at `path` or below; false if there is anything else.
fn find_states(home: BorrowedFd<'_>, path: &Path, states: &mut Vec<PathBuf>) -> io::Result<bool> {
    let mut known = AGENT_STATE.iter().map(Path::new);
    if known.clone().any(|state| state == path) {
        states.push(path.to_owned());
        return Ok(true);
    }
    let is_directory =
        beneath::stat_beneath(home, path)?.is_some_and(|meta| meta.kind == FileKind::Directory);
    if !is_directory || !known.any(|state| state.starts_with(path)) {
        return Ok(false);
    }
    let opened = beneath::open_directory_overriding_mode(home, path)?;
    for name in beneath::read_names(opened.opened.as_fd(), MAX_NAMES)? {
        if !find_states(home, &path.join(name), states)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the directories above `path` in the home of the session. Returns the path to replace: `path` itself, or the
/// first name on the way that is no directory, or that cannot be opened.
///
/// # Errors
/// Those of mkdir(2).
pub(super) fn make_way(home: BorrowedFd<'_>, path: &Path, owner: FileOwner) -> io::Result<PathBuf> {
    let above: Vec<&Path> = path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    for directory in above.into_iter().rev() {
        match beneath::open_directory(home, directory) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                create::create_directory(home, directory, owner)?;
            }
            Err(_) => return Ok(directory.to_owned()),
        }
    }
    Ok(path.to_owned())
}

/// The name of the old version of `path` beside the extracted trees.
pub(super) fn aside_name(path: &Path) -> OsString {
    let mut aside = OsString::from(ASIDE_PREFIX);
    for (number, part) in path.components().filter(|part| matches!(part, Component::Normal(_))).enumerate() {
        aside.push(if number == 0 { "" } else { "%" });
        aside.push(part);
    }
    aside
}

fn check(names: &[OsString]) -> std::result::Result<(), String> {
    if names.len() > MAX_NAMES {
        return Err(format!("it has more than {MAX_NAMES} names"));
    }
    match names.iter().find(|name| name.len() > MAX_NAME) {
        Some(name) => Err(format!("{} is longer than {MAX_NAME} bytes", crate::diff::text::show_name(name))),
        None => Ok(()),
    }
}
