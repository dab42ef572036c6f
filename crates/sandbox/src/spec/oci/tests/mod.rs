//! Tests that need more than one part of the document; the others are in the file that they test.

mod callers;
mod features;
mod hostile;
mod must;
mod random;

use super::*;
use crate::spec::container::{ContainerMount, ContainerMountKind, Hooks, ProcessSpec};
use serde_json::{Value, json};

/// The smallest document of a container that can be created and started, with a namespace of every type
/// except `user`.
fn smallest() -> Value {
    let kinds = ["pid", "network", "ipc", "uts", "mount", "cgroup", "time"];
    json!({
        "ociVersion": "1.3.0",
        "root": { "path": "rootfs" },
        "process": { "user": { "uid": 0, "gid": 0 }, "args": ["sh"], "cwd": "/" },
        "linux": { "namespaces": kinds.map(|kind| json!({ "type": kind })) },
    })
}

fn parsed(document: &Value) -> Result<BundleConfig> {
    parse_config(document.to_string().into_bytes(), Path::new("/bundle"))
}

/// Parses the smallest document after `change`.
fn changed(change: impl FnOnce(&mut Value)) -> Result<BundleConfig> {
    let mut document = smallest();
    change(&mut document);
    parsed(&document)
}

/// The error for the smallest document after `change`.
fn refused(change: impl FnOnce(&mut Value)) -> String {
    match changed(change) {
        Ok(config) => panic!("taken: {config:?}"),
        Err(error) => error.to_string(),
    }
}

fn process_of(config: BundleConfig) -> ProcessSpec {
    config.container.process.unwrap()
}

/// The only mount of the document.
fn mount(entry: Value) -> Result<ContainerMount> {
    changed(|document| document["mounts"] = json!([entry]))
        .map(|mut config| config.container.mounts.remove(0))
}

/// The warnings about the document with only this mount.
fn mount_warnings(entry: Value) -> Vec<String> {
    let config = changed(|document| document["mounts"] = json!([entry])).unwrap();
    config.warnings.iter().map(ToString::to_string).collect()
}

/// The error for a field of the document's only mount.
fn mount_refused(entry: Value) -> String {
    mount(entry).unwrap_err().to_string()
}
