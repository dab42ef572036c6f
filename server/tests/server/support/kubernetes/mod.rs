//! A stand-in for a cluster of one node: the API server, with TLS, a kubelet that runs the containers of the pods with
//! saggar as an OCI runtime, and the relay of the node.

#[path = "../../../../../tests/support/kubernetes_api.rs"]
mod api;
mod kubelet;
mod relay;
mod tls;

use super::certificate::TestCertificate;
use super::{Server, settings_file};
use api::{ApiState, NAMESPACE, TOKEN};
use kubelet::Kubelet;
use relay::Relay;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::{NamedTempFile, TempDir};

/// A manifest whose agent is the demo of saggar.
pub(crate) const DEMO_POD: &str = "
metadata:
  annotations: {org.saggar.adapter: demo}
spec:
  containers:
    - name: agent
      image: registry.example/agent:1
      command: [/bin/saggar, __demo-agent]
      env: [{name: FROM_MANIFEST, value: yes-it-is}]
";

/// The cluster. Dropping it removes its containers.
pub(crate) struct Cluster {
    address: SocketAddr,
    state: Arc<ApiState>,
    kubelet: Arc<Kubelet>,
    relay: Relay,
    files: TestCertificate,
    directory: TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = TestCertificate::create(directory.path());
        fs::write(directory.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::new(ApiState::with_token()));
        tls::serve(listener, &files, Arc::clone(&state));
        let kubelet = Kubelet::start(directory.path(), Arc::clone(&state));
        let relay = Relay::start(directory.path(), &kubelet.sockets());
        Cluster { address, state, kubelet, relay, files, directory }
    }

    /// The settings of a server whose sessions run in pods of this manifest.
    pub(crate) fn settings(&self, manifest: &str) -> NamedTempFile {
        let path = |name: &str| self.directory.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("pod.yaml"), manifest).unwrap();
        settings_file(&format!(
            "[kubernetes]\npod = {:?}\nnamespace = '{NAMESPACE}'\napi = 'https://{}'\ntoken_file = {:?}\n\
             certificate_authority = {certificate:?}\nstart_timeout = 60\n\
             [kubernetes.relay]\nport = {}\nname = 'localhost'\ncertificate = {certificate:?}\nkey = {:?}\n\
             certificate_authority = {certificate:?}\n",
            path("pod.yaml"),
            self.address,
            path("token"),
            self.relay.port(),
            path("key.pem"),
            certificate = path("cert.pem"),
        ))
    }

    /// A server whose sessions run in pods of this manifest. The file is that of its settings.
    pub(crate) fn server(&self, manifest: &str) -> (Server, NamedTempFile) {
        let settings = self.settings(manifest);
        (Server::start_with(&["--config", settings.path().to_str().unwrap()], &[]), settings)
    }

    /// The directory of the sockets and the events.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.kubelet.sockets()
    }

    /// The pods by name.
    pub(crate) fn pods(&self) -> BTreeMap<String, Value> {
        self.state.objects.lock().unwrap().pods.clone()
    }

    /// The secrets by name.
    pub(crate) fn secrets(&self) -> BTreeMap<String, Value> {
        self.state.objects.lock().unwrap().secrets.clone()
    }

    /// What the relay answers to a client with this certificate, or with none.
    pub(crate) fn ask_relay(&self, identity: Option<&TestCertificate>) -> io::Result<String> {
        tls::ask_relay(self.relay.port(), &self.files.certificate, identity)
    }

    /// The certificate of the relay, the API and the server.
    pub(crate) fn files(&self) -> &TestCertificate {
        &self.files
    }

    /// Ends the relay, or starts it again.
    pub(crate) fn run_relay(&self, runs: bool) {
        self.relay.run(runs);
    }

    /// Lets each request to the API fail with this status and message, or none.
    pub(crate) fn fail(&self, failure: Option<(u16, &str)>) {
        self.state.objects.lock().unwrap().failure =
            failure.map(|(status, message)| (status, message.to_owned()));
    }

    /// Deletes a pod, as an operator does.
    pub(crate) fn delete_pod(&self, name: &str) {
        self.state.delete_pod(name).expect("there is such a pod");
    }

    /// Ends the agent of a pod.
    pub(crate) fn kill_agent(&self, name: &str) {
        self.kubelet.signal(&format!("{name}-agent"), "KILL");
    }

    /// Whether the agent of a pod runs.
    pub(crate) fn runs_agent(&self, name: &str) -> bool {
        self.kubelet.is_running(&format!("{name}-agent"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kubelet.delete_all();
    }
}
