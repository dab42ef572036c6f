//! The hosts that a sandbox has connected to, from the control socket of its supervisor, which alone counts them.

use super::table::{aligned, bytes, dash};
use crate::control::client::ControlClient;
use crate::egress::io::HostCountsRow;
use crate::session::record::SessionRecord;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Time limit for the reply of one supervisor, which is one of many rows.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Network traffic of a sandbox.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NetworkCounters {
    /// Open connections.
    open: usize,
    /// Counts per host.
    hosts: Vec<HostCountsRow>,
}

/// The control sockets of the caller's sandboxes, by sandbox name.
#[derive(Debug)]
pub(super) struct ControlSockets(BTreeMap<String, String>);

impl ControlSockets {
    /// Reads the caller's sessions; none without a session directory.
    pub(super) fn find() -> Self {
        let served = SessionRecord::list().unwrap_or_default().into_iter().filter(SessionRecord::is_served);
        ControlSockets(served.filter_map(|record| Some((record.sandbox?, record.control_socket?))).collect())
    }

    /// Queries the sandbox's supervisor; `None` if its network is not by policy or the reply is late.
    pub(super) fn query(&self, sandbox: &str) -> Option<NetworkCounters> {
        #[derive(Deserialize)]
        struct ControlStats {
            network: Option<NetworkCounters>,
        }
        let mut control =
            ControlClient::connect_with_timeout(Path::new(self.0.get(sandbox)?), REPLY_TIMEOUT).ok()?;
        let stats = control.call("stats", &json!({})).ok()?;
        serde_json::from_value::<ControlStats>(stats).ok()?.network
    }
}

const HEADER: [&str; 6] = ["HOST", "CONNECTIONS", "REFUSED", "UNREACHABLE", "SENT", "RECEIVED"];

impl NetworkCounters {
    /// Formats the bytes sent to and received from all hosts.
    pub(super) fn transferred(&self) -> String {
        let sum = |of: fn(&HostCountsRow) -> u64| bytes(self.hosts.iter().map(of).sum());
        format!("{} / {}", sum(|host| host.count.sent), sum(|host| host.count.received))
    }

    /// Formats a line per host and the number of open connections; empty without hosts.
    pub(super) fn table(&self) -> String {
        if self.hosts.is_empty() {
            return String::new();
        }
        let lines = self.hosts.iter().map(|host| {
            let HostCountsRow { count, .. } = host;
            let [connections, refused, unreachable] =
                [count.connections, count.denied, count.unreachable].map(|count| count.to_string());
            [name(host), connections, refused, unreachable, bytes(count.sent), bytes(count.received)]
        });
        let hosts = aligned(std::iter::once(HEADER.map(str::to_owned)).chain(lines));
        let open = match self.open {
            1 => "1 connection open".to_owned(),
            open => format!("{open} connections open"),
        };
        format!("\n{hosts}{open}\n")
    }
}

/// Formats a host in the syntax of a rule, or a dash for hosts that are not counted separately.
fn name(host: &HostCountsRow) -> String {
    match (&host.host, host.port) {
        (None, _) => dash(),
        (Some(name), None) => name.clone(),
        (Some(name), Some(port)) if name.contains(':') => format!("[{name}]:{port}"),
        (Some(name), Some(port)) => format!("{name}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_as_rules_have_them() {
        let network: NetworkCounters = serde_json::from_value(json!({ "open": 1, "hosts": [
            { "host": "2001:db8::1", "port": 443, "connections": 1, "refused": 0, "unreachable": 0, "sent": 2048, "received": 5 },
            { "host": "other.example", "connections": 0, "refused": 12, "unreachable": 0, "sent": 0, "received": 0 },
            { "connections": 3, "refused": 0, "unreachable": 4, "sent": 0, "received": 1 },
        ]})).unwrap();
        assert_eq!(network.transferred(), "2.0KiB / 6B");
        insta::assert_snapshot!(network.table(), @r"

        HOST               CONNECTIONS  REFUSED  UNREACHABLE  SENT    RECEIVED
        [2001:db8::1]:443  1            0        0            2.0KiB  5B
        other.example      0            12       0            0B      0B
        -                  3            0        4            0B      1B
        1 connection open
        ");
        assert_eq!(NetworkCounters::default().table(), "");
    }
}
