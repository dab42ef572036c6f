//! The index of a quarantine: `index.jsonl`, with a line for each item that was moved in, and one for each that was
//! removed.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::QUARANTINE_DIRECTORY;
use crate::workspace_scan::baseline::FileIdentity;
use saggar_sandbox::state;
use saggar_sandbox::state::base64_bytes::Base64Bytes;
use saggar_sys::error::{Error, Result};
use saggar_sys::id::SandboxId;
use saggar_sys::read;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "index.jsonl";
/// Most bytes of an index that are read.
const MAX_SIZE: u64 = 256 << 20;

/// An item in quarantine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuarantinedItem {
    /// Its number, with which its name begins.
    pub number: u32,
    /// Its name in the quarantine.
    pub name: String,
    /// Its name in the workspace, if it could not be moved out.
    pub workspace_name: Option<Base64Bytes>,
    /// Path of the workspace.
    pub workspace: Base64Bytes,
    /// Its original path, relative to the workspace.
    pub path: Base64Bytes,
    /// The kind of finding, as text for people.
    pub why: String,
    /// Bytes that were copied.
    pub copied: u64,
    /// The placeholder at its original path.
    pub placeholder: Option<Placeholder>,
}

impl QuarantinedItem {
    /// The absolute original path.
    pub fn original_path(&self) -> PathBuf {
        self.workspace.as_path().join(self.path.as_path())
    }
}

/// The placeholder of an item: while it is unchanged it may be overwritten by a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placeholder {
    /// Identity of its file.
    pub file: FileIdentity,
    /// Its ctime: seconds and nanoseconds.
    pub changed: (i64, i64),
    /// Whether it is an empty directory.
    pub directory: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum IndexLine {
    Item(Box<QuarantinedItem>),
    Gone { gone: u32 },
}

/// The index, opened for writing.
#[derive(Debug)]
pub(crate) struct QuarantineIndex {
    file: File,
}

impl AsFd for QuarantineIndex {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl QuarantineIndex {
    /// Opens the index of `quarantine`; returns it with its items.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`].
    pub(crate) fn open(quarantine: &Path) -> Result<(Vec<QuarantinedItem>, Self)> {
        let path = quarantine.join(FILE_NAME);
        let items = read_items(quarantine);
        let mut options = fs::OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file =
            options.open(&path).map_err(|e| Error::system(format_args!("open {}", path.display()), e))?;
        Ok((items, QuarantineIndex { file }))
    }

    /// Adds an item. If that fails the item is in the quarantine all the same.
    pub(crate) fn record_item(&mut self, item: &QuarantinedItem) {
        self.append_line(&IndexLine::Item(Box::new(item.clone())));
    }

    /// Records that an item was removed.
    pub(crate) fn record_removal(&mut self, number: u32) {
        self.append_line(&IndexLine::Gone { gone: number });
    }

    fn append_line(&mut self, line: &IndexLine) {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        if let Err(e) = self.file.write_all(&text) {
            log::warn!("write down what is in quarantine: {e}");
        }
    }
}

/// The items in the quarantine `directory`, sorted by number.
pub fn read_items(directory: &Path) -> Vec<QuarantinedItem> {
    let text = read::small_file(&directory.join(FILE_NAME), MAX_SIZE).unwrap_or_default();
    let mut items = std::collections::BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(IndexLine::Item(item)) => _ = items.insert(item.number, *item),
            Ok(IndexLine::Gone { gone }) => _ = items.remove(&gone),
            // A partial last line of a process that was killed.
            Err(_) => {}
        }
    }
    items.into_values().collect()
}

/// The directories that can contain quarantines: that of sessions, and the runtime directory.
pub(crate) fn quarantine_roots() -> Vec<PathBuf> {
    state::sessions_path()
        .ok()
        .into_iter()
        .chain([state::runtime_path().join(QUARANTINE_DIRECTORY)])
        .collect()
}

/// All quarantines: the id of the sandbox or session, and the directory.
pub fn list_quarantines() -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for place in quarantine_roots() {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let directory = entry.path().join(QUARANTINE_DIRECTORY);
            if directory.join(FILE_NAME).symlink_metadata().is_ok() {
                all.push((entry.file_name().to_string_lossy().into_owned(), directory));
            }
        }
    }
    all.sort();
    all
}

/// Finds the quarantine of the sandbox or session `id`.
///
/// # Errors
/// [`saggar_sys::error::Code::Invalid`] when it does not exist.
pub fn find_quarantine(id: &SandboxId) -> Result<PathBuf> {
    let found =
        quarantine_roots().into_iter().map(|place| place.join(id.as_str()).join(QUARANTINE_DIRECTORY));
    found.into_iter().find(|directory| directory.join(FILE_NAME).symlink_metadata().is_ok()).ok_or_else(
        || {
            Error::new(
                saggar_sys::error::Code::Invalid,
                format!("find the quarantine of {id}: it does not exist"),
            )
            .hint("saggar quarantine list shows all of them")
        },
    )
}
