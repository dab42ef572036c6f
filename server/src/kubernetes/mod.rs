//! Sessions in pods of Kubernetes, one for each session.
//!
//! ```text
//! settings        table `kubernetes` of the settings file
//! yaml            the manifest of the settings as JSON
//! template        the manifest of a session's pod
//! session_secret  the folder and the variables of a session, for its pod alone
//! api_server      a client of the Kubernetes API
//! pod_status      what the API says of a pod
//! relay_client    a client of the relays on the nodes
//! pods            the life of the pods
//! ```
//!
//! The containers run under the OCI runtime saggar, with a bridge (saggar-oci(8), AN AGENT'S BRIDGE). The sockets and the
//! events of the bridges are in a directory of each node, which a relay on the node gives the server access to: a pod needs
//! no port, and its agent has no way to the server. The Kubernetes API is only used to create, find and delete pods.
//!
//! A pod ends with its agent, and its files end with it: a session in a pod can be paused, but not stopped and resumed.

mod api_server;
mod pod_status;
mod pods;
mod relay_client;
mod session_secret;
mod settings;
mod template;
mod yaml;

pub use pods::Pods;
pub use relay_client::RelayedSocket;
pub use settings::{KubernetesSettings, KubernetesTable};
