//! Whom a sandbox has reached: its supervisor alone counts that, and says so on its control socket.

use super::table::{aligned, bytes, dash};
use crate::control::caller::Caller;
use crate::egress::io::Counted;
use crate::session::record::Record;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long one supervisor may take to answer: it is one of many rows.
const PATIENCE: Duration = Duration::from_secs(2);

/// What went over the network of a sandbox.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Network {
    /// Connections that stand.
    open: usize,
    /// What was done for each host.
    hosts: Vec<Counted>,
}

/// The control sockets of the caller's sandboxes, by the name of the sandbox.
#[derive(Debug)]
pub(super) struct Hosts(BTreeMap<String, String>);

impl Hosts {
    /// Looks at the caller's sessions; without a place for them there are none.
    pub(super) fn find() -> Self {
        let served = Record::all().unwrap_or_default().into_iter().filter(Record::is_served);
        Hosts(served.filter_map(|record| Some((record.sandbox?, record.control_socket?))).collect())
    }

    /// What its supervisor says; nothing where it goes by no policy, or says nothing in time.
    pub(super) fn of(&self, sandbox: &str) -> Option<Network> {
        #[derive(Deserialize)]
        struct Stats {
            network: Option<Network>,
        }
        let mut control = Caller::connect_for(Path::new(self.0.get(sandbox)?), PATIENCE).ok()?;
        let stats = control.call("stats", &json!({})).ok()?;
        serde_json::from_value::<Stats>(stats).ok()?.network
    }
}

const HEAD: [&str; 6] = ["HOST", "CONNECTIONS", "REFUSED", "UNREACHABLE", "SENT", "RECEIVED"];

impl Network {
    /// Bytes to all hosts, and from them.
    pub(super) fn moved(&self) -> String {
        let sum = |of: fn(&Counted) -> u64| bytes(self.hosts.iter().map(of).sum());
        format!("{} / {}", sum(|host| host.count.sent), sum(|host| host.count.received))
    }

    /// A line for each host, and how many connections stand; nothing where none was asked for.
    pub(super) fn table(&self) -> String {
        if self.hosts.is_empty() {
            return String::new();
        }
        let lines = self.hosts.iter().map(|host| {
            let Counted { count, .. } = host;
            let [connections, refused, unreachable] =
                [count.connections, count.refused, count.unreachable].map(|count| count.to_string());
            [name(host), connections, refused, unreachable, bytes(count.sent), bytes(count.received)]
        });
        let hosts = aligned(std::iter::once(HEAD.map(str::to_owned)).chain(lines));
        let open = match self.open {
            1 => "1 connection stands".to_owned(),
            open => format!("{open} connections stand"),
        };
        format!("\n{hosts}{open}\n")
    }
}

/// As a rule would have it; what is not counted apart is a dash.
fn name(host: &Counted) -> String {
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
        let network: Network = serde_json::from_value(json!({ "open": 1, "hosts": [
            { "host": "2001:db8::1", "port": 443, "connections": 1, "refused": 0, "unreachable": 0, "sent": 2048, "received": 5 },
            { "host": "other.example", "connections": 0, "refused": 12, "unreachable": 0, "sent": 0, "received": 0 },
            { "connections": 3, "refused": 0, "unreachable": 4, "sent": 0, "received": 1 },
        ]})).unwrap();
        assert_eq!(network.moved(), "2.0KiB / 6B");
        insta::assert_snapshot!(network.table(), @r"

        HOST               CONNECTIONS  REFUSED  UNREACHABLE  SENT    RECEIVED
        [2001:db8::1]:443  1            0        0            2.0KiB  5B
        other.example      0            12       0            0B      0B
        -                  3            0        4            0B      1B
        1 connection stands
        ");
        assert_eq!(Network::default().table(), "");
    }
}
