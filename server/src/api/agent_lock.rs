//! Agents in use: meanwhile they are neither deployed again nor deleted.

use super::App;
use super::error::ApiError;
use crate::persisted::RestoreError;
use crate::store::Agent;
use axum::http::StatusCode;
use tokio::sync::OwnedRwLockReadGuard;

/// An agent whose folder is on this machine, and its shared lock.
#[derive(Debug)]
pub(super) struct UsedAgent {
    pub(super) agent: Agent,
    _lock: OwnedRwLockReadGuard<()>,
}

/// Returns an agent for use; `None` if there is none. If another machine has its folder, that is restored from the snapshot
/// store first.
pub(super) async fn use_agent(app: &App, tenant: &str, name: &str) -> Result<Option<UsedAgent>, ApiError> {
    loop {
        let lock = app.agent_locks.read((tenant.to_owned(), name.to_owned())).await;
        let Some(agent) = app.store.agent(tenant, name).await? else { return Ok(None) };
        let Some(persisted) = &app.persisted else { return Ok(Some(UsedAgent { agent, _lock: lock })) };
        if let Some(folder) = persisted.current_folder(&agent).await? {
            let path = folder.to_string_lossy().into_owned();
            return Ok(Some(UsedAgent { agent: Agent { path, ..agent }, _lock: lock }));
        }
        drop(lock);
        let restored = persisted.restore_agent(tenant, name).await;
        restored.map_err(|error| restore_error(&format!("Cannot use agent \"{name}\""), error))?;
        // It can change again between the two locks.
    }
}

/// Prepares the folder of an agent for a change. The caller holds the exclusive lock of the agent, which keeps a copy from
/// being made between this and the change. `what` fails if the folder cannot be restored.
pub(super) async fn begin_folder_change(
    app: &App,
    tenant: &str,
    name: &str,
    what: &str,
) -> Result<(), ApiError> {
    if let Some(persisted) = &app.persisted {
        let restored = persisted.restore_locked_agent(tenant, name).await;
        restored.map_err(|error| restore_error(what, error))?;
    }
    Ok(app.store.mark_agent_changed(tenant, name).await?)
}

/// The response to a request that needs the snapshot store. Clients do not learn its address, which is in the log.
pub(super) fn restore_error(what: &str, error: RestoreError) -> ApiError {
    match error {
        RestoreError::Store => ApiError::with_status(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{what}: the snapshot store cannot be used; see the log of the server"),
        ),
        RestoreError::Failed(error) => ApiError::internal(format!("{what}: {error}")),
    }
}
