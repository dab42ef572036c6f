//! Snapshots: what a session has on disk in one file, a tar archive in a zstd frame with a checksum.
//!
//! ```text
//! saggar.json   what it is of: first, so that a reader knows before it writes
//! workspace/…   the copy of the folder, or
//! changes/…     the upper layer of the overlay; a device 0:0 says that a name is gone
//! home/.claude, home/.claude.json   the agent's own state
//! ```
//! A snapshot is written beside its place and renamed. A restore is first read whole into a directory of its own, then
//! one rename decides that it counts, and what is left to do is done by whoever opens the session next ([`finish`]).

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

pub mod aside;
mod path;
mod read;
mod restore;
mod write;

pub use read::{Contents, extract, extract_unpacked};
pub use restore::{finish, restore};
pub use write::{Summary, take, write};

use crate::error::{Code, Error, Result};
use crate::session::workspace::Place;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Where the snapshots of a session are.
pub const DIRECTORY: &str = "snapshots";
/// How the name of one ends that is being written.
const PARTIAL: &str = ".partial";
/// How the name of one ends.
pub const SUFFIX: &str = ".tar.zst";

/// Names that a snapshot leaves out, wherever they are: what can be made again (REQUIREMENTS, section 5).
const SKIPPED: [&str; 11] = [
    "node_modules",
    ".git",
    "__pycache__",
    ".cache",
    ".npm",
    ".pnpm-store",
    ".yarn",
    ".venv",
    "venv",
    ".tmp",
    "tmp",
];
/// And how the names of others end.
const SKIPPED_ENDS: [&[u8]; 3] = [b".sock", b".lock", b".pid"];

/// How much one may hold, unpacked.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Members.
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
}

impl Default for Limits {
    /// As much as a folder that is copied.
    fn default() -> Self {
        Limits { entries: 1_000_000, bytes: 4 << 30 }
    }
}

/// What a snapshot is of: its first member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Label {
    /// Of this page.
    pub version: u32,
    /// The session's name.
    pub session: String,
    /// Where its changes are; nothing for a session that works on the folder itself.
    pub place: Option<Place>,
    /// The agent's own name of the conversation.
    pub agent_session: Option<String>,
}

/// The snapshots in the directory of a session, oldest name first.
pub fn list(session: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(session.join(DIRECTORY)).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(SUFFIX)).collect();
    found.sort();
    found
}

/// Removes what writers that were killed have left. The caller has the session's lock: nobody writes one now.
pub fn sweep(session: &Path) {
    for entry in std::fs::read_dir(session.join(DIRECTORY)).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(PARTIAL) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The file that is meant by a name or a path.
///
/// # Errors
/// [`Code::Invalid`] with the names that there are.
pub fn find(session: &Path, named: &Path) -> Result<PathBuf> {
    let name = named.to_string_lossy();
    if !name.contains('/') {
        let known = list(session);
        let is = |path: &&PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file == name || file.strip_suffix(SUFFIX) == Some(&*name)
        };
        if let Some(path) = known.iter().find(is) {
            return Ok(path.clone());
        }
    }
    if named.is_file() {
        return Ok(named.to_owned());
    }
    let message = format!("{}: no such snapshot, and no such file", crate::session::diff::text::path(named));
    Err(Error::new(Code::Invalid, message).hint("saggar session snapshot --list ID says which there are"))
}
