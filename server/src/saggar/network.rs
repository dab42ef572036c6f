//! The network of a running sandbox, on the control socket (saggar-control(7)).

use super::SessionSocket;
use super::control::{CONTROL_TIMEOUT, call_control};
use crate::allowed_hosts::add_once;
use saggar_sys::error::{Code, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// The mode in which there are rules and counts for hosts (saggar-policy(5), `network.mode`).
const MODE_POLICY: &str = "policy";
/// Maximum number of attempts to change rules that other clients of the control socket change at the same time.
const MAX_ATTEMPTS: usize = 5;

/// The network of a session.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = SessionNetwork)]
pub struct NetworkObject {
    /// `none`, `policy` or `host`; null if no sandbox is running.
    #[schema(required)]
    mode: Option<String>,
    /// The hosts that programs have connected to since the sandbox started, in the mode `policy`.
    hosts: Vec<HostTraffic>,
    /// Rules for allowed hosts. There are rules only in the mode `policy`.
    allow: Vec<String>,
    /// Rules for denied hosts, which take precedence.
    deny: Vec<String>,
    /// Rules for hosts that need an answer to a permission request.
    ask: Vec<String>,
    /// Hosts that such an answer has allowed for the session.
    consented: Vec<String>,
}

/// The connections to a port of a host.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(super) struct HostTraffic {
    /// A name or an address; null for the hosts after the first 256, which are counted together.
    #[schema(required)]
    host: Option<String>,
    /// Null for a question to the name service.
    #[schema(required)]
    port: Option<u16>,
    /// Connections that were established.
    connections: u64,
    /// Connections that the rules did not allow.
    refused: u64,
    /// Connections to an allowed host that did not answer.
    unreachable: u64,
    /// Bytes to the host.
    sent: u64,
    /// Bytes from the host.
    received: u64,
}

/// The part of `state` that concerns the network.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkState {
    generation: u64,
    network_mode: String,
    network: Option<RuleLists>,
}

/// The rules in effect.
#[derive(Debug, Default, Deserialize)]
struct RuleLists {
    allow: Vec<String>,
    deny: Vec<String>,
    ask: Vec<String>,
    consented: Vec<String>,
}

/// Returns the network of a sandbox.
///
/// # Errors
/// As [`call_control`].
pub async fn read_network(control: &SessionSocket) -> Result<NetworkObject> {
    let state = read_state(control).await?;
    let hosts = match state.network_mode.as_str() {
        MODE_POLICY => {
            let mut stats = call_control(control, "stats", &json!({}), CONTROL_TIMEOUT).await?;
            parse(stats["network"]["hosts"].take())?
        }
        // There are no counts in other modes.
        _ => Vec::new(),
    };
    let RuleLists { allow, deny, ask, consented } = state.network.unwrap_or_default();
    Ok(NetworkObject { mode: Some(state.network_mode), hosts, allow, deny, ask, consented })
}

/// Adds rules to those for allowed hosts, of which all remain, and returns whether one is new. The rules are in the form in
/// which saggar lists them.
///
/// # Errors
/// [`Code::Invalid`] for an invalid rule; [`Code::Unsupported`] in another mode than `policy`, and if the policy has locked
/// the network; [`Code::State`] if a port is in use; otherwise as [`call_control`].
pub async fn allow_hosts(control: &SessionSocket, rules: &[String]) -> Result<bool> {
    let mut attempts = 1;
    loop {
        let state = read_state(control).await?;
        let mut allow = state.network.unwrap_or_default().allow;
        if !add_once(&mut allow, rules.iter().cloned()) {
            return Ok(false);
        }
        let changes = json!({ "network": { "allow": allow }, "generation": state.generation });
        match call_control(control, "update", &changes, CONTROL_TIMEOUT).await {
            Err(error) if error.code() == Code::State && attempts < MAX_ATTEMPTS => {
                if read_state(control).await?.generation == state.generation {
                    return Err(error);
                }
                attempts += 1;
            }
            updated => return updated.map(|_| true),
        }
    }
}

async fn read_state(control: &SessionSocket) -> Result<NetworkState> {
    parse(call_control(control, "state", &json!({}), CONTROL_TIMEOUT).await?)
}

pub(super) fn parse<T: DeserializeOwned>(value: Value) -> Result<T> {
    let invalid = |error| Error::new(Code::System, format!("saggar sent an invalid state: {error}"));
    serde_json::from_value(value).map_err(invalid)
}
