//! The warm pool: sandboxes that are started ahead of their sessions, so that a session of an agent starts at once.
//!
//! A warm sandbox has the folder, the variables and the active prompt of its agent, and an id that becomes the id of its
//! session. It is used for a new session without variables, prompt, MCP servers or snapshot of its own, and never for
//! a session that is resumed. A change of the agent discards its sandboxes.

use super::App;
use super::agent_lock::{UsedAgent, use_agent};
use super::agent_variables;
use super::session_files::{self, SessionRequest};
use crate::capacity::SandboxSlot;
use crate::error::{Error, Result};
use crate::mutex::lock;
use crate::saggar::{CONTROL_TIMEOUT, SessionRecord, call_control};
use crate::session_directory::remove_session_directory;
use crate::session_policy::SessionPolicy;
use crate::store::Agent;
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::warn;
use uuid::Uuid;

/// Interval between two checks of the pool; after a failed start, the delay before the next one.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The tenant and the name of an agent.
pub(super) type AgentKey = (String, String);

/// A sandbox without a session.
#[derive(Debug)]
pub(super) struct WarmSandbox {
    /// The id of the session that takes it.
    pub(super) id: Uuid,
    pub(super) record: SessionRecord,
    pub(super) slot: SandboxSlot,
}

/// The warm sandboxes.
#[derive(Debug, Default)]
pub struct WarmPool {
    sandboxes: Mutex<Sandboxes>,
    /// Notified when sandboxes are taken or discarded.
    changed: Notify,
    starting: AtomicUsize,
    taken: AtomicU64,
}

#[derive(Debug, Default)]
struct Sandboxes {
    warm: HashMap<AgentKey, VecDeque<WarmSandbox>>,
    /// Those to end, with their slots; one of an earlier server has none.
    discarded: Vec<(Uuid, Option<SandboxSlot>)>,
}

impl Sandboxes {
    fn discard(&mut self, warm: impl IntoIterator<Item = WarmSandbox>) {
        self.discarded.extend(warm.into_iter().map(|warm| (warm.id, Some(warm.slot))));
    }
}

impl WarmPool {
    /// Number of sandboxes that are being started, and of those that are warm.
    pub(super) fn counts(&self) -> (usize, usize) {
        let warm = self.sandboxes().warm.values().map(VecDeque::len).sum();
        (self.starting.load(Ordering::Relaxed), warm)
    }

    /// Number of sessions that took a warm sandbox.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a sandbox of an agent that still runs. The caller holds the shared lock of the agent, and calls
    /// [`WarmPool::refill`].
    pub(super) async fn take(&self, key: &AgentKey) -> Option<WarmSandbox> {
        loop {
            let warm = self.sandboxes().warm.get_mut(key)?.pop_front()?;
            if is_active(&warm.record).await {
                self.taken.fetch_add(1, Ordering::Relaxed);
                return Some(warm);
            }
            self.discard(warm);
        }
    }

    /// Starts sandboxes for those that were taken.
    pub(super) fn refill(&self) {
        self.changed.notify_one();
    }

    /// Takes a sandbox of any agent, to free its slot.
    pub(super) fn take_any(&self) -> Option<WarmSandbox> {
        self.sandboxes().warm.values_mut().find_map(VecDeque::pop_front)
    }

    /// Discards a sandbox that was taken.
    pub(super) fn discard(&self, warm: WarmSandbox) {
        self.sandboxes().discard([warm]);
        self.changed.notify_one();
    }

    /// Discards a sandbox, unless a session has taken it.
    fn discard_by_id(&self, id: Uuid) {
        let mut sandboxes = self.sandboxes();
        let found = sandboxes.warm.values_mut().find_map(|warm| {
            let position = warm.iter().position(|warm| warm.id == id)?;
            warm.remove(position)
        });
        sandboxes.discard(found);
        drop(sandboxes);
        self.changed.notify_one();
    }

    /// Discards the sandboxes of an agent that has changed. The caller holds the exclusive lock of the agent.
    pub(super) fn discard_agent(&self, key: &AgentKey) {
        let mut sandboxes = self.sandboxes();
        let warm = sandboxes.warm.remove(key);
        sandboxes.discard(warm.into_iter().flatten());
        drop(sandboxes);
        self.changed.notify_one();
    }

    /// Ends a sandbox that was taken, and frees its slot.
    pub(super) async fn end(&self, app: &App, warm: WarmSandbox) {
        self.end_by_id(app, warm.id, Some(warm.slot)).await;
    }

    /// Ends a sandbox. If that fails, it keeps its slot, and is ended later.
    async fn end_by_id(&self, app: &App, id: Uuid, slot: Option<SandboxSlot>) {
        if let Err(error) = end_sandbox(app, id).await {
            warn!("cannot end the warm sandbox {id}: {error}; retrying");
            self.sandboxes().discarded.push((id, slot));
        }
    }

    /// Ends the sandboxes that were discarded.
    async fn end_discarded(&self, app: &App) {
        let discarded = std::mem::take(&mut self.sandboxes().discarded);
        for (id, slot) in discarded {
            self.end_by_id(app, id, slot).await;
        }
    }

    fn sandboxes(&self) -> MutexGuard<'_, Sandboxes> {
        lock(&self.sandboxes)
    }
}

/// Maintains the pool until the server shuts down, and then ends its sandboxes.
pub async fn maintain_warm_pool(app: Arc<App>) {
    match app.store.warm_sessions().await {
        Ok(left) => app.warm_pool.sandboxes().discarded.extend(left.into_iter().map(|id| (id, None))),
        Err(error) => warn!("cannot end the warm sandboxes of an earlier server: {error}"),
    }
    let mut failures = HashMap::new();
    while !app.tasks.is_shutting_down() {
        if let Err(error) = fill(&app, &mut failures).await {
            warn!("warm pool: {error}");
        }
        tokio::select! {
            () = app.warm_pool.changed.notified() => {}
            () = sleep(CHECK_INTERVAL) => discard_exited(&app).await,
            () = app.tasks.wait_for_shutdown() => {}
        }
    }
    while let Some(warm) = app.warm_pool.take_any() {
        app.warm_pool.discard(warm);
    }
    app.warm_pool.end_discarded(&app).await;
}

/// Ends discarded sandboxes, and starts those that are missing while there are free slots. An agent whose start has failed
/// is tried again later.
async fn fill(app: &App, failures: &mut HashMap<AgentKey, Instant>) -> Result<()> {
    app.warm_pool.end_discarded(app).await;
    failures.retain(|_, failed| failed.elapsed() < CHECK_INTERVAL);
    for agent in app.store.agents_of_all_tenants().await? {
        let key = (agent.tenant_id.clone(), agent.name.clone());
        while !failures.contains_key(&key) && !app.tasks.is_shutting_down() {
            match start_missing(app, &key).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    warn!("agent {}: cannot start a sandbox ahead of a session: {error}", agent.name);
                    failures.insert(key.clone(), Instant::now());
                }
            }
        }
    }
    Ok(())
}

/// Starts a sandbox of an agent that has fewer than it is to have. Returns false if none is missing, or no slot is free.
async fn start_missing(app: &App, key: &AgentKey) -> Result<bool> {
    let used = use_agent(app, &key.0, &key.1).await.map_err(|error| Error::new(error.into_text()))?;
    let Some(UsedAgent { agent, .. }) = &used else { return Ok(false) };
    let warm = app.warm_pool.sandboxes().warm.get(key).map_or(0, VecDeque::len);
    if warm >= wanted(app, agent) {
        return Ok(false);
    }
    let Some(slot) = app.running.capacity().try_acquire(&agent.tenant_id) else { return Ok(false) };
    app.warm_pool.starting.fetch_add(1, Ordering::Relaxed);
    let started = start(app, agent, slot).await;
    app.warm_pool.starting.fetch_sub(1, Ordering::Relaxed);
    app.warm_pool.sandboxes().warm.entry(key.clone()).or_default().push_back(started?);
    Ok(true)
}

/// The number of warm sandboxes that an agent is to have: `preWarmCount` in its configuration, or that of the settings.
fn wanted(app: &App, agent: &Agent) -> usize {
    let config = super::objects::parse_object(&agent.config);
    let count = config.get("preWarmCount").and_then(serde_json::Value::as_u64);
    count.map_or(app.sandbox_limits.pre_warm, |count| usize::try_from(count).unwrap_or(usize::MAX))
}

async fn start(app: &App, agent: &Agent, slot: SandboxSlot) -> Result<WarmSandbox> {
    let id = Uuid::new_v4();
    app.store.insert_warm_session(id).await?;
    let started = async {
        let variables = agent_variables::open(app, agent).map_err(|error| Error::new(error.into_text()))?;
        let request = SessionRequest {
            agent: agent.path.clone().into(),
            policy: SessionPolicy::of_variables(variables).with_permission_mode(app.permission_mode),
            prompt: app.store.active_prompt(&agent.tenant_id, &agent.name).await?,
            mcp_servers: None,
        };
        let files = session_files::create(app, id, request).await;
        let files = files.map_err(|error| Error::new(error.into_text()))?;
        Ok(app.sandboxes.create(id, &files.folder, files.policy.as_deref(), None).await?)
    };
    match started.await {
        Ok(record) => Ok(WarmSandbox { id, record, slot }),
        Err(error) => {
            app.warm_pool.end_by_id(app, id, Some(slot)).await;
            Err(error)
        }
    }
}

/// Discards the sandboxes that have exited, or that a limit has paused.
async fn discard_exited(app: &App) {
    let warm: Vec<(Uuid, SessionRecord)> = {
        let sandboxes = app.warm_pool.sandboxes();
        sandboxes.warm.values().flatten().map(|warm| (warm.id, warm.record.clone())).collect()
    };
    for (id, record) in warm {
        if !is_active(&record).await {
            app.warm_pool.discard_by_id(id);
        }
    }
}

async fn is_active(record: &SessionRecord) -> bool {
    let Some(control) = &record.control_socket else { return false };
    let state = call_control(control, "state", &json!({}), CONTROL_TIMEOUT).await;
    state.is_ok_and(|state| state["session"]["state"] == "active")
}

/// Ends a sandbox with its files, and deletes its row.
async fn end_sandbox(app: &App, id: Uuid) -> Result<()> {
    app.sandboxes.end(id, "", true).await?;
    remove_session_directory(&app.data_dir, id).await;
    app.store.delete_warm_session(id).await
}
