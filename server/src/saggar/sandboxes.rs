//! The sandboxes of sessions: those of the program `saggar` on this machine, or pods of Kubernetes.

use super::program::{CommandError, Program, SessionOrigin, SessionRecord, StoredEvents};
use crate::error::Error;
use crate::kubernetes::Pods;
use crate::session_policy::SessionPolicy;
use std::path::Path;
use uuid::Uuid;

/// Where sessions run. What the database has of a sandbox ([`SessionRecord::sandbox`]) tells where that of a session was, if
/// it is gone; it is empty if it is not known.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    program: Program,
    pods: Option<Pods>,
}

impl Sandboxes {
    /// Sessions run in these pods; without any, on this machine.
    pub fn new(program: Program, pods: Option<Pods>) -> Self {
        Sandboxes { program, pods }
    }

    /// Whether sessions run in pods, whose files the server does not have. Nothing of them is left when they have ended.
    pub fn are_pods(&self) -> bool {
        self.pods.is_some()
    }

    /// Starts a session, with a copy of `folder` as its workspace, or with the workspace and the conversation of an earlier
    /// one. `policy` is the file in the directory of the session.
    ///
    /// # Errors
    /// Fails if the session cannot be started; nothing of it remains.
    pub async fn create(
        &self,
        id: Uuid,
        folder: &Path,
        policy: Option<&Path>,
        origin: Option<SessionOrigin<'_>>,
    ) -> Result<SessionRecord, CommandError> {
        let Some(pods) = &self.pods else { return self.program.create(id, folder, policy, origin).await };
        if origin.is_some() {
            return Err(CommandError::new("not available for a session in a pod: files of another session"));
        }
        let policy = match policy.and_then(Path::parent) {
            Some(directory) => {
                let policy = SessionPolicy::read(directory);
                policy.map_err(|error| Error::new(error.to_string()))?.unwrap_or_default()
            }
            None => SessionPolicy::default(),
        };
        if let Some(what) = policy.needs_saggar() {
            return Err(CommandError::new(format!("not available for a session in a pod: {what}")));
        }
        Ok(pods.create(id, folder, &policy.variables).await?)
    }

    /// The program `saggar`, for sandboxes of this machine.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Lists the sessions of the pods of this server; none if sessions run on this machine.
    ///
    /// # Errors
    /// Fails if the Kubernetes API does not answer.
    pub async fn pods_of_server(&self) -> Result<Vec<Uuid>, CommandError> {
        match &self.pods {
            Some(pods) => Ok(pods.list().await?),
            None => Ok(Vec::new()),
        }
    }

    /// Returns one session, or `None` if there is neither a sandbox nor an event of it.
    ///
    /// # Errors
    /// Fails if the record cannot be read.
    pub async fn find_session(&self, id: Uuid, sandbox: &str) -> Result<Option<SessionRecord>, CommandError> {
        match &self.pods {
            Some(pods) => Ok(pods.find(id, sandbox).await?),
            None => self.program.find_session(id).await,
        }
    }

    /// Reads the stored events of the bridge of a session after this number. No bridge needs to be running.
    ///
    /// # Errors
    /// Fails if saggar cannot be started, or if the relay of a pod does not answer.
    pub async fn stored_events(
        &self,
        id: Uuid,
        sandbox: &str,
        after: u64,
    ) -> Result<StoredEvents, CommandError> {
        match &self.pods {
            Some(pods) => Ok(StoredEvents::of_relay(pods.stored_events(id, sandbox, after).await?)),
            None => self.program.stored_events(id, after),
        }
    }

    /// Thaws a paused session, or starts it in a new sandbox with its workspace and conversation, which a pod cannot.
    ///
    /// # Errors
    /// Fails if the session cannot be resumed.
    pub async fn resume(&self, id: Uuid) -> Result<SessionRecord, CommandError> {
        match &self.pods {
            Some(pods) => Ok(pods.resume(id).await?),
            None => self.program.resume(id).await,
        }
    }

    /// Ends a session permanently. With `remove`, also removes its files. It is not an error if there is none.
    ///
    /// # Errors
    /// Fails if the session cannot be ended.
    pub async fn end(&self, id: Uuid, sandbox: &str, remove: bool) -> Result<(), CommandError> {
        match &self.pods {
            Some(pods) => Ok(pods.end(id, sandbox, remove).await?),
            None => self.program.end_if_known(id, remove).await,
        }
    }
}
