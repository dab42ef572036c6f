//! What `features` prints (features.md): the tables that the parser itself looks its words up in.

use super::process::capabilities;
use super::{hooks, mount, namespace, resources, seccomp, version};
use serde::Serialize;
use serde_json::{Value, json};

/// The structure that `features` prints, whatever the host has, but for the flags of seccomp(2): `knows` says of one
/// whether the kernel has it. `version` and `commit` are saggar's.
pub fn features(version: &str, commit: Option<&str>, knows: impl Fn(u64) -> bool) -> Value {
    let mut annotations = json!({ "org.saggar.version": version });
    if let Some(commit) = commit {
        annotations["org.saggar.commit"] = commit.into();
    }
    json!({
        "ociVersionMin": version::OLDEST,
        "ociVersionMax": version::NEWEST,
        "hooks": hooks::NAMES,
        "mountOptions": words(&mount::options::OPTIONS.map(|(name, _)| name)),
        "linux": linux(knows),
        "annotations": annotations,
        "potentiallyUnsafeConfigAnnotations": ["org.saggar."],
    })
}

fn linux(knows: impl Fn(u64) -> bool) -> Value {
    let supported = seccomp::FLAGS.iter().filter(|(_, flag)| knows(*flag)).map(|(name, _)| *name);
    json!({
        "namespaces": words(&namespace::TYPES.map(|(name, _)| name)),
        "capabilities": capabilities::names(),
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
            "modes": words(&resources::MODES.map(|(mode, _)| mode)),
            "flags": words(&resources::NODE_FLAGS.map(|(flag, _)| flag)),
        },
        "mountExtensions": { "idmap": { "enabled": true } },
        "netDevices": { "enabled": true },
    })
}

/// The words of these values, as they stand in a document.
fn words<T: Serialize>(values: &[T]) -> Value {
    values.iter().map(|value| serde_json::to_value(value).unwrap_or_default()).collect()
}
