//! Snapshots of a session.

use super::connect_control;
use super::files::{directory, lock_session};
use crate::error::{Code, Error, Result};
use crate::session::record::SessionRecord;
use crate::session::snapshot::{
    self, SnapshotContents, SnapshotLabel, SnapshotLimits, SnapshotSummary, find_snapshot, restore_snapshot,
};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// What a snapshot of a session is to hold, and where it is written.
#[derive(Debug, Default)]
pub struct SnapshotRequest<'a> {
    /// Where it is written, instead of beside the session's others.
    pub output: Option<&'a Path>,
    /// Whether it holds what a session can make again, too.
    pub all: bool,
    /// Its limits, instead of the default ones.
    pub limits: Option<SnapshotLimits>,
}

/// What the supervisor of a session answers to the method `snapshot` (saggar-control(7)).
#[derive(Debug, Deserialize)]
struct ServedSnapshot {
    file: PathBuf,
    entries: u64,
    bytes: u64,
    notes: Vec<String>,
}

/// Writes the trees of a session into an archive. If a supervisor serves the session, the supervisor writes it.
///
/// # Errors
/// [`Code::State`] for a session that starts or ends, [`Code::Usage`] for an option that a supervisor does not take,
/// [`Code::Invalid`] for a session that exceeds a limit, [`Code::System`].
pub fn take(id: &str, request: &SnapshotRequest<'_>) -> Result<(PathBuf, SnapshotSummary)> {
    if let Ok((_, _, record)) = SessionRecord::find(id)
        && record.is_served()
    {
        return take_served(&record, request);
    }
    let (session, _held) = lock_session(id)?;
    let label = SnapshotLabel::for_session(&session);
    let limits = request.limits.unwrap_or_default();
    snapshot::take_snapshot(&session, &label, request.output, request.all, limits)
}

fn take_served(record: &SessionRecord, request: &SnapshotRequest<'_>) -> Result<(PathBuf, SnapshotSummary)> {
    let option = match request {
        SnapshotRequest { output: Some(_), .. } => Some("--output"),
        SnapshotRequest { limits: Some(_), .. } => Some("--disk"),
        _ => None,
    };
    if let Some(option) = option {
        let message =
            format!("{option}: session {} is served, and its supervisor takes the snapshot", record.id);
        return Err(
            Error::new(Code::Usage, message).hint("leave the option out, or pause or stop the session")
        );
    }
    let result = connect_control(record)?.call("snapshot", &json!({ "all": request.all }))?;
    let ServedSnapshot { file, entries, bytes, notes } = serde_json::from_value(result)
        .map_err(|e| Error::new(Code::System, format!("the answer of session {}: {e}", record.id)))?;
    Ok((file, SnapshotSummary { entries, bytes, notes }))
}

/// The snapshots of a session, sorted by name.
///
/// # Errors
/// [`Code::Invalid`] for an id that no session can have.
pub fn list(id: &str) -> Result<Vec<PathBuf>> {
    Ok(snapshot::list_snapshots(&directory(id)?))
}

/// Removes a snapshot of a session.
///
/// # Errors
/// [`Code::Invalid`] if the session has none of this name, [`Code::System`].
pub fn remove(id: &str, name: &Path) -> Result<()> {
    snapshot::remove_snapshot(&directory(id)?, name)
}

/// Puts the trees of a session back to what a snapshot has: its name, or the path of a file.
///
/// # Errors
/// [`Code::State`] for a session that is served, [`Code::Invalid`] for an archive that is none or too large.
pub fn restore(id: &str, name: &Path, limits: SnapshotLimits) -> Result<SnapshotContents> {
    let (session, _held) = lock_session(id)?;
    let workspace = SessionRecord::read(&session).and_then(|record| record.workspace);
    restore_snapshot(&session, workspace.as_deref(), &find_snapshot(&session, name)?, limits)
}
