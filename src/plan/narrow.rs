//! The host's network, narrowed: what stands for the network wall where no network namespace is to be had and the
//! policy prefers to go on.
//!
//! A namespace is an empty network. Here it is the host's, and each way into it is closed: landlock lets connections
//! over TCP to some ports through and no bind, and filters refuse what landlock does not look at ([`Narrowing`]). Whose
//! port it is nobody sees, so that a rule's host does not count.

use super::Degraded;
use super::landlock::{SCOPES_ABI, TCP_ABI};
use crate::error::{Code, Error, Result};
use crate::spec::{Narrow, Network, SandboxSpec};
use crate::sys::seccomp::Narrowing;

/// The filters that take the rest of the network away, on a kernel with this landlock ABI.
pub(super) fn filters(narrow: &Narrow, abi: u32) -> impl Iterator<Item = Narrowing> {
    let internet = if narrow.ports.is_empty() { Narrowing::Offline } else { Narrowing::Tcp };
    [internet].into_iter().chain((abi < SCOPES_ABI).then_some(Narrowing::Pairs))
}

/// What is given up, where the sandbox has no network namespace of its own against its policy.
///
/// # Errors
/// [`Code::Unsupported`] for what cannot be had in that way: hosts without a landlock that looks at ports, unix sockets
/// without one that keeps abstract names apart, and a program that listens beside hosts.
pub(super) fn check(spec: &SandboxSpec, abi: u32) -> Result<Option<Degraded>> {
    let Network::Narrow(narrow) = &spec.network else { return Ok(None) };
    let why = format!("no network namespace is to be had ({})", narrow.why);
    let refuse = |lack: String, hint: &str| {
        Err(Error::new(Code::Unsupported, format!("narrow the network of the host: {why}, and {lack}"))
            .hint(format!("{hint}, or have the namespace: see saggar doctor")))
    };
    if !narrow.ports.is_empty() && abi < TCP_ABI {
        let lack = format!("landlock looks at ports since ABI {TCP_ABI} (Linux 6.7), which is {abi} here");
        return refuse(lack, "allow no hosts");
    }
    if abi < SCOPES_ABI && (narrow.sockets || narrow.listens) {
        let lack = format!(
            "without scopes (landlock ABI {SCOPES_ABI}, Linux 6.12; {abi} here) programs get no unix sockets"
        );
        return refuse(lack, "leave out the model API, the sockets and the adapter bridge");
    }
    if !narrow.ports.is_empty() && narrow.listens {
        let lack = "programs cannot listen then, as an agent of the adapter bridge does".to_owned();
        return refuse(lack, "allow no hosts");
    }
    let instead = match narrow.ports.as_slice() {
        [] => "a filter refuses internet sockets instead".to_owned(),
        ports => format!(
            "TCP to {} of any host is open instead, this machine among them, and nothing listens",
            listed(ports)
        ),
    };
    let pairs = if abi < SCOPES_ABI { "; unix sockets come in pairs only" } else { "" };
    Ok(Some(Degraded { what: "network".into(), why: format!("{why}: {instead}{pairs}") }))
}

fn listed(ports: &[u16]) -> String {
    let numbers: Vec<_> = ports.iter().map(u16::to_string).collect();
    let word = if numbers.len() == 1 { "port" } else { "ports" };
    format!("{word} {}", numbers.join(", "))
}
