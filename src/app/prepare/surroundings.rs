//! What a sandbox has in place of something that is not to be had where saggar runs.

use super::LaunchRequest;
use crate::host::{network_namespace, proc_obstacle};
use crate::spec::agent::{NetworkFallback, OuterContainer};
use crate::spec::policy::{AdapterKind, EffectivePolicy, NetworkMode, SandboxProfile};
use crate::spec::{Protection, ProtectionStrength};

/// What a sandbox of the profile `container` has of the container.
pub(super) fn outer_container(policy: &EffectivePolicy) -> Option<OuterContainer> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (policy.profile.value == SandboxProfile::Container).then(|| {
        let name =
            nix::sys::utsname::uname().ok().and_then(|names| names.nodename().to_str().map(str::to_owned));
        OuterContainer {
            shows_proc: proc_obstacle::refuses_new_proc(),
            host_name: name.filter(|name| name.bytes().all(is_name)).unwrap_or_default(),
        }
    })
}

/// Where no network namespace is to be had and the policy goes on all the same, what there is instead.
pub(super) fn without_network(policy: &EffectivePolicy, request: &LaunchRequest) -> Option<NetworkFallback> {
    let wants = policy.network.value != NetworkMode::Host;
    let is_preferred = policy.strength(Protection::Network) == ProtectionStrength::Prefer;
    let why = (wants && is_preferred).then(network_namespace::network_namespace_obstacle).flatten()?;
    Some(NetworkFallback {
        reason: why,
        resolv_conf: std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        unix_listeners: request.agent_folder.is_some()
            && policy.adapter.as_ref().is_some_and(|adapter| adapter.value == AdapterKind::Bridge),
    })
}
