//! Counters of network activity per host.

use super::denials::{DenialKind, NetworkDenial};
use saggar_policy::hosts::Destination;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of separately counted hosts. The rest is counted together.
const MAX_HOSTS: usize = 256;

/// Counters for one port of one host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCounts {
    /// Number of established connections, including open ones.
    pub connections: u64,
    /// Number of connections and DNS questions that were malformed or that the policy denied.
    #[serde(rename = "refused")]
    pub denied: u64,
    /// Number of connections whose host was unreachable.
    pub unreachable: u64,
    /// Bytes sent by programs to the host.
    pub sent: u64,
    /// Bytes received by programs from the host.
    pub received: u64,
}

/// One row of the counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCountsRow {
    /// A name or an address; `None` for all hosts that are not counted separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port; a DNS question has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The counters.
    #[serde(flatten)]
    pub count: HostCounts,
}

/// The counters of all hosts.
#[derive(Debug, Clone, Default)]
pub(super) struct HostCounters {
    hosts: BTreeMap<(String, Option<u16>), HostCounts>,
    others: HostCounts,
}

impl HostCounters {
    /// Counts an established connection.
    pub(super) fn count_connection(&mut self, to: &Destination) {
        self.counts_for(to.host.to_string(), Some(to.port)).connections += 1;
    }

    /// Adds bytes sent to a host and received from it.
    pub(super) fn add_bytes(&mut self, to: &Destination, (sent, received): (u64, u64)) {
        let count = self.counts_for(to.host.to_string(), Some(to.port));
        count.sent += sent;
        count.received += received;
    }

    /// Counts a denied or unreachable connection.
    pub(super) fn count_denial(&mut self, refusal: &NetworkDenial) {
        let host = match (&refusal.name, refusal.address) {
            (Some(name), _) => name.clone(),
            (None, Some(address)) => address.to_string(),
            (None, None) => return,
        };
        let count = self.counts_for(host, refusal.port);
        match refusal.kind {
            DenialKind::Unreachable => count.unreachable += 1,
            DenialKind::Policy | DenialKind::Malformed | DenialKind::Limit => count.denied += 1,
        }
    }

    /// All rows, in order.
    pub(super) fn rows(&self) -> Vec<HostCountsRow> {
        let hosts = self.hosts.iter().map(|((host, port), count)| HostCountsRow {
            host: Some(host.clone()),
            port: *port,
            count: *count,
        });
        let others = Some(self.others).filter(|others| *others != HostCounts::default());
        hosts.chain(others.map(|count| HostCountsRow { host: None, port: None, count })).collect()
    }

    fn counts_for(&mut self, host: String, port: Option<u16>) -> &mut HostCounts {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if self.hosts.len() >= MAX_HOSTS && !self.hosts.contains_key(&(host.clone(), port)) {
            return &mut self.others;
        }
        self.hosts.entry((host, port)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_apart_as_far_as_there_is_room() {
        let mut counters = HostCounters::default();
        let refused = |name: &str, kind| NetworkDenial {
            kind,
            name: Some(name.to_owned()),
            port: Some(443),
            ..NetworkDenial::default()
        };
        let to: Destination = "a.example:443".parse().unwrap();
        counters.count_connection(&to);
        counters.add_bytes(&to, (3, 4));
        counters.add_bytes(&to, (1, 1));
        counters.count_denial(&refused("a.example", DenialKind::Policy));
        counters.count_denial(&refused("a.example", DenialKind::Unreachable));
        let count = HostCounts { connections: 1, denied: 1, unreachable: 1, sent: 4, received: 5 };
        let row = HostCountsRow { host: Some("a.example".into()), port: Some(443), count };
        assert_eq!(counters.rows(), std::slice::from_ref(&row));
        for number in 0..1000 {
            counters.count_denial(&refused(&format!("{number}.example"), DenialKind::Policy));
        }
        let rows = counters.rows();
        assert_eq!(rows.len(), MAX_HOSTS + 1);
        assert!(rows.contains(&row));
        let (others, _) = rows.split_last().unwrap();
        assert_eq!((&others.host, others.count.denied), (&None, 1001 - MAX_HOSTS as u64));
    }

    #[test]
    fn an_address_is_one_host_however_it_is_written() {
        let mut counters = HostCounters::default();
        counters.count_connection(&"[2001:db8::1]:443".parse().unwrap());
        let address = "2001:db8::1".parse().ok();
        counters.count_denial(&NetworkDenial { address, port: Some(443), ..NetworkDenial::default() });
        let rows = counters.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].host.as_deref(), Some("2001:db8::1"));
    }
}
