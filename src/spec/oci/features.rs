//! What `features` prints (features.md): the tables that the parser itself looks its words up in.

use super::process::capabilities;
use super::{hooks, mount, namespace, resources, seccomp, version};
use serde::Serialize;
use serde_json::{Value, json};

/// The structure that `features` prints, whatever the host has. `version` and `commit` are saggar's.
pub fn features(version: &str, commit: Option<&str>) -> Value {
    let mut annotations = json!({ "org.saggar.version": version });
    if let Some(commit) = commit {
        annotations["org.saggar.commit"] = commit.into();
    }
    json!({
        "ociVersionMin": version::OLDEST,
        "ociVersionMax": version::NEWEST,
        "hooks": hooks::NAMES,
        "mountOptions": words(&mount::options::OPTIONS.map(|(name, _)| name)),
        "linux": linux(),
        "annotations": annotations,
        "potentiallyUnsafeConfigAnnotations": ["org.saggar."],
    })
}

fn linux() -> Value {
    json!({
        "namespaces": words(&namespace::TYPES.map(|(name, _)| name)),
        "capabilities": capabilities::names(),
        "cgroup": { "v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": true },
        "seccomp": {
            "enabled": true,
            "actions": words(&seccomp::ACTIONS),
            "operators": words(&seccomp::OPERATORS),
            "archs": words(&seccomp::ARCHITECTURES),
            "knownFlags": words(&seccomp::FLAGS),
            "supportedFlags": words(&seccomp::FLAGS),
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
