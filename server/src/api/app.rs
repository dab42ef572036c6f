//! State shared by all routes.

use crate::api_key;
use crate::keyed_locks::KeyedLocks;
use crate::running::RunningSessions;
use crate::saggar::Program;
use crate::settings::Settings;
use crate::store::Store;
use crate::tasks::Tasks;
use std::path::PathBuf;
use std::time::Instant;
use tokio::sync::Notify;

/// State shared by all routes.
#[derive(Debug)]
pub struct App {
    /// The data directory, an absolute path.
    pub data_dir: PathBuf,
    /// The database.
    pub store: Store,
    /// The program `saggar`, which starts sandboxes.
    pub program: Program,
    /// The sessions with a running sandbox.
    pub running: RunningSessions,
    /// Host names that requests may use, besides loopback and the local address.
    pub allowed_hosts: Vec<String>,
    /// The hash of the API key in the settings.
    pub configured_key: Option<String>,
    /// Locks by tenant and name of agents: shared while a session of the agent starts, exclusive while the agent changes.
    /// A task that also locks a session locks the agent first.
    pub agent_locks: KeyedLocks<(String, String)>,
    /// Maximum size of an attachment, in bytes.
    pub max_attachment_size: usize,
    /// Maximum number of queue items that run at once.
    pub queue_workers: usize,
    /// Notified when an item is added to the queue.
    pub queue_wakeup: Notify,
    /// The work that outlives its requests.
    pub tasks: Tasks,
    /// The start time, for the uptime in `GET /health`.
    pub started: Instant,
}

impl App {
    /// Creates the state from the settings.
    pub fn new(
        settings: &Settings,
        data_dir: PathBuf,
        store: Store,
        program: Program,
        running: RunningSessions,
    ) -> Self {
        App {
            data_dir,
            store,
            program,
            running,
            allowed_hosts: settings.allowed_hosts.clone(),
            configured_key: settings.api_key.as_deref().map(api_key::hash_key),
            agent_locks: KeyedLocks::default(),
            queue_workers: settings.queue_workers,
            queue_wakeup: Notify::new(),
            max_attachment_size: settings.max_attachment_size,
            tasks: Tasks::default(),
            started: Instant::now(),
        }
    }
}
