//! The network: its mode, and every rule with the layer that sets it.

use super::report::PolicyValue;
use crate::app::sockets;
use crate::spec::NetworkSpec as Mode;
use crate::spec::policy::rows::PolicyRow;
use crate::spec::policy::{EffectivePolicy, Setting};
use crate::text::one_line;
use serde::Serialize;
use std::fmt::{self, Formatter};

/// The network of a sandbox.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct NetworkSection {
    #[serde(flatten)]
    pub(super) mode: PolicyValue,
    /// The rules of a network by policy, and in every mode published ports and sockets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rules: Vec<PolicyRow>,
    /// Settings that give access to the outside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

impl NetworkSection {
    /// Creates the section; `mode` is the effective network of the sandbox.
    pub(super) fn of(policy: &EffectivePolicy, mode: &Mode) -> NetworkSection {
        let Setting { value, layer } = &policy.network;
        let counts = |row: &PolicyRow| match row.key {
            "network.mode" => false,
            "network.publish" | "network.sockets" => true,
            _ => matches!(mode, Mode::Policy(_)),
        };
        NetworkSection {
            mode: PolicyValue {
                value: value.to_string(),
                layer: layer.to_string(),
                what: describe_mode(mode),
            },
            rules: super::report::policy_rows(policy, "network.").into_iter().filter(counts).collect(),
            warnings: sockets::risky_sockets(policy).iter().map(ToString::to_string).collect(),
        }
    }
}

/// Describes a network mode.
pub(super) fn describe_mode(mode: &Mode) -> &'static str {
    match mode {
        Mode::None => {
            "a network namespace of its own with nothing but loopback: no host, no name can be reached"
        }
        Mode::Policy(_) => {
            "a network namespace of its own with nothing but loopback: saggar relays TCP to the hosts and ports that \
             are allowed, answers DNS for their names, and refuses all else"
        }
        Mode::RestrictedHost(narrow) if narrow.ports.is_empty() => {
            "the network of the host for want of a namespace, and a filter that refuses internet sockets"
        }
        Mode::RestrictedHost(_) => {
            "the network of the host, since no namespace is available: landlock and a filter allow TCP to the \
             ports of allowed hosts, at any host, and DNS over TCP; programs cannot listen"
        }
        Mode::Host => {
            "the network of the host: every service that this machine reaches, and its own on loopback"
        }
    }
}

impl fmt::Display for NetworkSection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let PolicyValue { value, layer, what } = &self.mode;
        writeln!(f, "\nnetwork\n  {value} ({layer}): {what}")?;
        let name = |row: &PolicyRow| row.key.trim_start_matches("network.");
        let width = self.rules.iter().map(|row| name(row).len()).max().unwrap_or_default();
        for row in &self.rules {
            writeln!(f, "  {:<width$}  {} ({})", name(row), one_line(&row.value), row.layer)?;
        }
        for warning in &self.warnings {
            writeln!(f, "  WARNING: {}", one_line(warning))?;
        }
        Ok(())
    }
}
