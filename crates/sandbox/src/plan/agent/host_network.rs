//! Restricts the host's network, as a mitigation where no network namespace is available and the policy prefers to
//! start without one.
//!
//! A network namespace starts as an empty network. Without one, the network is the host's, and each way into it is
//! closed: Landlock allows TCP connections to some ports and denies bind, and filters deny what Landlock does not
//! control ([`HostNetworkFilter`]). Neither sees the host of a connection, so only the ports of a rule are enforced.

use super::DegradedProtection;
use super::landlock::{SCOPES_ABI, TCP_ABI};
use crate::spec::{NetworkSpec, RestrictedHostNetwork, SandboxSpec};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::seccomp::HostNetworkFilter;

/// Returns the filters that deny the rest of the network, on a kernel with this Landlock ABI.
pub(super) fn filters(narrow: &RestrictedHostNetwork, abi: u32) -> impl Iterator<Item = HostNetworkFilter> {
    let internet = if narrow.ports.is_empty() { HostNetworkFilter::Offline } else { HostNetworkFilter::Tcp };
    [internet].into_iter().chain((abi < SCOPES_ABI).then_some(HostNetworkFilter::Pairs))
}

/// Returns the degraded protection of a sandbox that lacks the network namespace of its policy.
///
/// # Errors
/// [`Code::Unsupported`] for what this mitigation cannot provide: host rules without a Landlock that controls ports,
/// unix sockets without Landlock scopes for abstract names, and a program that listens, together with host rules.
pub(super) fn check(spec: &SandboxSpec, abi: u32) -> Result<Option<DegradedProtection>> {
    let NetworkSpec::RestrictedHost(narrow) = &spec.network else { return Ok(None) };
    let why = format!("no network namespace is available ({})", narrow.reason);
    let refuse = |lack: String, hint: &str| {
        Err(Error::new(Code::Unsupported, format!("narrow the network of the host: {why}, and {lack}"))
            .hint(format!("{hint}, or have the namespace: see saggar doctor")))
    };
    if !narrow.ports.is_empty() && abi < TCP_ABI {
        let lack = format!("landlock looks at ports since ABI {TCP_ABI} (Linux 6.7), which is {abi} here");
        return refuse(lack, "allow no hosts");
    }
    if abi < SCOPES_ABI && (narrow.unix_sockets || narrow.unix_listeners) {
        let lack = format!(
            "without scopes (landlock ABI {SCOPES_ABI}, Linux 6.12; {abi} here) programs get no unix sockets"
        );
        return refuse(lack, "leave out the model API, the sockets and the adapter bridge");
    }
    if !narrow.ports.is_empty() && narrow.unix_listeners {
        let lack = "programs cannot listen then, as an agent of the adapter bridge does".to_owned();
        return refuse(lack, "allow no hosts");
    }
    let instead = match narrow.ports.as_slice() {
        [] => "a filter refuses internet sockets instead".to_owned(),
        ports => format!(
            "TCP to {} of any host is open instead, this machine among them, and nothing listens",
            port_list(ports)
        ),
    };
    let pairs = if abi < SCOPES_ABI { "; unix sockets come in pairs only" } else { "" };
    Ok(Some(DegradedProtection { name: "network".into(), reason: format!("{why}: {instead}{pairs}") }))
}

fn port_list(ports: &[u16]) -> String {
    let numbers: Vec<_> = ports.iter().map(u16::to_string).collect();
    let word = if numbers.len() == 1 { "port" } else { "ports" };
    format!("{word} {}", numbers.join(", "))
}
