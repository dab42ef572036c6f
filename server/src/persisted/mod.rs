//! Copies of sessions in a snapshot store, a directory or a bucket of an S3 API, so that a server on another machine
//! resumes them with their files and their conversation.
//!
//! ```text
//! url             the URL of the store
//! objects         objects of the store as files, with their hashes
//! copy            what the database has of a copy
//! change_queue    the sessions and agents to copy
//! upload          copies of sessions
//! restore         sessions from copies
//! restore_error   why a session or an agent was not restored
//! agents          copies of agent folders
//! removals        uploads, and the deletion of objects that no copy has
//! staging         temporary files
//! ```
//!
//! Both servers use the same database, one after the other. The row of a session has its copy, with the hash of each
//! object, and its generation, which each restore replaces. The files of a session on a machine have a generation too: if
//! it is not that of the row, the session has been resumed elsewhere since, or the restore was not completed, and the
//! files are not used.

mod agents;
mod change_queue;
mod copy;
mod objects;
mod removals;
mod restore;
mod restore_error;
mod staging;
mod upload;
mod url;

pub use change_queue::{ChangeQueue, CopyTarget};
pub use copy::{Sealed, SessionCopy, StoredObject};
pub use restore_error::RestoreError;
pub use url::SnapshotUrl;

use crate::cipher::CredentialCipher;
use crate::error::{Error, Result};
use crate::keyed_locks::KeyedLocks;
use crate::running::RunningSessions;
use crate::saggar::Program;
use crate::store::Store;
use objects::Objects;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;

/// Maximum number of sessions that are copied at once.
const WORKERS: usize = 4;
/// How long the exit of the server waits for copies.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Copies sessions into the snapshot store, and restores them.
#[derive(Debug, Clone)]
pub struct Persisted {
    objects: Objects,
    store: Store,
    program: Program,
    running: RunningSessions,
    cipher: CredentialCipher,
    data_dir: PathBuf,
    changes: ChangeQueue,
    counts: Arc<CopyCounts>,
    agent_locks: KeyedLocks<(String, String)>,
}

/// Numbers of copies since the server started.
#[derive(Debug, Default)]
pub struct CopyCounts {
    /// Stored copies.
    pub copied: AtomicU64,
    /// Copies that were not stored, since the store has their content.
    pub unchanged: AtomicU64,
    /// Attempts that failed. They are repeated.
    pub failed: AtomicU64,
}

/// The tasks that copy sessions.
#[derive(Debug)]
pub struct CopyWorkers {
    changes: ChangeQueue,
    workers: JoinSet<()>,
}

impl Persisted {
    /// Opens the snapshot store with this URL.
    ///
    /// # Errors
    /// Fails if its directory cannot be used, or if a variable of its environment is invalid.
    pub fn open(
        url: &SnapshotUrl,
        (store, program, running): (Store, Program, RunningSessions),
        cipher: CredentialCipher,
        data_dir: PathBuf,
    ) -> Result<Self> {
        staging::remove_remains(&data_dir);
        let objects = Objects::open(url)?;
        let changes = running.changes().clone();
        Ok(Persisted {
            objects,
            store,
            program,
            running,
            cipher,
            data_dir,
            changes,
            counts: Arc::default(),
            agent_locks: KeyedLocks::default(),
        })
    }

    /// The locks of agents, by tenant and name.
    pub fn agent_locks(&self) -> &KeyedLocks<(String, String)> {
        &self.agent_locks
    }

    /// Numbers of copies.
    pub fn counts(&self) -> &CopyCounts {
        &self.counts
    }

    /// Number of sessions and agents that have changed since their last copy.
    pub fn pending(&self) -> usize {
        self.changes.len()
    }

    /// Starts to copy sessions and agents as they change, and those that have changed since their copies, as before the kill
    /// of an earlier server.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn start(&self) -> Result<CopyWorkers> {
        self.store.abandon_all_uploads().await?;
        self.changes.add_removals();
        for (tenant, id) in self.store.sessions_to_copy().await? {
            let id = id.parse().map_err(|_| Error::new(format!("invalid session id {id:?}")))?;
            self.changes.add_session(&tenant, id);
        }
        for (tenant, name) in self.store.agents_to_copy().await? {
            self.changes.add_agent(&tenant, &name);
        }
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            workers.spawn(self.clone().work());
        }
        Ok(CopyWorkers { changes: self.changes.clone(), workers })
    }
}

impl CopyWorkers {
    /// Copies the sessions that have changed, and ends the tasks.
    pub async fn close(mut self) {
        self.changes.close();
        let ended = timeout(CLOSE_TIMEOUT, async { while self.workers.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            warn!(
                "exiting although {} sessions or agents have changed since their copies",
                self.changes.len()
            );
        }
    }
}
