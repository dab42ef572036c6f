//! The label of a snapshot, from the records of the session.

use super::SnapshotLabel;
use crate::read_agent_session;
use crate::record::SessionRecord;
use crate::workspace_origin::WorkspaceOrigin;
use std::path::Path;

impl SnapshotLabel {
    /// The label of a snapshot of the session in this directory.
    pub fn for_session(session: &Path) -> Self {
        SnapshotLabel {
            version: 1,
            session: session.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            place: WorkspaceOrigin::load(session).ok().map(|origin| origin.storage),
            agent_session: read_agent_session(session),
            workspace: SessionRecord::read(session).and_then(|record| record.workspace),
        }
    }
}
