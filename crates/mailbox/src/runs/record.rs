//! run.json: what a run is about, its members and its outcome.

use super::byte_path;
use crate::error::{Error, ErrorKind, Result};
use crate::member::Member;
use crate::message::format_time;
use crate::pair::{Answered, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Version of the file format.
const VERSION: u32 = 1;
/// Name of the file.
pub(super) const FILE_NAME: &str = "run.json";
/// Largest file that is read, in bytes: a task of 16 MiB with every byte escaped, and the rest.
pub(super) const MAX_SIZE: u64 = 100 << 20;

/// What the caller decides about a new run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRun {
    /// The task.
    pub task: String,
    /// The members.
    pub members: Vec<Member>,
    /// Most iterations of a pair run.
    pub max_iterations: u32,
    /// Whether each agent reviews the other.
    pub both_review: bool,
    /// What the runner needs to start the agents again; the mailbox does not read it.
    pub launch: Option<Value>,
}

/// The content of run.json.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of the format, 1.
    pub version: u32,
    /// Number of the run.
    pub run_id: u64,
    /// Path of the repository; in JSON a string, or `{"bytes": HEX}` if it is not UTF-8.
    #[serde(with = "byte_path")]
    pub repo: PathBuf,
    /// Time of creation, RFC 3339, in UTC.
    pub created: String,
    /// The task.
    pub task: String,
    /// The members.
    pub members: Vec<Member>,
    /// Most iterations of a pair run.
    pub max_iterations: u32,
    /// Whether each agent reviews the other.
    pub both_review: bool,
    /// What the runner needs to start the agents again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Value>,
    /// How the run ended; `None` while it runs, and after a crash.
    pub outcome: Option<Outcome>,
    /// Name of the agent whose turn has not ended; a run that continues begins with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// What the agents were prompted with in turns that have ended.
    #[serde(default)]
    pub answered: Answered,
}

impl RunRecord {
    pub(super) fn new(run_id: u64, repo: &Path, new: NewRun, created: jiff::Timestamp) -> Self {
        let NewRun { task, members, max_iterations, both_review, launch } = new;
        RunRecord {
            version: VERSION,
            run_id,
            repo: repo.to_owned(),
            created: format_time(created),
            task,
            members,
            max_iterations,
            both_review,
            launch,
            outcome: None,
            active: None,
            answered: Answered::default(),
        }
    }

    pub(super) fn to_json(&self) -> Result<Vec<u8>> {
        let mut json = serde_json::to_vec_pretty(self).map_err(|cause| {
            Error::new(ErrorKind::Invalid, format!("cannot write the record of run {}: {cause}", self.run_id))
        })?;
        json.push(b'\n');
        Ok(json)
    }

    pub(super) fn parse(json: &[u8], path: &Path) -> Result<Self> {
        let invalid = |cause: String| {
            Error::new(ErrorKind::Unsafe, format!("read {}: {cause}", path.display())).with_hint(
                "restore the file, or begin a new run; the messages in bridge.jsonl are not affected",
            )
        };
        let record: RunRecord = serde_json::from_slice(json).map_err(|cause| invalid(cause.to_string()))?;
        if record.version != VERSION {
            return Err(invalid(format!("version {} is not supported, only {VERSION}", record.version)));
        }
        Ok(record)
    }
}
