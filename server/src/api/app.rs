//! State shared by all routes.

use super::download::Downloads;
use super::rate_limit::RequestLimiter;
use super::warm_pool::{AgentKey, WarmPool};
use crate::api_key::SecretVerifier;
use crate::body_limits::BodyLimits;
use crate::cipher::CredentialCipher;
use crate::keyed_locks::KeyedLocks;
use crate::model_apis::ModelApis;
use crate::permission_mode::PermissionMode;
use crate::persisted::Persisted;
use crate::running::RunningSessions;
use crate::saggar::{Program, Sandboxes};
use crate::settings::{SandboxLimits, Settings};
use crate::store::Store;
use crate::tasks::Tasks;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use tokio::sync::Notify;

/// State shared by all routes.
#[derive(Debug)]
pub struct App {
    /// The data directory, an absolute path.
    pub data_dir: PathBuf,
    /// The database.
    pub store: Store,
    /// Encrypts credentials.
    pub credential_cipher: CredentialCipher,
    /// The addresses that keys are sent to which sandboxes do not have.
    pub model_apis: ModelApis,
    /// The permission mode of sessions without one.
    pub permission_mode: PermissionMode,
    /// The program `saggar`, for the files of sessions on this machine.
    pub program: Program,
    /// Where sessions run.
    pub sandboxes: Sandboxes,
    /// The sessions with a running sandbox.
    pub running: RunningSessions,
    /// Host names that requests may use, besides loopback and the local address.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the API.
    pub allowed_origins: Vec<String>,
    /// The scheme of the server's own URL.
    pub scheme: &'static str,
    /// Whether the web page is served.
    pub page: bool,
    /// Counts requests by client address.
    pub request_limiter: RequestLimiter,
    /// The API key in the settings.
    pub configured_key: Option<SecretVerifier>,
    /// The secret of the internal routes; without it, they are disabled.
    pub internal_secret: Option<SecretVerifier>,
    /// Locks by tenant and name of agents: shared while a session of the agent starts, exclusive while the agent changes.
    /// A task that needs several of them takes the slot of a sandbox first, then the lock of the agent, then that of the
    /// session.
    pub(super) agent_locks: KeyedLocks<AgentKey>,
    /// Copies of sessions in the snapshot store; `None` without a store.
    pub persisted: Option<Persisted>,
    /// Limits on sandboxes.
    pub sandbox_limits: SandboxLimits,
    /// The sandboxes that are started ahead of their sessions.
    pub warm_pool: Arc<WarmPool>,
    /// Numbers of resumed sessions.
    pub resumes: ResumeCounts,
    /// The downloads of files that are in progress.
    pub downloads: Downloads,
    /// Maximum sizes of request bodies.
    pub body_limits: BodyLimits,
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
        credential_cipher: CredentialCipher,
        sandboxes: Sandboxes,
        running: RunningSessions,
        persisted: Option<Persisted>,
    ) -> Self {
        App {
            data_dir,
            store,
            credential_cipher,
            model_apis: match sandboxes.are_pods() {
                // Nothing adds a key to the requests of a pod: it is a variable of the pod.
                true => ModelApis { anthropic: None, openai: None },
                false => settings.model_apis.clone(),
            },
            permission_mode: settings.permission_mode,
            program: sandboxes.program().clone(),
            sandboxes,
            running,
            allowed_hosts: settings.allowed_hosts.clone(),
            allowed_origins: settings.allowed_origins.clone(),
            scheme: settings.scheme(),
            page: settings.page,
            request_limiter: RequestLimiter::new(settings.request_limits),
            configured_key: settings.api_key.as_deref().map(SecretVerifier::new),
            internal_secret: settings.internal_secret.as_deref().map(SecretVerifier::new),
            agent_locks: persisted
                .as_ref()
                .map_or_else(KeyedLocks::default, |open| open.agent_locks().clone()),
            persisted,
            sandbox_limits: settings.sandbox_limits,
            warm_pool: Arc::default(),
            resumes: ResumeCounts::default(),
            downloads: Downloads::default(),
            body_limits: settings.body_limits,
            queue_workers: settings.queue_workers,
            queue_wakeup: Notify::new(),
            max_attachment_size: settings.max_attachment_size,
            tasks: Tasks::default(),
            started: Instant::now(),
        }
    }
}

/// Numbers of sessions that were resumed since the server started.
#[derive(Debug, Default)]
pub struct ResumeCounts {
    /// In the same sandbox.
    pub warm: AtomicU64,
    /// In a new sandbox, with the files on this machine.
    pub cold: AtomicU64,
    /// In a new sandbox, with a copy in the snapshot store.
    pub restored: AtomicU64,
}
