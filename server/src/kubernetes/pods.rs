//! The life of the pods.

use super::api_server::{ApiServer, Resource};
use super::pod_status::PodStatus;
use super::relay_client::{NodeRelay, RelayClient};
use super::session_secret::SessionSecret;
use super::settings::KubernetesSettings;
use super::template::{SERVER_LABEL, SESSION_LABEL, SessionPod};
use crate::error::{Context, Error, Result};
use crate::saggar::{
    BridgeConnection, CONTROL_TIMEOUT, SessionRecord, SessionSocket, SessionState, SocketReader,
    call_connected, call_control,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;
use uuid::Uuid;

/// How often the server looks at a pod that starts or ends: at first, and at most.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// The time that an agent has between SIGTERM and SIGKILL, in seconds.
const GRACE_SECONDS: u64 = 1;
/// How long a pod may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a bridge may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pods of the sessions of this server.
#[derive(Debug, Clone)]
pub struct Pods {
    settings: Arc<KubernetesSettings>,
    api: Arc<ApiServer>,
    relays: RelayClient,
    /// The id of the server's data directory.
    server: String,
}

/// A pod as the API describes it.
struct FoundPod {
    uid: String,
    status: PodStatus,
    /// The address of its node, once it has one.
    node: Option<String>,
}

/// How far the start of a pod is.
enum PodStart {
    /// Its bridge accepts connections.
    Done(SessionRecord),
    /// With the reason, as far as it is known.
    NotYet(Option<String>),
}

impl Pods {
    /// `server` is the id of the data directory.
    ///
    /// # Errors
    /// Fails if the certificates of the API or of the relays cannot be used.
    pub fn new(settings: KubernetesSettings, server: String) -> Result<Self> {
        Ok(Pods {
            api: Arc::new(ApiServer::new(&settings)?),
            relays: RelayClient::new(&settings.relay)?,
            settings: Arc::new(settings),
            server,
        })
    }

    /// Creates a pod, and waits until its agent runs. Its workspace is a copy of `folder`.
    ///
    /// # Errors
    /// Fails if the pod cannot be created, or if its agent does not start in time. Nothing of it remains then, unless the
    /// API does not answer.
    pub async fn create(
        &self,
        id: Uuid,
        folder: &Path,
        variables: &BTreeMap<String, String>,
    ) -> Result<SessionRecord> {
        let name = pod_name(id);
        let secret = SessionSecret::new(folder, variables).await?;
        let pod = self.settings.template.pod_of(&SessionPod {
            name: &name,
            session: &id.to_string(),
            server: &self.server,
            secret: &secret,
        });
        let created = self.api.create(Resource::Pods, &pod).await;
        let started = async {
            let uid = uid_of(&created?)?;
            let labels = json!({ SERVER_LABEL: self.server, SESSION_LABEL: id.to_string() });
            self.api.create(Resource::Secrets, &secret.manifest(&name, &uid, labels)).await?;
            self.wait_until_started(id).await
        };
        let started = started.await;
        // Also a pod whose creation was not answered can exist.
        if started.is_err()
            && let Err(error) = self.end(id, "", true).await
        {
            warn!("session {id}: {error}");
        }
        started
    }

    async fn wait_until_started(&self, id: Uuid) -> Result<SessionRecord> {
        let deadline = Instant::now() + self.settings.start_timeout;
        let mut interval = FIRST_INTERVAL;
        loop {
            let reason = match self.find_pod(id).await {
                Ok(Some(pod)) => match self.connect(id, pod).await? {
                    PodStart::Done(record) => return Ok(record),
                    PodStart::NotYet(reason) => reason,
                },
                Ok(None) => return Err(Error::new("the pod was deleted")),
                // It may answer again.
                Err(error) => Some(error.to_string()),
            };
            if Instant::now() >= deadline {
                let time = self.settings.start_timeout;
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                return Err(Error::new(format!("the agent has not started within {time:?}{reason}")));
            }
            sleep(interval).await;
            interval = (interval * 2).min(MAX_INTERVAL);
        }
    }

    /// Connects to the bridge of a pod that starts.
    ///
    /// # Errors
    /// Fails if the pod has ended.
    async fn connect(&self, id: Uuid, pod: FoundPod) -> Result<PodStart> {
        let reason = match pod.status {
            PodStatus::Ended(why) => return Err(Error::new(why)),
            PodStatus::Starting(reason) => reason,
            PodStatus::Running => None,
        };
        // The kubelet reports the start later.
        let Some(node) = &pod.node else { return Ok(PodStart::NotYet(reason)) };
        let bridge = SessionSocket::Relayed(self.relays.at(node).bridge(&pod_name(id)));
        Ok(match timeout(CONNECT_TIMEOUT, BridgeConnection::connect(&bridge)).await {
            Ok(Ok(_)) => {
                let sandbox = sandbox_name(&pod.uid, node);
                PodStart::Done(self.served(id, sandbox, node, SessionState::Active))
            }
            Ok(Err(error)) => PodStart::NotYet(reason.or_else(|| Some(error.to_string()))),
            Err(_) => PodStart::NotYet(Some("its bridge does not answer".to_owned())),
        })
    }

    /// Lists the sessions of the pods of this server.
    ///
    /// # Errors
    /// Fails if the API does not answer.
    pub async fn list(&self) -> Result<Vec<Uuid>> {
        let pods = self.api.list(Resource::Pods, (SERVER_LABEL, &self.server)).await?;
        let session = |pod: &Value| pod["metadata"]["labels"][SESSION_LABEL].as_str()?.parse().ok();
        Ok(pods.iter().filter_map(session).collect())
    }

    /// Returns a session; `None` if there is neither its pod nor an event of it. `sandbox` is what the database has of its
    /// pod.
    ///
    /// # Errors
    /// Fails if the API or the relay of its node does not answer.
    pub async fn find(&self, id: Uuid, sandbox: &str) -> Result<Option<SessionRecord>> {
        // No other pod has the name. So a session whose agent runs does not need the API.
        if let Some(node) = node_of_sandbox(sandbox)
            && let Ok(Some(state)) = served_state(&self.relays.at(node), id).await
        {
            return Ok(Some(self.served(id, sandbox.to_owned(), node, state)));
        }
        let pod = self.find_pod(id).await?;
        self.record(id, pod, sandbox).await
    }

    async fn record(&self, id: Uuid, pod: Option<FoundPod>, sandbox: &str) -> Result<Option<SessionRecord>> {
        let Some(pod) = pod else {
            let Some(node) = node_of_sandbox(sandbox) else { return Ok(None) };
            return Ok(match self.relays.at(node).has_events(&pod_name(id)).await {
                Ok(true) => Some(not_served(id, sandbox.to_owned(), SessionState::Error)),
                Ok(false) => None,
                // The node is gone, as its pod is, and so are its events. A relay that is being replaced refuses connections.
                Err(error) if is_unreachable(&error) => {
                    warn!("session {id}: its events are lost: {error}");
                    None
                }
                Err(error) => return Err(Error::new(error.to_string())),
            });
        };
        let Some(node) = pod.node else {
            return Ok(Some(not_served(id, pod.uid, SessionState::Starting)));
        };
        let (relay, sandbox) = (self.relays.at(&node), sandbox_name(&pod.uid, &node));
        // The kubelet reports starts and ends later than they happen.
        if let Some(state) = served_state(&relay, id).await? {
            return Ok(Some(self.served(id, sandbox, &node, state)));
        }
        let is_starting = matches!(pod.status, PodStatus::Starting(_))
            // There are some as soon as there is a bridge.
            && !relay.has_events(&pod_name(id)).await.map_err(|error| Error::new(error.to_string()))?;
        let state = if is_starting { SessionState::Starting } else { SessionState::Error };
        Ok(Some(not_served(id, sandbox, state)))
    }

    /// Reads the stored events of a session after this number.
    ///
    /// # Errors
    /// Fails if there are none, or if the relay does not answer.
    pub async fn stored_events(&self, id: Uuid, sandbox: &str, after: u64) -> Result<SocketReader> {
        let node = node_of_sandbox(sandbox);
        let node = node.ok_or_else(|| Error::new("no events of the session are stored"))?;
        let events = self.relays.at(node).events(&pod_name(id), after).await?;
        let none = || Error::new(format!("the node {node} has no events of the session any more"));
        Ok(Box::new(events.ok_or_else(none)?))
    }

    /// Thaws the processes of a session.
    ///
    /// # Errors
    /// Fails if its agent has ended: a pod does not start again.
    pub async fn resume(&self, id: Uuid) -> Result<SessionRecord> {
        let pod = self.find_pod(id).await?;
        if let Some(FoundPod { node: Some(node), .. }) = &pod {
            let relay = self.relays.at(node);
            if served_state(&relay, id).await? == Some(SessionState::Paused) {
                let control = SessionSocket::Relayed(relay.control(&pod_name(id)));
                let thawed = call_control(&control, "resume", &json!({}), CONTROL_TIMEOUT).await;
                thawed.context(|| "cannot thaw the agent")?;
            }
        }
        let why = match &pod {
            Some(FoundPod { status: PodStatus::Ended(why), .. }) => format!(": {why}"),
            _ => String::new(),
        };
        match self.record(id, pod, "").await? {
            Some(record) if record.is_served() => Ok(record),
            _ => Err(Error::new(format!("its pod has ended{why}; create a new session"))),
        }
    }

    /// Deletes the pod of a session, and waits until it is gone. With `remove`, also removes its events; those on a node that
    /// does not answer remain.
    ///
    /// # Errors
    /// Fails if the API does not answer, or if the pod does not end.
    pub async fn end(&self, id: Uuid, sandbox: &str, remove: bool) -> Result<()> {
        let name = pod_name(id);
        let mut node = node_of_sandbox(sandbox).map(str::to_owned);
        let deadline = Instant::now() + END_TIMEOUT;
        let mut interval = FIRST_INTERVAL;
        let mut pod = self.api.delete(Resource::Pods, &name, GRACE_SECONDS).await?;
        while let Some(existing) = pod {
            node = node_of(&existing).or(node);
            if Instant::now() >= deadline {
                return Err(Error::new(format!("pods/{name} has not ended within {END_TIMEOUT:?}")));
            }
            sleep(interval).await;
            interval = (interval * 2).min(MAX_INTERVAL);
            // One that does not answer for a moment is asked again.
            pod = self.api.get(Resource::Pods, &name).await.unwrap_or(Some(existing));
        }
        if let Some(node) = node.filter(|_| remove)
            && let Err(error) = self.relays.at(&node).remove_events(&name).await
        {
            warn!("session {id}: {error}");
        }
        Ok(())
    }

    async fn find_pod(&self, id: Uuid) -> Result<Option<FoundPod>> {
        let pod = self.api.get(Resource::Pods, &pod_name(id)).await?;
        pod.map(|pod| self.parse(&pod)).transpose()
    }

    fn parse(&self, pod: &Value) -> Result<FoundPod> {
        let status = PodStatus::of(pod, self.settings.template.container());
        Ok(FoundPod { uid: uid_of(pod)?, status, node: node_of(pod) })
    }

    fn served(&self, id: Uuid, sandbox: String, node: &str, state: SessionState) -> SessionRecord {
        let (relay, name) = (self.relays.at(node), pod_name(id));
        SessionRecord {
            bridge_socket: Some(SessionSocket::Relayed(relay.bridge(&name))),
            control_socket: Some(SessionSocket::Relayed(relay.control(&name))),
            ..not_served(id, sandbox, state)
        }
    }
}

fn not_served(id: Uuid, sandbox: String, state: SessionState) -> SessionRecord {
    SessionRecord { id: id.to_string(), state, sandbox, bridge_socket: None, control_socket: None }
}

/// The state of a session whose supervisor serves its sockets; `None` if none does.
async fn served_state(relay: &NodeRelay, id: Uuid) -> Result<Option<SessionState>> {
    let connection = match relay.control(&pod_name(id)).connect().await {
        Ok(connection) => connection,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::new(error.to_string())),
    };
    let state = call_connected(connection, "state", &json!({}), CONTROL_TIMEOUT).await;
    match state.context(|| "cannot read the state of the agent")?["session"]["state"].as_str() {
        Some("paused") => Ok(Some(SessionState::Paused)),
        _ => Ok(Some(SessionState::Active)),
    }
}

/// What the database has of a pod: its uid, and the address of its node, on which its events remain.
fn sandbox_name(uid: &str, node: &str) -> String {
    format!("{uid}@{node}")
}

/// The address of the node in a [`sandbox_name`].
fn node_of_sandbox(sandbox: &str) -> Option<&str> {
    sandbox.split_once('@').map(|(_, node)| node)
}

/// The name of the pod of a session, a DNS label, and of its sockets.
fn pod_name(id: Uuid) -> String {
    format!("saggar-{id}")
}

/// Whether nothing has this address any more.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | TimedOut)
}

fn uid_of(pod: &Value) -> Result<String> {
    let uid = pod["metadata"]["uid"].as_str();
    uid.map(str::to_owned).ok_or_else(|| Error::new("the Kubernetes API sent a pod without a uid"))
}

fn node_of(pod: &Value) -> Option<String> {
    pod["status"]["hostIP"].as_str().filter(|address| !address.is_empty()).map(str::to_owned)
}
