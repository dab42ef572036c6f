//! The sessions with a running sandbox. Their processes outlive the server, which reattaches to them when it starts.

mod left_behind;
mod permission_log;
mod pod_sessions;
mod recorder;
mod stored_hosts;

pub use permission_log::PermissionLog;

use crate::capacity::{Capacity, SandboxSlot};
use crate::error::Result;
use crate::keyed_locks::KeyedLocks;
use crate::mutex::lock;
use crate::persisted::ChangeQueue;
use crate::saggar::{CommandError, Sandboxes, SessionRecord, SessionSocket, SessionState};
use crate::session_directory::{is_here, remove_session_directory};
use crate::store::{Session, Status, Store};
use crate::traces::TurnSpans;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};
use tokio::time::timeout;
use tracing::{info, warn};
use uuid::Uuid;

/// The time between the end of a sandbox's sockets and its exit, at most.
const EXIT_TIME: Duration = Duration::from_secs(5);

/// A session with a running sandbox.
#[derive(Debug)]
pub struct RunningSession {
    /// The id of the session.
    pub id: Uuid,
    /// The tenant that owns the session.
    pub tenant: String,
    /// The name of its sandbox.
    pub sandbox: String,
    /// The path of its bridge socket (saggar-bridge(7)).
    pub bridge: SessionSocket,
    /// The path of its control socket (saggar-control(7)).
    pub control: SessionSocket,
    progress: watch::Sender<Progress>,
    permissions: PermissionLog,
    turn_spans: TurnSpans,
    /// `None` after the sandbox has exited.
    slot: Mutex<Option<SandboxSlot>>,
    runs_turn: AtomicBool,
    last_used: Mutex<Instant>,
    /// Shared while a client begins work, exclusive while the server ends the sandbox because it is idle.
    use_lock: Arc<RwLock<()>>,
}

/// Work of a client that the sandbox may not know about yet. Meanwhile, the server does not end the sandbox.
pub type SessionUse = OwnedRwLockReadGuard<()>;

/// The progress of the recorder of a session.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// The number of the last bridge event in the database.
    recorded: u64,
    /// Whether the recorder has returned. It records no further events.
    finished: bool,
}

impl RunningSession {
    fn new(
        session: &Session,
        sandbox: &str,
        [bridge, control]: [SessionSocket; 2],
        slot: Option<SandboxSlot>,
    ) -> Self {
        RunningSession {
            id: session.id,
            tenant: session.tenant_id.clone(),
            sandbox: sandbox.to_owned(),
            bridge,
            control,
            progress: watch::Sender::new(Progress { recorded: session.recorded, finished: false }),
            permissions: PermissionLog::default(),
            turn_spans: TurnSpans::default(),
            slot: Mutex::new(slot),
            runs_turn: AtomicBool::new(false),
            last_used: Mutex::new(Instant::now()),
            use_lock: Arc::default(),
        }
    }

    /// Marks the session as used until the returned value is dropped. Waits while the server ends the sandbox: the caller
    /// then checks that it is still running.
    pub async fn begin_use(&self) -> SessionUse {
        self.mark_used();
        Arc::clone(&self.use_lock).read_owned().await
    }

    /// Excludes uses until the returned value is dropped; `None` if there is one.
    pub fn try_exclude_use(&self) -> Option<OwnedRwLockWriteGuard<()>> {
        Arc::clone(&self.use_lock).try_write_owned().ok()
    }

    /// Restarts the idle time of the session. Events of the agent do so, too.
    pub fn mark_used(&self) {
        *lock(&self.last_used) = Instant::now();
    }

    /// The time since the session was used.
    pub fn idle_time(&self) -> Duration {
        lock(&self.last_used).elapsed()
    }

    /// Whether a turn is running, as far as its events have been recorded.
    pub fn runs_turn(&self) -> bool {
        self.runs_turn.load(Ordering::Relaxed)
    }

    fn set_runs_turn(&self, runs_turn: bool) {
        self.runs_turn.store(runs_turn, Ordering::Relaxed);
    }

    /// The permission requests that clients were told about.
    pub fn permissions(&self) -> &PermissionLog {
        &self.permissions
    }

    /// The spans of its turns.
    pub(crate) fn turn_spans(&self) -> &TurnSpans {
        &self.turn_spans
    }

    /// Returns the number of the last bridge event in the database.
    pub fn recorded(&self) -> u64 {
        self.progress.borrow().recorded
    }

    /// Waits until the database contains the event with this number, or the recorder has returned.
    pub async fn wait_until_recorded(&self, number: u64) {
        let mut progress = self.progress.subscribe();
        // The wait cannot fail: `self` owns the sender.
        let _ = progress.wait_for(|progress| progress.recorded >= number || progress.finished).await;
    }

    /// Waits until the recorder has returned, which it does after the sandbox has exited.
    pub async fn wait_until_finished(&self) {
        let mut progress = self.progress.subscribe();
        let _ = progress.wait_for(|progress| progress.finished).await;
    }

    /// Whether the sandbox has exited, or does so now. Ask it after a call of the sandbox has failed: at its exit, its
    /// sockets are gone before the recorder has returned.
    pub async fn has_exited(&self) -> bool {
        timeout(EXIT_TIME, self.wait_until_finished()).await.is_ok()
    }

    fn set_recorded(&self, number: u64) {
        self.mark_used();
        self.progress.send_modify(|progress| progress.recorded = progress.recorded.max(number));
    }

    fn set_finished(&self) {
        self.turn_spans.fail_all();
        self.progress.send_modify(|progress| progress.finished = true);
    }
}

/// All sessions with a running sandbox.
#[derive(Debug, Clone)]
pub struct RunningSessions {
    store: Store,
    sandboxes: Sandboxes,
    data_dir: PathBuf,
    capacity: Capacity,
    changes: ChangeQueue,
    sessions: Arc<Mutex<HashMap<Uuid, Arc<RunningSession>>>>,
    locks: KeyedLocks<Uuid>,
}

impl RunningSessions {
    /// Creates an empty table. `data_dir` is the data directory of the server; sessions whose turns have ended are added to
    /// `changes`.
    pub fn new(
        store: Store,
        sandboxes: Sandboxes,
        data_dir: PathBuf,
        capacity: Capacity,
        changes: ChangeQueue,
    ) -> Self {
        RunningSessions {
            store,
            sandboxes,
            data_dir,
            capacity,
            changes,
            sessions: Arc::default(),
            locks: KeyedLocks::default(),
        }
    }

    /// The slots of the sandboxes.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The sessions that have changed since their last copy.
    pub fn changes(&self) -> &ChangeQueue {
        &self.changes
    }

    /// Reattaches to the sessions that were running before this start, and updates the status of those that have
    /// exited.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn reattach(&self) -> Result<()> {
        if self.sandboxes.are_pods() {
            return self.reattach_pods().await;
        }
        let sessions = self.store.sessions_to_reattach().await?;
        if sessions.is_empty() && !self.changes.is_enabled() {
            return Ok(());
        }
        let records = match self.sandboxes.program().list().await {
            Ok(records) => records,
            Err(error) => {
                warn!("cannot reattach to running sessions: {error}");
                return Ok(());
            }
        };
        let mut records: HashMap<String, SessionRecord> =
            records.into_iter().map(|record| (record.id.clone(), record)).collect();
        for session in sessions {
            let mut record = records.remove(&session.id.to_string());
            match is_here(&self.data_dir, &session).await {
                Ok(true) => {}
                Ok(false) => {
                    if record.take().is_some_and(|obsolete| obsolete.is_served()) {
                        self.end_obsolete(session.id).await;
                    }
                }
                Err(error) => {
                    warn!("cannot reattach to session {}: {error}", session.id);
                    continue;
                }
            }
            if let Some(record) = record.take_if(|record| record.is_served()) {
                self.store.set_running(session.id, &record.sandbox, running_status(record.state)).await?;
                self.attach_at_start(session, record).await;
                continue;
            }
            let is_known = record.is_some();
            let status = match record {
                // Another machine has it.
                None if session.copy.is_some() => Status::Paused,
                record => status_without_sandbox(record.map(|record| record.state)),
            };
            let is_expected = matches!(session.status, Status::Stopped | Status::Error);
            if status != session.status && !(is_expected && status != Status::Ended) {
                if is_known {
                    self.record_stored(&session).await;
                }
                info!("sandbox of session {} has exited: status {status}", session.id);
                self.store.change_status(session.id, &[session.status], status).await?;
                if status == Status::Ended {
                    remove_session_directory(&self.data_dir, session.id).await;
                }
            }
        }
        if self.changes.is_enabled() {
            self.end_left_behind(records.into_values()).await?;
        }
        Ok(())
    }

    /// Starts the recorder of a session that has no stored hosts. Returns `None` if the record has no sockets: then no
    /// sandbox is running.
    pub fn attach(
        &self,
        session: &Session,
        record: &SessionRecord,
        slot: SandboxSlot,
    ) -> Option<Arc<RunningSession>> {
        let sockets = [record.bridge_socket.clone()?, record.control_socket.clone()?];
        let session = Arc::new(RunningSession::new(session, &record.sandbox, sockets, Some(slot)));
        self.table().insert(session.id, Arc::clone(&session));
        tokio::spawn(recorder::run(self.clone(), Arc::clone(&session)));
        Some(session)
    }

    /// Records the stored events of a session without a running sandbox. Those of another generation are not its events.
    pub async fn record_stored(&self, session: &Session) {
        if !matches!(is_here(&self.data_dir, session).await, Ok(true)) {
            return;
        }
        let session = RunningSession::new(session, &session.sandbox_id, Default::default(), None);
        recorder::record_stored(self, &session).await;
    }

    /// Returns the session with this id if its sandbox is running.
    pub fn get(&self, id: Uuid) -> Option<Arc<RunningSession>> {
        self.table().get(&id).cloned()
    }

    /// Whether the sandbox of this session has not exited.
    pub fn contains(&self, session: &Arc<RunningSession>) -> bool {
        is_current(&self.table(), session)
    }

    /// Returns a session that is active in the database. If the server is not attached to its sandbox, for example since
    /// saggar failed when the server started, it attaches now; `None` if no sandbox is running.
    ///
    /// # Errors
    /// Fails if saggar cannot list its sessions.
    pub async fn get_or_attach(
        &self,
        session: &Session,
    ) -> std::result::Result<Option<Arc<RunningSession>>, CommandError> {
        if let Some(running) = self.get(session.id) {
            return Ok(Some(running));
        }
        let _session_lock = self.lock_session(session.id).await;
        self.attach_if_served(session).await
    }

    /// Attaches to the sandbox of a session, if one is running. The caller holds the lock of the session.
    ///
    /// # Errors
    /// Fails if saggar cannot list its sessions.
    pub async fn attach_if_served(
        &self,
        session: &Session,
    ) -> std::result::Result<Option<Arc<RunningSession>>, CommandError> {
        if let Some(running) = self.get(session.id) {
            return Ok(Some(running));
        }
        let Some(record) = self.find_session(session).await? else { return Ok(None) };
        let slot = self.capacity.acquire_for_running(&session.tenant_id);
        Ok(self.attach_with_hosts(session, &record, slot).await)
    }

    /// Returns the record of a session in saggar; `None` if there is none, or if it is not that of the row
    /// ([`is_here`]).
    ///
    /// # Errors
    /// Fails if saggar cannot list its sessions, or if the generation of the files is unknown.
    pub async fn find_session(
        &self,
        session: &Session,
    ) -> std::result::Result<Option<SessionRecord>, CommandError> {
        match is_here(&self.data_dir, session).await? {
            true => self.sandboxes.find_session(session.id, &session.sandbox_id).await,
            false => Ok(None),
        }
    }

    /// Returns the number of running sandboxes, and of those that run a turn.
    pub fn counts(&self) -> (usize, usize) {
        let table = self.table();
        (table.len(), table.values().filter(|session| session.runs_turn()).count())
    }

    /// Lists the sessions with a running sandbox, the one that has been idle for longest first.
    pub fn by_idle_time(&self) -> Vec<Arc<RunningSession>> {
        let mut sessions: Vec<_> = self.table().values().cloned().collect();
        sessions.sort_by_cached_key(|session| std::cmp::Reverse(session.idle_time()));
        sessions
    }

    /// Ends the spans of all turns, since the server exits.
    pub(crate) fn leave_turn_spans(&self) {
        self.table().values().for_each(|session| session.turn_spans.leave_all());
    }

    /// Counts a change of the files of a session before it is made: a copy that is due survives a kill of the server.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn mark_changed(&self, tenant: &str, id: Uuid) -> Result<()> {
        self.changes.add_session(tenant, id);
        self.store.mark_changed(id).await
    }

    /// Counts a change of the files of a session after it was made. Its client learns of the change, even if that fails.
    pub async fn finish_change(&self, tenant: &str, id: Uuid) {
        if let Err(error) = self.mark_changed(tenant, id).await {
            warn!("session {id}: cannot store that its files have changed: {error}");
        }
    }

    /// Adds the sessions whose turns are running to the changed ones.
    pub fn add_running_turns(&self) {
        for session in self.table().values().filter(|session| session.runs_turn()) {
            self.changes.add_session(&session.tenant, session.id);
        }
    }

    /// Waits for the lock of a session. A task holds it while it starts, pauses, resumes, stops or ends the session.
    pub async fn lock_session(&self, id: Uuid) -> OwnedRwLockWriteGuard<()> {
        self.locks.write(id).await
    }

    /// Returns the lock of a session if no task holds it or waits for it.
    pub fn try_lock_session(&self, id: Uuid) -> Option<OwnedRwLockWriteGuard<()>> {
        self.locks.try_write(id)
    }

    /// Removes a session whose sandbox has exited, unless a new sandbox has replaced it.
    fn remove(&self, session: &Arc<RunningSession>) {
        let mut table = self.table();
        if is_current(&table, session) {
            table.remove(&session.id);
        }
        drop(table);
        drop(lock(&session.slot).take());
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<RunningSession>>> {
        lock(&self.sessions)
    }
}

/// Whether no new sandbox has replaced that of this session.
fn is_current(table: &HashMap<Uuid, Arc<RunningSession>>, session: &Arc<RunningSession>) -> bool {
    table.get(&session.id).is_some_and(|current| Arc::ptr_eq(current, session))
}

/// Returns the status of a session whose sandbox is running.
fn running_status(state: SessionState) -> Status {
    match state {
        SessionState::Paused => Status::Paused,
        _ => Status::Active,
    }
}

/// Returns the status of a session whose sandbox has exited. `state` is `None` if saggar has no record of the session.
fn status_without_sandbox(state: Option<SessionState>) -> Status {
    match state {
        Some(SessionState::Paused | SessionState::Starting | SessionState::Active) => Status::Paused,
        Some(SessionState::Ended) => Status::Ended,
        Some(SessionState::Error) | None => Status::Error,
    }
}
