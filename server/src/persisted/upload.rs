//! Copies of sessions into the snapshot store: the objects first, then the row, then the removal of the former objects. A
//! server that is killed in between leaves the former copy in use.

use super::Persisted;
use super::change_queue::CopyTarget;
use super::copy::SessionCopy;
use super::removals::Upload;
use super::staging::Staging;
use crate::allowed_hosts::read_allowed_hosts;
use crate::error::{Context, Error, Result};
use crate::folder_archive::{compress_lines, pack_folder};
use crate::running::RunningSession;
use crate::saggar::{CONTROL_TIMEOUT, call_control};
use crate::session_directory::{is_here, own_folder, session_directory};
use crate::session_policy::SessionPolicy;
use crate::store::{NewCopy, Session, Status};
use object_store::path::Path as Key;
use ring::digest::{Context as Hasher, SHA256};
use serde::Deserialize;
use serde_json::json;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use tokio::task::spawn_blocking;
use tracing::{debug, info, warn};
use uuid::Uuid;

/// The ends of the keys of a copy.
const SNAPSHOT: &str = "snapshot.tar.zst";
const EVENTS: &str = "events.gz";
pub(super) const FOLDER: &str = "folder.tar.gz";

/// The result of an attempt to copy a session or an agent.
pub(super) enum CopyOutcome {
    Copied,
    /// The copy in the store has the same content.
    Unchanged,
    /// It was deleted, or this machine does not have it.
    NotHere,
    /// A turn runs.
    DuringTurn,
}

/// The files of a copy before their upload.
struct CopiedFiles {
    staging: Staging,
    session: Session,
    previous: Option<SessionCopy>,
    /// `None` if the folder of the former copy is still that of the session.
    folder: Option<PathBuf>,
    has_own_folder: bool,
    policy: Option<String>,
    allowed_hosts: Vec<String>,
    last_message: i64,
    is_idle: bool,
}

/// What a copy is made of.
enum Collected {
    Files(Box<CopiedFiles>),
    Nothing(CopyOutcome),
}

impl Persisted {
    /// Copies what changes until the queue is closed.
    pub(super) async fn work(self) {
        while let Some(attempt) = self.changes.take().await {
            let copied = match &attempt.target {
                CopyTarget::Session { tenant, id } => {
                    self.copy_session(tenant, *id, attempt.is_overdue()).await
                }
                CopyTarget::Agent { tenant, name } => self.copy_agent(tenant, name).await,
                CopyTarget::Removals => self.remove_objects().await,
            };
            match copied {
                Ok(CopyOutcome::DuringTurn) => self.changes.put_off(attempt),
                Ok(outcome) => {
                    if attempt.failures > 0 {
                        info!("{}: its copy is stored again", attempt.target);
                    }
                    let is_copied = matches!(outcome, CopyOutcome::Copied);
                    let counted = if is_copied { &self.counts.copied } else { &self.counts.unchanged };
                    counted.fetch_add(1, Ordering::Relaxed);
                    self.changes.finish(&attempt);
                }
                Err(error) => {
                    self.counts.failed.fetch_add(1, Ordering::Relaxed);
                    if attempt.failures == 0 {
                        warn!("{}: cannot store its copy: {error}; retrying", attempt.target);
                    } else {
                        debug!("{}: cannot store its copy: {error}; retrying", attempt.target);
                    }
                    self.changes.retry(attempt);
                }
            }
        }
    }

    /// Copies a session. While a turn runs, only if the copy is overdue, or the server exits.
    async fn copy_session(&self, tenant: &str, id: Uuid, is_overdue: bool) -> Result<CopyOutcome> {
        let files = match self.collect(tenant, id, is_overdue).await? {
            Collected::Files(files) => *files,
            Collected::Nothing(outcome) => return Ok(outcome),
        };
        let last_event = compress_events(&files.staging).await?;
        let generation = files.session.generation.clone();
        let changes = files.session.changes;
        if let Some(previous) = &files.previous
            && files.folder.is_none()
            && !(previous.policy.is_some() && files.session.status == Status::Ended)
            && previous.allowed_hosts == files.allowed_hosts
            && (previous.is_idle, previous.last_message) == (files.is_idle, files.last_message)
            && previous.snapshot.sha256 == hash(files.staging.file("snapshot")).await?
            && previous.events.sha256 == hash(files.staging.file("events.gz")).await?
        {
            self.store.set_copied(id, &generation, changes).await?;
            return Ok(CopyOutcome::Unchanged);
        }
        if let Some(previous) = &files.previous
            && previous.last_event > last_event
        {
            warn!(
                "session {id}: its copy ends with event {}, and the session here with event {last_event}: the copy stays",
                previous.last_event
            );
            return Ok(CopyOutcome::NotHere);
        }
        let previous = files.previous.clone();
        let upload = self.begin_upload(session_prefix(tenant, id), &[SNAPSHOT, EVENTS, FOLDER]).await?;
        let stored = async {
            let copy = self.upload_files(files, &upload, last_event).await?;
            let text = serde_json::to_string(&copy).context(|| "cannot encode the copy")?;
            let former = previous.iter().flat_map(SessionCopy::keys);
            let replaced: Vec<&str> = former.filter(|key| !copy.keys().contains(key)).collect();
            let replaced = json!(replaced).to_string();
            let new = NewCopy { copy: &text, changes, upload: upload.id, replaced: &replaced };
            self.store.set_copy(id, &generation, &new).await
        };
        // If it was not stored, the session was deleted, or another server has restored it and uses the former copy.
        self.end_upload(&upload, stored.await).await
    }

    /// Writes the files of a copy to a staging directory, while no client changes the state of the session.
    async fn collect(&self, tenant: &str, id: Uuid, is_overdue: bool) -> Result<Collected> {
        let nothing = |outcome| Ok(Collected::Nothing(outcome));
        let Some(session) = self.store.session(tenant, id).await? else {
            return nothing(CopyOutcome::NotHere);
        };
        // The first copy can be that of the folder of the agent. The lock of an agent is taken before those of its sessions.
        let _agent_lock = match session.copy {
            None => Some(self.agent_locks.read((tenant.to_owned(), session.agent_name)).await),
            Some(_) => None,
        };
        let _session_lock = self.running.lock_session(id).await;
        let Some(session) = self.store.session(tenant, id).await? else {
            return nothing(CopyOutcome::NotHere);
        };
        if !is_here(&self.data_dir, &session).await? {
            if self.running.get(id).is_some() {
                self.running.end_obsolete(id).await;
            }
            self.forget_variables(&session).await?;
            return nothing(CopyOutcome::NotHere);
        }
        if self.program.find_session(id).await?.is_none() {
            return nothing(CopyOutcome::NotHere);
        }
        let running = self.running.get(id);
        if session.status == Status::Active
            && running.as_ref().is_some_and(|running| running.runs_turn())
            && !is_overdue
            && !self.changes.is_closed()
        {
            return nothing(CopyOutcome::DuringTurn);
        }
        let previous: Option<SessionCopy> =
            session.copy.as_deref().and_then(|copy| serde_json::from_str(copy).ok());
        let is_idle = match &running {
            Some(running) => is_idle(running).await,
            None => true,
        };
        let last_message = self.store.last_message(id).await?;
        let staging = Staging::create(&self.data_dir)?;
        self.program.save_snapshot(id, &staging.file("snapshot")).await?;
        // After the snapshot: no event of it is missing.
        self.program.save_events(id, &staging.file("events")).await?;
        let directory = session_directory(&self.data_dir, id);
        let own = own_folder(&directory);
        // Both are gone after the session has ended.
        let has_directory = directory.exists();
        let has_own_folder = if has_directory {
            own.exists()
        } else {
            previous.as_ref().is_some_and(|copy| copy.has_own_folder)
        };
        let folder = if has_own_folder && has_directory {
            Some(own)
        } else if previous.is_some() {
            None
        } else {
            let agent = self.store.agent(&session.tenant_id, &session.agent_name).await?;
            let agent = agent.ok_or_else(|| Error::new("its agent was deleted"))?;
            let folder = self.usable_folder(&agent).await?;
            Some(folder.ok_or_else(|| Error::new("the folder of its agent is missing"))?)
        };
        let policy = SessionPolicy::read(&directory)
            .and_then(|policy| policy.map(|policy| policy.to_secret_text()).transpose())
            .context(|| "cannot read the policy of the session")?;
        let allowed_hosts = read_allowed_hosts(&self.data_dir, id).await;
        let allowed_hosts = allowed_hosts.context(|| "cannot read the allowed hosts of the session")?;
        let folder = match folder {
            Some(folder) => Some(pack(&staging, folder).await?),
            None => None,
        };
        // An own folder changes only when changes are applied to it.
        let folder = match (folder, &previous) {
            (Some(packed), Some(previous)) => {
                let is_same = hash(packed.clone()).await? == previous.folder.sha256;
                (!is_same).then_some(packed)
            }
            (folder, _) => folder,
        };
        Ok(Collected::Files(Box::new(CopiedFiles {
            staging,
            session,
            previous,
            folder,
            has_own_folder,
            policy,
            allowed_hosts,
            last_message,
            is_idle,
        })))
    }

    /// Removes the variables, which can be secrets, from the copy of a session that ended and whose files another machine has.
    async fn forget_variables(&self, session: &Session) -> Result<()> {
        let copy = session.copy.as_deref().and_then(|copy| serde_json::from_str::<SessionCopy>(copy).ok());
        let Some(copy) = copy.filter(|copy| copy.policy.is_some() && session.status == Status::Ended) else {
            return Ok(());
        };
        let copy = SessionCopy { policy: None, ..copy };
        let text = serde_json::to_string(&copy).context(|| "cannot encode the copy")?;
        self.store.replace_copy_text(session, &text).await?;
        Ok(())
    }

    async fn upload_files(
        &self,
        files: CopiedFiles,
        upload: &Upload,
        last_event: u64,
    ) -> Result<SessionCopy> {
        let CopiedFiles { staging, session, previous, .. } = files;
        let next_event = previous.as_ref().map_or(0, |copy| copy.next_event);
        let policy = match files.policy {
            Some(policy) => {
                let (cipher, owner) = (self.cipher.clone(), session.id.to_string());
                let sealed = spawn_blocking(move || cipher.seal(&owner, &policy)).await;
                Some(sealed.context(|| "cannot encrypt the variables of the session")??.into())
            }
            // The variables can be secrets, and no later start needs them.
            None if session.status == Status::Ended => None,
            None => previous.as_ref().and_then(|copy| copy.policy.clone()),
        };
        let folder = match (files.folder, previous) {
            (Some(folder), _) => self.upload_file(upload, FOLDER, &folder).await?,
            (None, Some(previous)) => previous.folder,
            (None, None) => return Err(Error::new("the folder of the session is missing")),
        };
        Ok(SessionCopy {
            snapshot: self.upload_file(upload, SNAPSHOT, &staging.file("snapshot")).await?,
            events: self.upload_file(upload, EVENTS, &staging.file("events.gz")).await?,
            folder,
            has_own_folder: files.has_own_folder,
            policy,
            allowed_hosts: files.allowed_hosts,
            last_event,
            last_message: files.last_message,
            is_idle: files.is_idle,
            next_event,
        })
    }
}

/// Whether the sandbox has no work, and no client is about to give it some.
async fn is_idle(running: &RunningSession) -> bool {
    if running.runs_turn() || running.try_exclude_use().is_none() {
        return false;
    }
    let state = call_control(&running.control, "state", &json!({}), CONTROL_TIMEOUT).await;
    state.is_ok_and(|state| state["session"]["busy"] == false)
}

/// The beginning of the keys of a session. Names are percent-encoded, so that each is one part of the key.
fn session_prefix(tenant: &str, id: Uuid) -> Key {
    Key::from_iter(["sessions", tenant, &id.to_string()])
}

/// Compresses the events and returns the number of the last one; 0 if there are none.
async fn compress_events(staging: &Staging) -> Result<u64> {
    #[derive(Deserialize)]
    struct NumberedEvent {
        seq: u64,
    }
    let (events, compressed) = (staging.file("events"), staging.file("events.gz"));
    let last = spawn_blocking(move || compress_lines(&events, &compressed)).await;
    let last = last.context(|| "cannot compress events")?.context(|| "cannot compress events")?;
    if last.is_empty() {
        return Ok(0);
    }
    let event: NumberedEvent = serde_json::from_slice(&last).context(|| "the last event has no number")?;
    Ok(event.seq)
}

pub(super) async fn pack(staging: &Staging, folder: PathBuf) -> Result<PathBuf> {
    let packed = staging.file("folder.tar.gz");
    let (to, context) = (packed.clone(), || "cannot archive the folder");
    spawn_blocking(move || pack_folder(&folder, &to)).await.context(context)?.context(context)?;
    Ok(packed)
}

/// Returns the SHA-256 of a file in hexadecimal digits.
pub(super) async fn hash(file: PathBuf) -> Result<String> {
    let context = || "cannot read a file of the snapshot";
    let hashed = spawn_blocking(move || {
        let (mut file, mut hasher, mut buffer) =
            (fs::File::open(file)?, Hasher::new(&SHA256), vec![0; 64 << 10]);
        loop {
            let count = file.read(&mut buffer)?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
            hasher.update(bytes);
        }
        Ok::<_, io::Error>(super::objects::hexadecimal(hasher))
    });
    hashed.await.context(context)?.context(context)
}
