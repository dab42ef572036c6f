//! Changes of agents, which discard their warm sandboxes.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::warm_pool::{AgentKey, WarmPool};
use std::sync::Arc;
use tokio::sync::OwnedRwLockWriteGuard;

/// Runs `change` while no session of the agent starts. It completes even if the client disconnects, and then the warm
/// sandboxes of the agent are discarded.
///
/// # Errors
/// Those of `change`.
pub(super) async fn change_agent<T, F>(
    app: Arc<App>,
    caller: Caller,
    name: String,
    change: impl FnOnce(Arc<App>, Caller, String) -> F + Send + 'static,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ApiError>> + Send + 'static,
{
    let tasks = app.tasks.clone();
    let changed = tasks.run(async move {
        let key = (caller.tenant.clone(), name.clone());
        let lock = app.agent_locks.write(key.clone()).await;
        let _lock = ExclusiveAgentLock { pool: Arc::clone(&app.warm_pool), key, _lock: lock };
        let changes = app.running.changes().clone();
        let (tenant, agent) = (caller.tenant.clone(), name.clone());
        let changed = change(app, caller, name).await;
        changes.add_agent(&tenant, &agent);
        changed
    });
    changed.await.unwrap_or_else(|| Err(ApiError::internal("Cannot change the agent: internal error")))
}

struct ExclusiveAgentLock {
    pool: Arc<WarmPool>,
    key: AgentKey,
    _lock: OwnedRwLockWriteGuard<()>,
}

impl Drop for ExclusiveAgentLock {
    fn drop(&mut self) {
        // Before the lock is released: no session takes a sandbox of the former agent.
        self.pool.discard_agent(&self.key);
    }
}
