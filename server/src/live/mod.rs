//! The sessions that run. They are processes of their own, which outlive the server; it finds them again at its start.

mod keyed_locks;
mod recorder;

use crate::error::Result;
use crate::saggar::{Program, SessionRecord, SessionState};
use crate::store::{Session, Status, Store};
use keyed_locks::KeyedLocks;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedMutexGuard, watch};
use tracing::{info, warn};
use uuid::Uuid;

/// A session that runs.
#[derive(Debug)]
pub struct Live {
    /// The session.
    pub id: Uuid,
    /// Its tenant.
    pub tenant: String,
    /// Its bridge.
    pub bridge: PathBuf,
    /// Its control socket.
    pub control: PathBuf,
    progress: watch::Sender<Progress>,
}

/// How far the recorder of a session is.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// The number of the last event of the bridge that the database has.
    number: u64,
    /// It has recorded all, or has given up.
    is_over: bool,
}

impl Live {
    /// The number of the last event of the bridge that the database has.
    pub fn recorded(&self) -> u64 {
        self.progress.borrow().number
    }

    /// Waits until the database has the event with this number, or never will.
    pub async fn wait_until_recorded(&self, number: u64) {
        let mut progress = self.progress.subscribe();
        // The sender is this.
        let _ = progress.wait_for(|progress| progress.number >= number || progress.is_over).await;
    }

    /// Waits until the sandbox has ended and the database has all that it said.
    pub async fn wait_until_over(&self) {
        let mut progress = self.progress.subscribe();
        let _ = progress.wait_for(|progress| progress.is_over).await;
    }

    fn set_recorded(&self, number: u64) {
        self.progress.send_modify(|progress| progress.number = progress.number.max(number));
    }

    fn set_over(&self) {
        self.progress.send_modify(|progress| progress.is_over = true);
    }
}

/// All of them.
#[derive(Debug, Clone)]
pub struct LiveSessions {
    store: Store,
    program: Program,
    sessions: Arc<Mutex<HashMap<Uuid, Arc<Live>>>>,
    changes: KeyedLocks,
}

impl LiveSessions {
    /// None yet.
    pub fn new(store: Store, program: Program) -> Self {
        LiveSessions { store, program, sessions: Arc::default(), changes: KeyedLocks::default() }
    }

    /// Takes up the sessions that run since before this start, and notes which do not any more.
    ///
    /// # Errors
    /// The database fails.
    pub async fn find_running(&self) -> Result<()> {
        let sessions = self.store.sessions_with_sandboxes().await?;
        if sessions.is_empty() {
            return Ok(());
        }
        let records = match self.program.list().await {
            Ok(records) => records,
            Err(failure) => {
                warn!("the sandboxes of before this start were not found: {}", failure.0);
                return Ok(());
            }
        };
        let mut records: HashMap<String, SessionRecord> =
            records.into_iter().map(|record| (record.id.clone(), record)).collect();
        for session in sessions {
            let record = records.remove(&session.id.to_string());
            if let Some(record) = &record
                && self.take_up(&session, record).is_some()
            {
                self.store.set_running(session.id, &record.sandbox, running_status(record.state)).await?;
                continue;
            }
            let status = status_without_sandbox(record.map(|record| record.state));
            if status != session.status {
                info!("session {} has no sandbox any more: {status}", session.id);
                self.store.change_status(session.id, &[session.status], status).await?;
            }
        }
        Ok(())
    }

    /// Records what a session says from now on; `None` if it does not run.
    pub fn take_up(&self, session: &Session, record: &SessionRecord) -> Option<Arc<Live>> {
        let progress = Progress { number: session.recorded, is_over: false };
        let live = Arc::new(Live {
            id: session.id,
            tenant: session.tenant_id.clone(),
            bridge: record.bridge_socket.clone()?,
            control: record.control_socket.clone()?,
            progress: watch::Sender::new(progress),
        });
        self.table().insert(session.id, Arc::clone(&live));
        tokio::spawn(recorder::run(self.clone(), Arc::clone(&live)));
        Some(live)
    }

    /// A session, if it runs.
    pub fn get(&self, id: Uuid) -> Option<Arc<Live>> {
        self.table().get(&id).cloned()
    }

    /// How many run.
    pub fn count(&self) -> usize {
        self.table().len()
    }

    /// Held while a session is started, paused or ended: one at a time.
    pub async fn lock_changes(&self, id: Uuid) -> OwnedMutexGuard<()> {
        self.changes.lock(id).await
    }

    /// Forgets a session that has ended.
    fn forget(&self, live: &Arc<Live>) {
        let mut table = self.table();
        if table.get(&live.id).is_some_and(|known| Arc::ptr_eq(known, live)) {
            table.remove(&live.id);
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Live>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The status of a session whose sandbox is there.
fn running_status(state: SessionState) -> Status {
    match state {
        SessionState::Paused => Status::Paused,
        _ => Status::Active,
    }
}

/// The status of a session that was to run and does not; without a state saggar does not know it.
fn status_without_sandbox(state: Option<SessionState>) -> Status {
    match state {
        Some(SessionState::Paused | SessionState::Starting | SessionState::Active) => Status::Paused,
        Some(SessionState::Ended) => Status::Ended,
        Some(SessionState::Error) | None => Status::Error,
    }
}
