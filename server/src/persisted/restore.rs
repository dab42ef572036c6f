//! Restores sessions from the snapshot store, as new sessions of saggar with the same id.

use super::Persisted;
use super::copy::SessionCopy;
use super::restore_error::RestoreError;
use super::staging::Staging;
use crate::allowed_hosts::add_allowed_hosts;
use crate::error::{Context, Error, Result};
use crate::folder_archive::{decompress, unpack_folder};
use crate::saggar::{SessionOrigin, SessionRecord};
use crate::session_directory::{own_folder, remove_session_directory, session_directory, write_generation};
use crate::session_policy::SessionPolicy;
use crate::store::Session;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};
use uuid::Uuid;

/// How long the download of a copy may take: the session is locked meanwhile.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(600);

impl Persisted {
    /// Starts a session from its copy. The caller holds the lock of the session. Files of another
    /// generation on this machine are removed when the copy has been downloaded.
    ///
    /// The row gets the new generation last. Until then the files here are not those of the session: a server that is
    /// killed restores it again, and a failure leaves the files of another machine in use.
    ///
    /// # Errors
    /// Fails if an object is missing or was changed, if the key of the server is another one than that of the copy, if
    /// another server has restored the session meanwhile, or if the sandbox cannot be started.
    pub async fn restore(
        &self,
        session: &Session,
        copy: &str,
    ) -> std::result::Result<SessionRecord, RestoreError> {
        let mut copy: SessionCopy =
            serde_json::from_str(copy).context(|| "cannot read the copy of the session")?;
        let agent = self.store.agent(&session.tenant_id, &session.agent_name).await?;
        let agent = agent.ok_or_else(|| Error::new("its agent was deleted"))?;
        let id = session.id;
        let staging = Staging::create(&self.data_dir)?;
        let policy = self.decrypt_policy(session, &copy).await?;
        // A caller that changes the agent waits for the lock of the session, which is held here.
        let agent_lock = self.agent_locks.try_read((agent.tenant_id.clone(), agent.name.clone()));
        let folder = match &agent_lock {
            Some(_) if !copy.has_own_folder => self.usable_folder(&agent).await?,
            _ => None,
        };
        let needs_folder = folder.is_none();
        let downloaded = timeout(DOWNLOAD_TIMEOUT, self.download(&copy, needs_folder, &staging)).await;
        let downloaded = downloaded.context(|| "the download takes too long").and_then(|done| done);
        downloaded.map_err(|error| RestoreError::of_store(format_args!("session {id}"), &error))?;
        copy.next_event = copy.next_event(session.recorded, self.store.last_message(session.id).await?);

        let generation = Uuid::new_v4().to_string();
        write_generation(&self.data_dir, id, &generation).await?;
        self.remove_files(id).await?;
        let started = self.start_restored(session, &copy, &generation, folder, policy, &staging).await;
        if started.is_err()
            && let Err(error) = self.remove_files(id).await
        {
            warn!("session {id}: cannot remove what its restore has written: {error}");
        }
        let record = started?;
        info!("session {}: restored from the snapshot store", id);
        Ok(record)
    }

    /// Starts the sandbox of a session, and replaces the generation of its row. Its folder is `folder`, or that of the copy.
    async fn start_restored(
        &self,
        session: &Session,
        copy: &SessionCopy,
        generation: &str,
        folder: Option<PathBuf>,
        policy: Option<SessionPolicy>,
        staging: &Staging,
    ) -> Result<SessionRecord> {
        let id = session.id;
        let folder = match folder {
            Some(folder) => RestoredFolder::OfAgent(folder),
            None => RestoredFolder::Archive(staging.file("folder.tar.gz")),
        };
        let files = write_files(session_directory(&self.data_dir, id), folder, policy).await?;
        if !copy.allowed_hosts.is_empty() {
            let added = add_allowed_hosts(&self.data_dir, id, &copy.allowed_hosts).await;
            added.context(|| "cannot store the allowed hosts of the session")?;
        }
        let (snapshot, events) = (staging.file("snapshot"), staging.file("events"));
        let origin = SessionOrigin { snapshot: &snapshot, events: Some((&events, copy.next_event)) };
        let record = self.program.create(id, &files.folder, files.policy.as_deref(), Some(origin)).await?;
        let text = serde_json::to_string(copy).context(|| "cannot encode the copy")?;
        match self.store.set_restored(session, generation, &text).await? {
            true => Ok(record),
            false => Err(Error::new("another server has changed it")),
        }
    }

    /// Ends the session in saggar, and removes all files of it on this machine.
    async fn remove_files(&self, id: Uuid) -> Result<()> {
        if self.program.find_session(id).await?.is_some() {
            self.program.end(id, true).await?;
        }
        remove_session_directory(&self.data_dir, id).await;
        Ok(())
    }

    async fn decrypt_policy(&self, session: &Session, copy: &SessionCopy) -> Result<Option<SessionPolicy>> {
        let Some(sealed) = copy.policy.clone() else { return Ok(None) };
        let (cipher, owner) = (self.cipher.clone(), session.id.to_string());
        let opened = spawn_blocking(move || cipher.open(&owner, &sealed.into())).await;
        let opened = opened.context(|| "cannot decrypt its variables")?;
        let opened = opened.map_err(|_| {
            Error::new(
                "cannot decrypt its variables: set the ASH_CREDENTIAL_KEY of the server that stored them",
            )
        })?;
        SessionPolicy::parse_secret_text(&opened).map(Some)
    }

    async fn download(&self, copy: &SessionCopy, needs_folder: bool, staging: &Staging) -> Result<()> {
        self.objects.download(&copy.snapshot, &staging.file("snapshot")).await?;
        self.objects.download(&copy.events, &staging.file("events.gz")).await?;
        if needs_folder {
            self.objects.download(&copy.folder, &staging.file("folder.tar.gz")).await?;
        }
        let (compressed, events) = (staging.file("events.gz"), staging.file("events"));
        let decompressed = spawn_blocking(move || decompress(&compressed, &events)).await;
        decompressed.context(|| "cannot decompress events")?.context(|| "cannot decompress events")
    }
}

/// The paths to pass to `saggar session create`.
struct RestoredFiles {
    folder: PathBuf,
    policy: Option<PathBuf>,
}

/// The folder of a restored session.
enum RestoredFolder {
    OfAgent(PathBuf),
    /// That of the session alone.
    Archive(PathBuf),
}

/// Writes the files of a session that the server has, besides those of saggar.
async fn write_files(
    directory: PathBuf,
    folder: RestoredFolder,
    policy: Option<SessionPolicy>,
) -> Result<RestoredFiles> {
    let context = || "cannot write the files of the session";
    let written = spawn_blocking(move || {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let folder = match folder {
            RestoredFolder::OfAgent(folder) => folder,
            RestoredFolder::Archive(archive) => {
                let folder = own_folder(&directory);
                unpack_folder(&archive, &folder)?;
                folder
            }
        };
        let policy = policy.unwrap_or_default().write(&directory)?;
        Ok::<_, io::Error>(RestoredFiles { folder, policy })
    });
    written.await.context(context)?.context(context)
}
