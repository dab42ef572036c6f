//! Copies of agent folders, so that another machine starts sessions of them.

use super::Persisted;
use super::copy::StoredObject;
use super::folder_archive::unpack_folder;
use super::staging::Staging;
use super::upload::{CopyOutcome, hash, pack};
use crate::agent_folder::{install, is_agent_folder};
use crate::error::{Context, Result};
use crate::store::Agent;
use object_store::path::Path as Key;
use std::path::Path;
use tokio::task::spawn_blocking;
use tracing::{debug, info, warn};

impl Persisted {
    /// Stores the folder of an agent, or deletes its objects if the agent was deleted.
    pub(super) async fn copy_agent(&self, tenant: &str, name: &str) -> Result<CopyOutcome> {
        let prefix = Key::from_iter(["agents", tenant, name]);
        let Some(agent) = self.store.agent(tenant, name).await? else {
            self.objects.delete_except(&prefix, &[]).await?;
            return Ok(CopyOutcome::NotHere);
        };
        if !is_agent_folder(Path::new(&agent.path)) {
            return Ok(CopyOutcome::NotHere);
        }
        let staging = Staging::create(&self.data_dir)?;
        let packed = pack(&staging, agent.path.clone().into()).await?;
        if let Some(previous) = stored_copy(&agent)
            && previous.sha256 == hash(packed.clone()).await?
        {
            return Ok(CopyOutcome::Unchanged);
        }
        let object = self.upload_file(&prefix, "folder.tar.gz", &packed).await?;
        let text = serde_json::to_string(&object).context(|| "cannot encode the copy")?;
        self.store.set_agent_copy(tenant, name, &text).await?;
        if let Err(error) = self.objects.delete_except(&prefix, &[&object.key]).await {
            // The next copy deletes them too.
            debug!("agent {name}: {error}");
        }
        Ok(CopyOutcome::Copied)
    }

    /// Restores the folders of all agents that this machine does not have. The first failure is logged and ends it: a
    /// session of a missing agent tries again.
    pub async fn restore_agents(&self) {
        let restored = async {
            for agent in self.store.agents_of_all_tenants().await? {
                self.restore_agent(&agent).await?;
            }
            Ok::<_, crate::error::Error>(())
        };
        if let Err(error) = restored.await {
            warn!("cannot restore the folders of agents: {error}");
        }
    }

    /// Restores the folder of an agent if this machine does not have it and there is a copy. Returns whether it did.
    ///
    /// # Errors
    /// Fails if the object is missing or was changed, or if the folder cannot be written.
    pub async fn restore_agent(&self, agent: &Agent) -> Result<bool> {
        let Some(copy) = stored_copy(agent).filter(|_| !is_agent_folder(Path::new(&agent.path))) else {
            return Ok(false);
        };
        let staging = Staging::create(&self.data_dir)?;
        let archive = staging.file("folder.tar.gz");
        self.objects.download(&copy, &archive).await?;
        let (data_dir, tenant, name) = (self.data_dir.clone(), agent.tenant_id.clone(), agent.name.clone());
        let context = || format!("cannot restore the folder of agent {}", agent.name);
        let installed = spawn_blocking(move || {
            install(&data_dir, &tenant, &name, |folder| unpack_folder(&archive, folder))
        });
        let folder = installed.await.context(context)?.context(context)?;
        self.store.set_agent_path(&agent.tenant_id, &agent.name, &folder.to_string_lossy()).await?;
        info!("agent {}: restored its folder from the snapshot store", agent.name);
        Ok(true)
    }
}

fn stored_copy(agent: &Agent) -> Option<StoredObject> {
    serde_json::from_str(agent.copy.as_deref()?).ok()
}
