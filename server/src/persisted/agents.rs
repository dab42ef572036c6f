//! Copies of agent folders, so that another machine starts sessions of them.

use super::Persisted;
use super::copy::StoredObject;
use super::restore_error::RestoreError;
use super::staging::Staging;
use super::upload::{CopyOutcome, FOLDER, hash, pack};
use crate::agent_base::{self, copy_of, current_folder, folder_to_copy, is_placed};
use crate::agent_folder::{install, is_agent_folder};
use crate::error::{Context, Error, Result};
use crate::folder_archive::unpack_folder;
use crate::store::{Agent, NewCopy};
use object_store::path::Path as Key;
use serde_json::json;
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

impl Persisted {
    /// Stores the folder of an agent, if it is the operator's, or its last change was made on this machine.
    pub(super) async fn copy_agent(&self, tenant: &str, name: &str) -> Result<CopyOutcome> {
        let staging = Staging::create(&self.data_dir)?;
        let Some((agent, packed)) = self.pack_agent(tenant, name, &staging).await? else {
            return Ok(CopyOutcome::NotHere);
        };
        let previous = copy_of(&agent);
        if let Some(previous) = &previous
            && previous.sha256 == hash(packed.clone()).await?
        {
            self.store.set_agent_copied(tenant, name, agent.changes).await?;
            return Ok(CopyOutcome::Unchanged);
        }
        let upload = self.begin_upload(Key::from_iter(["agents", tenant, name]), &[FOLDER]).await?;
        let stored = async {
            let object = self.upload_file(&upload, FOLDER, &packed).await?;
            let copy = serde_json::to_string(&object).context(|| "cannot encode the copy")?;
            let replaced =
                json!(previous.iter().map(|previous| &previous.key).collect::<Vec<_>>()).to_string();
            let new = NewCopy { copy: &copy, changes: agent.changes, upload: upload.id, replaced: &replaced };
            // Deployments meanwhile follow the former copy, and now also the new one. A server that is killed between the
            // three steps leaves a folder that is in use.
            let _lock = self.agent_locks.write((tenant.to_owned(), name.to_owned())).await;
            let hashes = previous.iter().map(|copy| copy.sha256.as_str()).chain([object.sha256.as_str()]);
            self.write_bases(&agent, &hashes.collect::<Vec<_>>()).await?;
            let machine = if is_placed(&self.data_dir, &agent) { "" } else { self.store.machine() };
            let is_stored = self.store.set_agent_copy(&agent, machine, &new).await?;
            if is_stored {
                self.write_bases(&agent, &[&object.sha256]).await?;
            }
            Ok(is_stored)
        };
        // If it was not stored, the agent was deleted, or another server has stored a copy.
        self.end_upload(&upload, stored.await).await
    }

    /// Archives the folder of an agent while it does not change; `None` if another machine is to copy it.
    async fn pack_agent(
        &self,
        tenant: &str,
        name: &str,
        staging: &Staging,
    ) -> Result<Option<(Agent, PathBuf)>> {
        let _lock = self.agent_locks.read((tenant.to_owned(), name.to_owned())).await;
        let Some(agent) = self.store.agent(tenant, name).await? else { return Ok(None) };
        let Some(folder) = self.read_agent(&agent, folder_to_copy).await? else { return Ok(None) };
        let packed = pack(staging, folder).await?;
        Ok(Some((agent, packed)))
    }

    /// Restores the folders of all agents that this machine does not have. Failures are logged: a session of such an agent
    /// tries again.
    pub async fn restore_agents(&self) {
        let agents = match self.store.agents_of_all_tenants().await {
            Ok(agents) => agents,
            Err(error) => return warn!("cannot restore the folders of agents: {error}"),
        };
        for agent in agents {
            if let Err(error) = self.restore_agent(&agent.tenant_id, &agent.name).await {
                warn!("cannot restore the folder of agent {}: {error}", agent.name);
            }
        }
    }

    /// Restores the folder of an agent if this machine does not have it and there is a copy. The caller does not hold the
    /// lock of the agent.
    ///
    /// # Errors
    /// Fails if the object is missing or was changed, or if the folder cannot be written.
    pub async fn restore_agent(&self, tenant: &str, name: &str) -> std::result::Result<(), RestoreError> {
        let Some(agent) = self.store.agent(tenant, name).await? else { return Ok(()) };
        if self.current_folder(&agent).await?.is_some_and(|folder| self.is_path_of(&agent, &folder)) {
            return Ok(());
        }
        let _lock = self.agent_locks.write((tenant.to_owned(), name.to_owned())).await;
        self.restore_locked_agent(tenant, name).await
    }

    /// The same, for a caller that holds the exclusive lock of the agent.
    ///
    /// # Errors
    /// As [`Persisted::restore_agent`].
    pub async fn restore_locked_agent(
        &self,
        tenant: &str,
        name: &str,
    ) -> std::result::Result<(), RestoreError> {
        let Some(agent) = self.store.agent(tenant, name).await? else { return Ok(()) };
        let Some(copy) = copy_of(&agent) else { return Ok(()) };
        let folder = match self.current_folder(&agent).await? {
            Some(folder) => folder,
            None => self.install_copy(&agent, &copy).await?,
        };
        if !self.is_path_of(&agent, &folder) {
            self.store.set_agent_path(tenant, name, &folder.to_string_lossy()).await?;
        }
        Ok(())
    }

    /// Replaces the deployed folder of an agent on this machine by its copy.
    async fn install_copy(
        &self,
        agent: &Agent,
        copy: &StoredObject,
    ) -> std::result::Result<PathBuf, RestoreError> {
        let name = &agent.name;
        let staging = Staging::create(&self.data_dir)?;
        let archive = staging.file("folder.tar.gz");
        let downloaded = self.objects.download(copy, &archive).await;
        downloaded.map_err(|error| RestoreError::of_store(format_args!("agent {name}"), &error))?;
        let (data_dir, to) = (self.data_dir.clone(), agent.clone());
        let installed = spawn_blocking(move || {
            let folder =
                install(&data_dir, &to.tenant_id, &to.name, |folder| unpack_folder(&archive, folder));
            let folder = folder.context(|| "cannot write its folder")?;
            agent_base::adopt(&data_dir, &to)?;
            Ok::<_, Error>(folder)
        });
        let folder = installed.await.context(|| "cannot write its folder")??;
        info!("agent {name}: restored its folder from the snapshot store");
        Ok(folder)
    }

    /// Returns the folder of an agent on this machine; `None` if its copy is to be restored first.
    ///
    /// # Errors
    /// As [`current_folder`].
    pub async fn current_folder(&self, agent: &Agent) -> Result<Option<PathBuf>> {
        self.read_agent(agent, current_folder).await?
    }

    /// Reads the files of an agent outside of the asynchronous threads.
    async fn read_agent<T: Send + 'static>(
        &self,
        agent: &Agent,
        read: fn(&Path, &str, &Agent) -> T,
    ) -> Result<T> {
        let (data_dir, machine, agent) =
            (self.data_dir.clone(), self.store.machine().to_owned(), agent.clone());
        spawn_blocking(move || read(&data_dir, &machine, &agent)).await.context(|| "cannot read the agent")
    }

    /// The same, if the folder exists.
    ///
    /// # Errors
    /// As [`current_folder`].
    pub(super) async fn usable_folder(&self, agent: &Agent) -> Result<Option<PathBuf>> {
        Ok(self.current_folder(agent).await?.filter(|folder| is_agent_folder(folder)))
    }

    /// Whether the row of an agent has this folder of it. A path of the operator stays: another machine can have the folder.
    fn is_path_of(&self, agent: &Agent, folder: &Path) -> bool {
        Path::new(&agent.path) == folder || is_placed(&self.data_dir, agent)
    }

    async fn write_bases(&self, agent: &Agent, hashes: &[&str]) -> Result<()> {
        if is_placed(&self.data_dir, agent) {
            return Ok(());
        }
        let (data_dir, agent) = (self.data_dir.clone(), agent.clone());
        let hashes: Vec<String> = hashes.iter().map(|hash| (*hash).to_owned()).collect();
        let write = move || {
            let hashes: Vec<&str> = hashes.iter().map(String::as_str).collect();
            agent_base::write_bases(&data_dir, &agent, &hashes)
        };
        spawn_blocking(write).await.context(|| "cannot write the base of the agent")?
    }
}
