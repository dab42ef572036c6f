//! Sessions in pods at the start of the server. The Kubernetes API, and the relays of nodes, may not answer yet.

use super::{RunningSessions, running_status};
use crate::error::Result;
use crate::session_directory::remove_session_directory;
use crate::store::{Session, Status};
use futures_util::StreamExt;
use futures_util::stream;
use std::time::Duration;
use tokio::time::sleep;
use tracing::{info, warn};

/// Number of sessions whose pods are looked for at the same time.
const CONCURRENCY: usize = 16;
/// The time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

impl RunningSessions {
    /// Attaches to the pods of all sessions, and ends pods without a session. What fails is repeated in the background.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn reattach_pods(&self) -> Result<()> {
        if !self.try_reattach_pods().await? {
            let sessions = self.clone();
            tokio::spawn(async move {
                loop {
                    sleep(RETRY_INTERVAL).await;
                    if sessions.try_reattach_pods().await.unwrap_or(false) {
                        return;
                    }
                }
            });
        }
        Ok(())
    }

    /// Returns false if an attempt is to be repeated.
    async fn try_reattach_pods(&self) -> Result<bool> {
        if let Err(error) = self.end_unknown_pods().await {
            warn!("cannot reattach to the sessions in pods: {error}");
            return Ok(false);
        }
        let sessions = self.store.sessions_to_reattach().await?;
        let attached = stream::iter(sessions).map(async |session| {
            let result = self.reattach_pod(&session).await;
            result.inspect_err(|error| warn!("cannot reattach to session {}: {error}", session.id)).is_ok()
        });
        let attached: Vec<bool> = attached.buffer_unordered(CONCURRENCY).collect().await;
        Ok(attached.into_iter().all(|is_done| is_done))
    }

    /// Ends the pods of sessions that have ended or that nobody knows: their server was killed before it had stored them, or
    /// before they were gone.
    async fn end_unknown_pods(&self) -> Result<()> {
        for id in self.sandboxes.pods_of_server().await? {
            if self.store.has_ended(id).await? || !self.store.has_sandbox(id).await? {
                info!("session {id} has ended or is unknown: its pod is deleted");
                if let Err(error) = self.sandboxes.end(id, "", false).await {
                    warn!("session {id}: {error}");
                }
            }
        }
        Ok(())
    }

    async fn reattach_pod(&self, session: &Session) -> Result<()> {
        let id = session.id;
        let _session_lock = self.lock_session(id).await;
        if self.get(id).is_some() {
            return Ok(());
        }
        if session.status == Status::Starting {
            // Its client has never learned of it.
            self.sandboxes.end(id, &session.sandbox_id, true).await?;
            remove_session_directory(&self.data_dir, id).await;
            return self.store.delete_session(id).await;
        }
        match self.sandboxes.find_session(id, &session.sandbox_id).await? {
            Some(record) if record.is_served() => {
                self.store.set_running(id, &record.sandbox, running_status(record.state)).await?;
                let slot = self.capacity.acquire_for_running(&session.tenant_id);
                self.attach(session, &record, slot);
            }
            record if session.status != Status::Error => {
                if record.is_some() {
                    self.record_stored(session).await;
                }
                info!("pod of session {id} has ended");
                self.store.change_status(id, &[session.status], Status::Error).await?;
            }
            _ => {}
        }
        Ok(())
    }
}
