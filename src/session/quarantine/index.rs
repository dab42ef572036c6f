//! What is in a quarantine: `index.jsonl`, a line for each thing that was moved there, and one for each that has left.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::NAME;
use crate::error::{Error, Result};
use crate::host::appeared::recorded::{Bytes, Identity};
use crate::id::SandboxId;
use crate::state;
use crate::sys::read;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "index.jsonl";
/// How much of an index is read.
const LIMIT: u64 = 256 << 20;

/// Something in quarantine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Item {
    /// Its number, which begins its name.
    pub number: u32,
    /// Its name in the quarantine.
    pub name: String,
    /// Where it is in the workspace, when it could not leave that.
    pub aside: Option<Bytes>,
    /// The workspace that it was in.
    pub workspace: Bytes,
    /// Where it was there.
    pub path: Bytes,
    /// What it is, for people.
    pub why: String,
    /// How many bytes were copied.
    pub copied: u64,
    /// What took its place.
    pub placed: Option<Placed>,
}

impl Item {
    /// Where it was.
    pub fn origin(&self) -> PathBuf {
        self.workspace.as_path().join(self.path.as_path())
    }
}

/// What took the place of something: as long as it is this, unchanged, it may be overwritten again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Its file.
    pub is: Identity,
    /// When it was made: seconds and nanoseconds.
    pub changed: (i64, i64),
    /// Whether it is an empty directory.
    pub directory: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Item(Box<Item>),
    Gone { gone: u32 },
}

/// The index, to be written.
#[derive(Debug)]
pub struct Index {
    file: File,
}

impl Index {
    /// Opens that of `quarantine`, with what is in it.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn open(quarantine: &Path) -> Result<(Vec<Item>, Self)> {
        let path = quarantine.join(FILE);
        let items = items(quarantine);
        let mut options = fs::OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file =
            options.open(&path).map_err(|e| Error::system(format_args!("open {}", path.display()), e))?;
        Ok((items, Index { file }))
    }

    /// Adds something. What cannot be written down is in the quarantine all the same.
    pub fn add(&mut self, item: &Item) {
        self.line(&Line::Item(Box::new(item.clone())));
    }

    /// Something has left.
    pub fn gone(&mut self, number: u32) {
        self.line(&Line::Gone { gone: number });
    }

    fn line(&mut self, line: &Line) {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        if let Err(e) = self.file.write_all(&text) {
            log::warn!("write down what is in quarantine: {e}");
        }
    }
}

/// What is in the quarantine `directory`, in the order of numbers.
pub fn items(directory: &Path) -> Vec<Item> {
    let text = read::small_file(&directory.join(FILE), LIMIT).unwrap_or_default();
    let mut items = std::collections::BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Line::Item(item)) => _ = items.insert(item.number, *item),
            Ok(Line::Gone { gone }) => _ = items.remove(&gone),
            // The last line of a process that was killed.
            Err(_) => {}
        }
    }
    items.into_values().collect()
}

/// The directories that quarantines can be in: those of sessions, and of the runtime where there is no place for sessions.
pub fn places() -> Vec<PathBuf> {
    state::sessions_path().ok().into_iter().chain([state::runtime_path().join(NAME)]).collect()
}

/// All quarantines: the name of the sandbox or session, and the directory.
pub fn all() -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    for place in places() {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let directory = entry.path().join(NAME);
            if directory.join(FILE).symlink_metadata().is_ok() {
                all.push((entry.file_name().to_string_lossy().into_owned(), directory));
            }
        }
    }
    all.sort();
    all
}

/// The quarantine of the sandbox or session `id`.
///
/// # Errors
/// [`crate::error::Code::Invalid`] when there is none.
pub fn of(id: &SandboxId) -> Result<PathBuf> {
    let found = places().into_iter().map(|place| place.join(id.as_str()).join(NAME));
    found.into_iter().find(|directory| directory.join(FILE).symlink_metadata().is_ok()).ok_or_else(|| {
        Error::new(crate::error::Code::Invalid, format!("find the quarantine of {id}: there is none"))
            .hint("saggar quarantine list shows all of them")
    })
}
