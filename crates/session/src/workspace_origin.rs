//! The origin of a session's workspace: `<session>/workspace.json`, written when a sandbox starts. Later commands use
//! it to find the folder and the names that are protected in it.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::diff::{ChangeKind, FileChange};
use super::manifest::Manifest;
use saggar_policy::{WorkspacePattern, protect};
use saggar_sandbox::state;
use saggar_sys::beneath::FileKind;
use saggar_sys::clock;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::read;
use saggar_sys::replace_file::SyncPolicy;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the file in the directory of a session.
const FILE_NAME: &str = "workspace.json";
/// Largest file that is read, in bytes.
const MAX_SIZE: u64 = 16 << 20;

/// Where the agent's changes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeStorage {
    /// In the upper layer of an overlay over the folder, on disk.
    Overlay,
    /// In a copy of the folder.
    Copy,
}

/// How a sandbox uses the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WorkspaceMode {
    Overlay,
    Copy,
    /// An overlay whose changes are in memory.
    Memory,
    /// The folder itself.
    Direct,
}

#[derive(Debug, Serialize, Deserialize)]
struct WorkspaceRecord {
    version: u32,
    r#use: WorkspaceMode,
    #[serde(with = "saggar_sys::exact_name")]
    folder: PathBuf,
    /// Nanoseconds since the Unix epoch.
    since: i64,
    protected: Vec<WorkspacePattern>,
}

/// The origin of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceOrigin {
    /// Where the changes are stored.
    pub storage: ChangeStorage,
    /// Path of the folder.
    pub folder: PathBuf,
    /// When the workspace was made, in nanoseconds since the Unix epoch: the agent may not have seen later changes of
    /// the folder.
    pub since: i128,
    /// Paths that the policy protects, in addition to the built-in ones.
    pub protected_by_policy: Vec<WorkspacePattern>,
}

/// The workspace of a start.
#[derive(Debug)]
pub struct WorkspaceSetup<'a> {
    /// Where changes are stored; `None` for the folder itself.
    pub storage: Option<ChangeStorage>,
    /// Whether changes are in memory.
    pub in_memory: bool,
    /// Path of the folder.
    pub folder: &'a Path,
    /// Paths that the policy protects.
    pub protected: Vec<WorkspacePattern>,
}

impl WorkspaceSetup<'_> {
    /// Writes the record. If there are changes already, the time of the earlier record is kept.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn write_record(self, session: &Path) -> Result<()> {
        let mut since = i64::try_from(clock::since_epoch().as_nanos()).unwrap_or(i64::MAX);
        let r#use = match (self.storage, self.in_memory) {
            (Some(_), true) => WorkspaceMode::Memory,
            (Some(ChangeStorage::Overlay), false) => WorkspaceMode::Overlay,
            (Some(ChangeStorage::Copy), false) => WorkspaceMode::Copy,
            (None, _) => WorkspaceMode::Direct,
        };
        let kept = match self.storage {
            Some(ChangeStorage::Overlay) => {
                fs::read_dir(session.join("upper/changes")).is_ok_and(|mut entries| entries.next().is_some())
            }
            Some(ChangeStorage::Copy) => true,
            None => false,
        };
        if kept && let Some(earlier) = load_record(session).filter(|earlier| earlier.folder == self.folder) {
            since = earlier.since;
        } else if self.storage == Some(ChangeStorage::Overlay) {
            // Changes that were applied before are part of the folder as the agent sees it now.
            Manifest::remove(session)?;
        }
        let record = WorkspaceRecord {
            version: 1,
            r#use,
            folder: self.folder.to_owned(),
            since,
            protected: self.protected,
        };
        let text = serde_json::to_vec(&record)
            .map_err(|e| Error::new(Code::Invalid, format!("record {}: {e}", self.folder.display())))?;
        state::replace_record(&session.join(FILE_NAME), &text, 0o666, SyncPolicy::None)
    }
}

fn load_record(session: &Path) -> Option<WorkspaceRecord> {
    let record: WorkspaceRecord =
        serde_json::from_slice(&read::small_file(&session.join(FILE_NAME), MAX_SIZE)?).ok()?;
    (record.version == 1 && record.folder.is_absolute()).then_some(record)
}

impl WorkspaceOrigin {
    /// Reads the record of the session in this directory.
    ///
    /// # Errors
    /// [`Code::Invalid`] with a hint, if the session keeps no changes.
    pub fn load(session: &Path) -> Result<Self> {
        let shown = session.file_name().unwrap_or_default().display();
        let Some(record) = load_record(session) else {
            let message = format!("session {shown} has no record of what its workspace was created from");
            return Err(Error::new(Code::Invalid, message)
                .hint("only a session that was started with a workspace of its own has changes to show"));
        };
        let folder = record.folder.display();
        let place = match record.r#use {
            WorkspaceMode::Overlay => ChangeStorage::Overlay,
            WorkspaceMode::Copy => ChangeStorage::Copy,
            WorkspaceMode::Memory => {
                let message = format!("the changes of session {shown} to {folder} are in memory alone");
                return Err(Error::new(Code::Invalid, message).hint(
                    "a limit that was named (--disk, --inodes) keeps them there where there is no project quota: leave it \
                     out, and they are kept on disk",
                ));
            }
            WorkspaceMode::Direct => {
                let message = format!("session {shown} works on {folder} itself");
                return Err(Error::new(Code::Invalid, message)
                    .hint("of it with --workspace-overlay, and its changes wait for you"));
            }
        };
        Ok(WorkspaceOrigin {
            storage: place,
            folder: record.folder,
            since: record.since.into(),
            protected_by_policy: record.protected,
        })
    }

    /// Whether the session is known to keep no changes: its agent worked on the folder itself, or in memory.
    pub fn keeps_no_changes(session: &Path) -> bool {
        let uses = load_record(session).map(|record| record.r#use);
        matches!(uses, Some(WorkspaceMode::Direct | WorkspaceMode::Memory))
    }

    /// The tree of a session whose files are there without its sandbox, and the paths that its policy protects: the copy,
    /// or the folder itself. `None` for an overlay.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a session that has never started.
    pub fn find_plain_tree(session: &Path) -> Result<Option<(PathBuf, Vec<WorkspacePattern>)>> {
        let Some(record) = load_record(session) else {
            let shown = session.file_name().unwrap_or_default().display();
            return Err(Error::new(Code::Invalid, format!("session {shown} has no workspace yet"))
                .hint(format!("saggar session resume {shown}")));
        };
        Ok(match record.r#use {
            WorkspaceMode::Copy => Some((session.join("workspace"), record.protected)),
            WorkspaceMode::Direct => Some((record.folder, record.protected)),
            WorkspaceMode::Overlay | WorkspaceMode::Memory => None,
        })
    }

    /// Whether this is an overlay without a directory for changes: there were none.
    pub fn has_no_changes(&self, session: &Path) -> bool {
        let changes = session.join("upper/changes");
        let gone = |e: std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
        self.storage == ChangeStorage::Overlay && changes.symlink_metadata().is_err_and(gone)
    }

    /// Why this change is not applied without permission.
    pub fn protection_reason(&self, change: &FileChange) -> Option<String> {
        if let Some(why) = protect::protection_reason(&change.path) {
            return Some(why.to_owned());
        }
        // A new repository has a configuration that git obeys; a link or a file in its place refers to another one.
        let is_git = change.path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        let after = change.after.as_ref().map(|side| side.meta.kind);
        if is_git && (change.kind != ChangeKind::Modified || after != Some(FileKind::Directory)) {
            return Some("it decides where git's directory is".to_owned());
        }
        if after == Some(FileKind::Symlink) && protect::is_above_protected(&change.path) {
            return Some("a link here leads to a protected path".to_owned());
        }
        let can_lead = |entry: &WorkspacePattern| entry.can_be_below(&change.path);
        if after == Some(FileKind::Symlink) && self.protected_by_policy.iter().any(can_lead) {
            return Some("a link here leads to a path that the policy of the session names".to_owned());
        }
        let more = self.protected_by_policy.iter().find(|entry| entry.covers(&change.path));
        more.map(|_| "the policy of the session names it".to_owned())
    }
}
