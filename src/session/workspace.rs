//! What the workspace of a session was made of: `<session>/workspace.json`, written when a sandbox starts. With it a
//! later command finds the folder, and knows what is protected there.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::beneath::Kind;
use super::diff::{Act, Change};
use super::manifest::Manifest;
use crate::error::{Code, Error, Result};
use crate::spec::protect;
use crate::sys::read;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Its name in the directory of a session.
const NAME: &str = "workspace.json";
/// The largest one that is read.
const LIMIT: u64 = 1 << 20;

/// Where what the agent changes is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// In the upper layer of an overlay over the folder, kept on disk.
    Overlay,
    /// In a copy of the folder.
    Copy,
}

/// How a sandbox uses the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Use {
    Overlay,
    Copy,
    /// An overlay whose changes are in memory.
    Memory,
    /// The folder itself.
    Direct,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    r#use: Use,
    folder: PathBuf,
    /// Nanoseconds of the clock.
    since: i64,
    protected: Vec<PathBuf>,
}

/// What a workspace was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Where the changes are.
    pub place: Place,
    /// The folder.
    pub folder: PathBuf,
    /// When it was made, in nanoseconds of the clock: what is changed in the folder later the agent may not have
    /// seen.
    pub since: i128,
    /// What the policy protects beside what is built in.
    pub more: Vec<PathBuf>,
}

/// What a start says of the workspace.
#[derive(Debug)]
pub struct Made<'a> {
    /// Where changes are; `None` for the folder itself.
    pub place: Option<Place>,
    /// Whether they are in memory.
    pub in_memory: bool,
    /// The folder.
    pub folder: &'a Path,
    /// What the policy protects.
    pub protected: Vec<PathBuf>,
}

impl Made<'_> {
    /// Writes it down. Changes that are there already keep the time since when the folder counts as seen.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn record(self, session: &Path) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut since = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        let r#use = match (self.place, self.in_memory) {
            (Some(_), true) => Use::Memory,
            (Some(Place::Overlay), false) => Use::Overlay,
            (Some(Place::Copy), false) => Use::Copy,
            (None, _) => Use::Direct,
        };
        let kept = match self.place {
            Some(Place::Overlay) => {
                fs::read_dir(session.join("upper/changes")).is_ok_and(|mut entries| entries.next().is_some())
            }
            Some(Place::Copy) => true,
            None => false,
        };
        if kept && let Some(earlier) = load(session).filter(|earlier| earlier.folder == self.folder) {
            since = earlier.since;
        } else if self.place == Some(Place::Overlay) {
            // What was applied before is seen as it is now.
            Manifest::remove(session)?;
        }
        let record =
            Record { version: 1, r#use, folder: self.folder.to_owned(), since, protected: self.protected };
        let text = serde_json::to_vec(&record)
            .map_err(|e| Error::new(Code::Invalid, format!("record {}: {e}", self.folder.display())))?;
        let (new, path) = (session.join("workspace.json.new"), session.join(NAME));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            fs::rename(&new, &path)
        };
        write().map_err(|e| Error::system(format_args!("write {}", path.display()), e))
    }
}

fn load(session: &Path) -> Option<Record> {
    let record: Record = serde_json::from_slice(&read::small_file(&session.join(NAME), LIMIT)?).ok()?;
    (record.version == 1 && record.folder.is_absolute()).then_some(record)
}

impl Origin {
    /// Of the workspace of the session in this directory.
    ///
    /// # Errors
    /// [`Code::Invalid`] with the cure, when nothing of it is kept.
    pub fn load(session: &Path) -> Result<Self> {
        let shown = session.file_name().unwrap_or_default().display();
        let Some(record) = load(session) else {
            let message = format!("session {shown} does not say what its workspace was made of");
            return Err(Error::new(Code::Invalid, message)
                .hint("only a session that was started with a workspace of its own has changes to show"));
        };
        let folder = record.folder.display();
        let place = match record.r#use {
            Use::Overlay => Place::Overlay,
            Use::Copy => Place::Copy,
            Use::Memory => {
                let message = format!("the changes of session {shown} to {folder} are in memory alone");
                return Err(Error::new(Code::Invalid, message).hint(
                    "a limit that was named (--disk, --inodes) keeps them there where there is no project quota: leave it \
                     out, and they are kept on disk",
                ));
            }
            Use::Direct => {
                let message = format!("session {shown} works on {folder} itself");
                return Err(Error::new(Code::Invalid, message)
                    .hint("start it with --workspace-overlay, and its changes wait for you"));
            }
        };
        Ok(Origin { place, folder: record.folder, since: record.since.into(), more: record.protected })
    }

    /// Whether this is an overlay for whose changes there is not even a place: none were left.
    pub fn has_no_changes(&self, session: &Path) -> bool {
        let changes = session.join("upper/changes");
        let gone = |e: std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
        self.place == Place::Overlay && changes.symlink_metadata().is_err_and(gone)
    }

    /// Why nobody takes this change over unasked.
    pub fn protects(&self, change: &Change) -> Option<String> {
        if let Some(why) = protect::why(&change.path) {
            return Some(why.to_owned());
        }
        // A repository that was not there comes with a configuration that git obeys; a link or a file in its place
        // says where that is.
        let is_git = change.path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        let after = change.after.as_ref().map(|side| side.meta.kind);
        if is_git && (change.act != Act::Modified || after != Some(Kind::Directory)) {
            return Some("it says where git's directory is".to_owned());
        }
        if after == Some(Kind::Link) && protect::is_on_the_way(&change.path) {
            return Some("a link here leads to what is protected".to_owned());
        }
        let more = self.more.iter().find(|more| change.path.starts_with(more));
        more.map(|_| "the policy of the session names it".to_owned())
    }
}
