//! The output of `features` (features.md), from the tables that the parser uses.

use super::lower::KEEP_GROUPS;
use super::process::capabilities;
use super::{hooks, mount, namespace, resources, seccomp, version};
use serde::Serialize;
use serde_json::{Value, json};

/// The structure that `features` prints. It does not depend on the host, except for the flags of
/// seccomp(2): `supports_flag` returns whether the kernel supports one. `version` and `commit` are those of
/// saggar.
pub fn features(version: &str, commit: Option<&str>, supports_flag: impl Fn(u64) -> bool) -> Value {
    let mut annotations = json!({ "org.saggar.version": version });
    if let Some(commit) = commit {
        annotations["org.saggar.commit"] = commit.into();
    }
    json!({
        "ociVersionMin": version::OLDEST_OCI_VERSION,
        "ociVersionMax": version::NEWEST_OCI_VERSION,
        "hooks": hooks::HOOK_NAMES,
        "mountOptions": words(&mount::options::OPTIONS.map(|(name, _)| name)),
        "linux": linux(supports_flag),
        "annotations": annotations,
        "potentiallyUnsafeConfigAnnotations": ["org.saggar.", "org.systemd.property.", KEEP_GROUPS],
    })
}

fn linux(supports_flag: impl Fn(u64) -> bool) -> Value {
    let supported = seccomp::FLAGS.iter().filter(|(_, flag)| supports_flag(*flag)).map(|(name, _)| *name);
    json!({
        "namespaces": words(&namespace::NAMESPACE_TYPES.map(|(name, _)| name)),
        "capabilities": capabilities::known_names(),
        "cgroup": { "v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": true },
        "seccomp": {
            "enabled": true,
            "actions": words(&seccomp::ACTIONS),
            "operators": words(&seccomp::OPERATORS),
            "archs": words(&seccomp::ARCHITECTURES),
            "knownFlags": words(&seccomp::FLAGS.map(|(name, _)| name)),
            "supportedFlags": words(&supported.collect::<Vec<_>>()),
        },
        "apparmor": { "enabled": true },
        "selinux": { "enabled": true },
        "intelRdt": { "enabled": true, "schemata": true, "monitoring": true },
        "memoryPolicy": {
            "modes": words(&resources::MEMORY_POLICY_MODES.map(|(mode, _)| mode)),
            "flags": words(&resources::MEMORY_POLICY_FLAGS.map(|(flag, _)| flag)),
        },
        "mountExtensions": { "idmap": { "enabled": true } },
        "netDevices": { "enabled": true },
    })
}

/// The values as spelled in a document.
fn words<T: Serialize>(values: &[T]) -> Value {
    values.iter().map(|value| serde_json::to_value(value).unwrap_or_default()).collect()
}
