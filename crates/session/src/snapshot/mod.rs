//! Snapshots: the data of a session in one file, a tar archive in a zstd frame with a checksum.
//!
//! ```text
//! saggar.json   the label: first, so that a reader has it before it writes
//! workspace/…   the copy of the folder, or
//! changes/…     the upper layer of the overlay; a device 0:0 marks a deleted name
//! home/NAME     the agent's own state ([`home`])
//! ```
//! A file worker ([`saggar_sys::file_worker`]) reads data of a session's programs and of authors of archives. The
//! command itself accesses the session's own records, and makes the renames.
//!
//! A snapshot is written under a temporary name and renamed. A restore first extracts the whole archive into a
//! directory of its own; then one rename makes it effective, and the next process that opens the session completes it
//! ([`finish_restore`]).

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

mod conversation;
mod home;
mod label;
mod member_path;
mod read;
mod restore;
mod sources;
pub mod subprocess;
mod write;

pub use read::{SnapshotContents, SnapshotPart, extract, extract_part, extract_unpacked};
pub use restore::{finish_restore, restore_snapshot};
pub use write::{SnapshotSummary, take_snapshot, write_snapshot};

use crate::workspace_origin::ChangeStorage;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file_worker;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directory of the snapshots of a session.
pub(crate) const SNAPSHOTS_DIRECTORY: &str = "snapshots";
/// Suffix of the name of an unfinished snapshot.
const PARTIAL_SUFFIX: &str = ".partial";
/// Suffix of the name of a snapshot.
pub(crate) const SUFFIX: &str = ".tar.zst";

/// Names that a snapshot skips in every directory: files that can be generated again.
const SKIPPED_NAMES: [&str; 11] = [
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
/// Suffixes of other skipped names.
const SKIPPED_SUFFIXES: [&[u8]; 3] = [b".sock", b".lock", b".pid"];

/// Limits of a snapshot's content, uncompressed.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotLimits {
    /// Most members.
    pub entries: u64,
    /// Most bytes in all files.
    pub bytes: u64,
}

impl Default for SnapshotLimits {
    /// The same limits as for a folder that is copied.
    fn default() -> Self {
        SnapshotLimits { entries: 1_000_000, bytes: USUAL_BYTES }
    }
}

/// Bytes of files in the default [`SnapshotLimits`].
const USUAL_BYTES: u64 = 4 << 30;

impl SnapshotLimits {
    /// The limits of the worker: one second is added for each 4 MiB above the default.
    fn for_worker(self) -> file_worker::WorkerLimits {
        let usual = file_worker::WorkerLimits::default();
        let more = self.bytes.saturating_sub(USUAL_BYTES) >> 22;
        file_worker::WorkerLimits {
            time: usual.time + Duration::from_secs(more),
            cpu_seconds: usual.cpu_seconds + more,
            ..usual
        }
    }
}

/// The label of a snapshot, its first member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotLabel {
    /// Version of the format.
    pub version: u32,
    /// Name of the session.
    pub session: String,
    /// Where its changes are stored; `None` for a session that works on the folder itself.
    pub place: Option<ChangeStorage>,
    /// The agent's own id of the conversation.
    pub agent_session: Option<String>,
    /// Path of the workspace inside the sandbox, if the session had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// The snapshots in the directory of a session, sorted by name.
pub fn list_snapshots(session: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(session.join(SNAPSHOTS_DIRECTORY)).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(SUFFIX)).collect();
    found.sort();
    found
}

/// Removes unfinished snapshots of killed writers. The caller holds the session's lock, so no other process is writing
/// one.
pub fn remove_partial(session: &Path) {
    for entry in std::fs::read_dir(session.join(SNAPSHOTS_DIRECTORY)).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(PARTIAL_SUFFIX) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Finds a snapshot by name or path.
///
/// # Errors
/// [`Code::Invalid`] if there is none.
pub fn find_snapshot(session: &Path, named: &Path) -> Result<PathBuf> {
    match find_own_snapshot(session, named) {
        Some(path) => Ok(path),
        None if named.is_file() => Ok(named.to_owned()),
        None => Err(no_snapshot(named, "no such snapshot, and no such file")),
    }
}

/// Removes a snapshot of the session, found by name.
///
/// # Errors
/// [`Code::Invalid`] if the session has none of this name, [`Code::System`].
pub fn remove_snapshot(session: &Path, named: &Path) -> Result<()> {
    let path = find_own_snapshot(session, named)
        .ok_or_else(|| no_snapshot(named, "the session has no such snapshot"))?;
    std::fs::remove_file(&path)
        .map_err(|error| Error::system(format_args!("remove {}", crate::diff::text::show_path(&path)), error))
}

/// The snapshot of the session with this name, with or without the suffix.
fn find_own_snapshot(session: &Path, named: &Path) -> Option<PathBuf> {
    let is_named = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default();
        file == named || file.to_str().and_then(|file| file.strip_suffix(SUFFIX)) == named.to_str()
    };
    list_snapshots(session).into_iter().find(is_named)
}

fn no_snapshot(named: &Path, reason: &str) -> Error {
    let message = format!("{}: {reason}", crate::diff::text::show_path(named));
    Error::new(Code::Invalid, message).hint("saggar session snapshot --list ID lists the snapshots")
}
