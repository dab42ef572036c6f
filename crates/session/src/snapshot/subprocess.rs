//! A snapshot while the session is served, in a separate process: the time it takes grows with the session, and the
//! supervisor has one thread.
//!
//! The supervisor executes this program with [`SNAPSHOT_SUBCOMMAND`] and three arguments, and reads one JSON object,
//! the result or the error, from its standard output. The supervisor holds the session's lock meanwhile; if it exits,
//! the kernel kills this process too.

use super::{SnapshotLabel, SnapshotLimits, take_snapshot};
use crate::image::DiskImage;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::process;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

/// The first argument of the command line.
pub const SNAPSHOT_SUBCOMMAND: &str = "__snapshot";
/// Most notes in a result; the last one has the number of omitted notes.
const MAX_REPORTED_NOTES: usize = 100;

/// The result.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SnapshotReport {
    /// The snapshot is on disk.
    Taken {
        /// Its path.
        file: String,
        /// Number of its members.
        entries: u64,
        /// Bytes of its files.
        bytes: u64,
        /// Files that are not in it, and why.
        notes: Vec<String>,
    },
    /// The snapshot failed.
    Failed(Error),
}

/// The arguments after [`SNAPSHOT_SUBCOMMAND`]: the session's directory, the supervisor, and whether no name is
/// skipped.
pub fn snapshot_arguments(session: &Path, all: bool) -> [OsString; 3] {
    [session.into(), std::process::id().to_string().into(), all.to_string().into()]
}

/// Takes the snapshot that the arguments request, and writes the result to `output`; returns the exit status.
pub fn run_snapshot(arguments: &[OsString], mut output: impl Write) -> u8 {
    let answer = take_requested(arguments).unwrap_or_else(SnapshotReport::Failed);
    let said = serde_json::to_vec(&answer).unwrap_or_default();
    if output.write_all(&said).and_then(|()| output.flush()).is_ok() { 0 } else { 1 }
}

fn take_requested(words: &[OsString]) -> Result<SnapshotReport> {
    let [session, supervisor, all] = words else {
        return Err(Error::new(Code::Usage, "a snapshot beside its supervisor is asked for by that alone"));
    };
    // The launcher ignores SIGCHLD, which would discard the exit status of a file worker.
    process::reset_signal_actions();
    set_pdeathsig(Signal::SIGKILL).map_err(|e| Error::system("follow the supervisor", e))?;
    if supervisor.to_str() != Some(&getppid().to_string()) {
        return Err(Error::new(Code::State, "the supervisor is gone"));
    }
    let session = Path::new(session);
    DiskImage::for_session(session).reject_if_present()?;
    let label = SnapshotLabel::for_session(session);
    let (file, summary) = take_snapshot(session, &label, None, all == "true", SnapshotLimits::default())?;
    let mut notes = summary.notes;
    if notes.len() > MAX_REPORTED_NOTES {
        let more = notes.len() - MAX_REPORTED_NOTES;
        notes.truncate(MAX_REPORTED_NOTES);
        notes.push(format!("and {more} more"));
    }
    let file = file.to_string_lossy().into_owned();
    Ok(SnapshotReport::Taken { file, entries: summary.entries, bytes: summary.bytes, notes })
}
