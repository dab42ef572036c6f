//! The network: what of it there is, and every rule with the layer that says it.

use super::report::Valued;
use crate::cmd::sockets;
use crate::spec::Network as Mode;
use crate::spec::policy::show::Row;
use crate::spec::policy::{Effective, Setting};
use crate::text::line;
use serde::Serialize;
use std::fmt::{self, Formatter};

/// What of the network there is.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Network {
    #[serde(flatten)]
    pub(super) mode: Valued,
    /// The rules, where the network goes by them, and what there is beside them: published ports, sockets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rules: Vec<Row>,
    /// What of that is a way out of the sandbox.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

impl Network {
    /// The section; `mode` is what the sandbox gets.
    pub(super) fn of(policy: &Effective, mode: &Mode) -> Network {
        let Setting { value, layer } = &policy.network;
        let counts = |row: &Row| match row.key {
            "network.mode" => false,
            "network.publish" | "network.sockets" => true,
            _ => matches!(mode, Mode::Policy(_)),
        };
        Network {
            mode: Valued { value: value.to_string(), layer: layer.to_string(), what: what(mode) },
            rules: super::report::rows(policy, "network.").into_iter().filter(counts).collect(),
            warnings: sockets::ways_out(policy).iter().map(ToString::to_string).collect(),
        }
    }
}

/// What a network is, in words.
pub(super) fn what(mode: &Mode) -> &'static str {
    match mode {
        Mode::None => {
            "a network namespace of its own with nothing but loopback: no host, no name can be reached"
        }
        Mode::Policy(_) => {
            "a network namespace of its own with nothing but loopback: saggar relays TCP to the hosts and ports that \
             are allowed, answers DNS for their names, and refuses all else"
        }
        Mode::Narrow(narrow) if narrow.ports.is_empty() => {
            "the network of the host for want of a namespace, and a filter that refuses internet sockets"
        }
        Mode::Narrow(_) => {
            "the network of the host for want of a namespace: landlock and a filter let TCP to the ports of what is \
             allowed through, at any host, and DNS over TCP; nothing listens"
        }
        Mode::Host => {
            "the network of the host: every service that this machine reaches, and its own on loopback"
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Valued { value, layer, what } = &self.mode;
        writeln!(f, "\nnetwork\n  {value} ({layer}): {what}")?;
        let name = |row: &Row| row.key.trim_start_matches("network.");
        let width = self.rules.iter().map(|row| name(row).len()).max().unwrap_or_default();
        for row in &self.rules {
            writeln!(f, "  {:<width$}  {} ({})", name(row), line(&row.value), row.layer)?;
        }
        for warning in &self.warnings {
            writeln!(f, "  WARNING: {}", line(warning))?;
        }
        Ok(())
    }
}
