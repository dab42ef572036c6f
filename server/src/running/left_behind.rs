//! Sandboxes on this machine whose sessions a server on another machine has ended or deleted.

use super::RunningSessions;
use crate::error::Result;
use crate::saggar::{CONTROL_TIMEOUT, SessionRecord, SessionState, call_control};
use crate::session_directory::{remove_session_directory, session_directory};
use serde_json::json;
use tracing::{info, warn};
use uuid::Uuid;

impl RunningSessions {
    /// Ends the sandboxes of sessions that have ended, and stops those of unknown sessions. The files of the latter remain:
    /// the database can be an older one that was restored.
    pub(super) async fn end_left_behind(
        &self,
        records: impl Iterator<Item = SessionRecord> + Send,
    ) -> Result<()> {
        for record in records {
            let Ok(id) = record.id.parse() else { continue };
            let directory = session_directory(&self.data_dir, id);
            let has_files = tokio::fs::try_exists(directory).await.unwrap_or(false);
            if record.state == SessionState::Ended && !has_files {
                continue;
            }
            if self.store.has_ended(id).await? {
                self.end_ended(id, &record).await;
            } else if !self.store.has_sandbox(id).await? {
                stop_unknown(&record).await;
            }
        }
        Ok(())
    }

    async fn end_ended(&self, id: Uuid, record: &SessionRecord) {
        if record.state == SessionState::Ended {
            return remove_session_directory(&self.data_dir, id).await;
        }
        info!("session {id} has ended on another machine: its sandbox here is ended");
        self.end_here(id).await;
    }

    /// Ends the sandbox of a session that has been resumed on another machine, or whose restore was not completed. The
    /// next restore removes its files.
    pub async fn end_obsolete(&self, id: Uuid) {
        warn!(
            "session {id} is that of another machine, or its restore was not completed: its sandbox here is ended"
        );
        self.end_here(id).await;
    }

    async fn end_here(&self, id: Uuid) {
        if let Err(error) = self.sandboxes.end(id, "", false).await {
            return warn!("session {id}: cannot end its sandbox: {error}");
        }
        // The variables can be secrets.
        remove_session_directory(&self.data_dir, id).await;
    }
}

async fn stop_unknown(record: &SessionRecord) {
    let Some(control) = &record.control_socket else { return };
    let id = &record.id;
    warn!("session {id} is not in the database: its sandbox is stopped, and its files remain");
    if let Err(error) = call_control(control, "shutdown", &json!({}), CONTROL_TIMEOUT).await {
        warn!("session {id}: cannot stop its sandbox: {error}");
    }
}
