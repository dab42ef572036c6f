//! Snapshots of a session.

use super::files::lock_session;
use crate::error::Result;
use crate::session;
use crate::session::snapshot::{
    self, SnapshotContents, SnapshotLabel, SnapshotLimits, SnapshotSummary, find_snapshot, restore_snapshot,
};
use crate::session::workspace_origin::WorkspaceOrigin;
use std::path::{Path, PathBuf};

/// Writes the trees of a session that is not served into an archive: to `output`, or beside the session's others.
/// `all` takes what a session can make again, too.
///
/// # Errors
/// [`crate::error::Code::State`] for a session that is served, [`crate::error::Code::System`].
pub fn take(
    id: &str,
    output: Option<&Path>,
    all: bool,
    limits: SnapshotLimits,
) -> Result<(PathBuf, SnapshotSummary)> {
    let (session, _held) = lock_session(id)?;
    let label = SnapshotLabel {
        version: 1,
        session: id.to_owned(),
        place: WorkspaceOrigin::load(&session).ok().map(|origin| origin.storage),
        agent_session: session::read_agent_session(&session),
    };
    snapshot::take_snapshot(&session, &label, output, all, limits)
}

/// Puts the trees of a session back to what a snapshot has: its name, or the path of a file.
///
/// # Errors
/// [`crate::error::Code::State`] for a session that is served, [`crate::error::Code::Invalid`] for an archive that is
/// none or too large.
pub fn restore(id: &str, name: &Path, limits: SnapshotLimits) -> Result<SnapshotContents> {
    let (session, _held) = lock_session(id)?;
    restore_snapshot(&session, &find_snapshot(&session, name)?, limits)
}
