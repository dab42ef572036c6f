//! What was done for each host, counted.

use super::refusals::{Kind, Refusal};
use crate::spec::policy::hosts::Destination;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Hosts that are counted apart; the rest are counted together.
const HOSTS: usize = 256;

/// What was done for one port of one host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Connections that stood, those that stand among them.
    pub connections: u64,
    /// Connections and questions that the policy refused, or that made no sense.
    pub refused: u64,
    /// Connections whose host was not to be had.
    pub unreachable: u64,
    /// Bytes that programs sent to it.
    pub sent: u64,
    /// Bytes that it sent to programs.
    pub received: u64,
}

/// One row of the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// A name or an address; nothing for all that are not counted apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port; a question for a name has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What was done.
    #[serde(flatten)]
    pub count: Count,
}

/// Of all hosts.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    hosts: BTreeMap<(String, Option<u16>), Count>,
    others: Count,
}

impl Counters {
    /// A connection stands.
    pub(super) fn stands(&mut self, to: &Destination) {
        self.of(to.host.to_string(), Some(to.port)).connections += 1;
    }

    /// So many bytes went to a host, and came from it.
    pub(super) fn moved(&mut self, to: &Destination, (sent, received): (u64, u64)) {
        let count = self.of(to.host.to_string(), Some(to.port));
        count.sent += sent;
        count.received += received;
    }

    /// Something was refused, or not reached.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        let host = match (&refusal.name, refusal.address) {
            (Some(name), _) => name.clone(),
            (None, Some(address)) => address.to_string(),
            (None, None) => return,
        };
        let count = self.of(host, refusal.port);
        match refusal.kind {
            Kind::Unreachable => count.unreachable += 1,
            Kind::Policy | Kind::Malformed | Kind::Limit => count.refused += 1,
        }
    }

    /// All of it, in order.
    pub(super) fn rows(&self) -> Vec<Counted> {
        let hosts = self.hosts.iter().map(|((host, port), count)| Counted {
            host: Some(host.clone()),
            port: *port,
            count: *count,
        });
        let others = Some(self.others).filter(|others| *others != Count::default());
        hosts.chain(others.map(|count| Counted { host: None, port: None, count })).collect()
    }

    fn of(&mut self, host: String, port: Option<u16>) -> &mut Count {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if self.hosts.len() >= HOSTS && !self.hosts.contains_key(&(host.clone(), port)) {
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
        let mut counters = Counters::default();
        let refused = |name: &str, kind| Refusal {
            kind,
            name: Some(name.to_owned()),
            port: Some(443),
            ..Refusal::default()
        };
        let to: Destination = "a.example:443".parse().unwrap();
        counters.stands(&to);
        counters.moved(&to, (3, 4));
        counters.moved(&to, (1, 1));
        counters.refused(&refused("a.example", Kind::Policy));
        counters.refused(&refused("a.example", Kind::Unreachable));
        let count = Count { connections: 1, refused: 1, unreachable: 1, sent: 4, received: 5 };
        let row = Counted { host: Some("a.example".into()), port: Some(443), count };
        assert_eq!(counters.rows(), std::slice::from_ref(&row));
        for number in 0..1000 {
            counters.refused(&refused(&format!("{number}.example"), Kind::Policy));
        }
        let rows = counters.rows();
        assert_eq!(rows.len(), HOSTS + 1);
        assert!(rows.contains(&row));
        let (others, _) = rows.split_last().unwrap();
        assert_eq!((&others.host, others.count.refused), (&None, 1001 - HOSTS as u64));
    }

    #[test]
    fn an_address_is_one_host_however_it_is_written() {
        let mut counters = Counters::default();
        counters.stands(&"[2001:db8::1]:443".parse().unwrap());
        let address = "2001:db8::1".parse().ok();
        counters.refused(&Refusal { address, port: Some(443), ..Refusal::default() });
        let rows = counters.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].host.as_deref(), Some("2001:db8::1"));
    }
}
