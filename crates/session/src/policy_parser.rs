//! Parses the policy of a folder in a worker: its text is untrusted, and the process that starts a sandbox may be root.

use saggar_policy::{FolderParser, FolderText};
use saggar_sys::error::Result;
use saggar_sys::file_worker::{self, Confinement, WorkerLimits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Many times what one policy of a megabyte needs. The result is JSON of at most twice its length, as a string in JSON.
const POLICY_PARSER_LIMITS: WorkerLimits = WorkerLimits {
    time: Duration::from_secs(60),
    cpu_seconds: 30,
    memory: 1 << 30,
    file_size: 0,
    output_size: 8 << 20,
};

/// Parses policies in file workers that can access no directory.
#[derive(Debug)]
pub struct WorkerPolicyParser;

impl FolderParser for WorkerPolicyParser {
    fn to_json(&self, text: &FolderText<'_>) -> Result<String> {
        run_in_worker(text, || text.to_json())
    }

    fn line_of(&self, text: &FolderText<'_>, key: &str) -> Result<Option<usize>> {
        run_in_worker(text, || Ok(text.line_of(key)))
    }
}

fn run_in_worker<T: Serialize + DeserializeOwned>(
    text: &FolderText<'_>,
    job: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let confinement = Confinement {
        task: &format!("read policy {}", text.path.display()),
        owner: nix::unistd::geteuid().is_root().then_some(text.owner),
        capabilities: 0,
        directories: &[],
        files: &[],
        limits: POLICY_PARSER_LIMITS,
    };
    file_worker::run_worker(&confinement, job)
}
