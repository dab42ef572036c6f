//! Tests that need more than one part of the document; the others stand beside what they test.

mod callers;
mod features;
mod hostile;
mod must;
mod random;

use super::*;
use crate::spec::container::{ContainerMount, ContainerMountKind, Hooks, Process};
use serde_json::{Value, json};

/// The smallest document that a container can be made and started of, in a namespace of every kind but `user`.
fn smallest() -> Value {
    let kinds = ["pid", "network", "ipc", "uts", "mount", "cgroup", "time"];
    json!({
        "ociVersion": "1.3.0",
        "root": { "path": "rootfs" },
        "process": { "user": { "uid": 0, "gid": 0 }, "args": ["sh"], "cwd": "/" },
        "linux": { "namespaces": kinds.map(|kind| json!({ "type": kind })) },
    })
}

fn parsed(document: &Value) -> Result<Config> {
    parse(document.to_string().into_bytes(), Path::new("/bundle"))
}

/// The smallest document after `change`.
fn changed(change: impl FnOnce(&mut Value)) -> Result<Config> {
    let mut document = smallest();
    change(&mut document);
    parsed(&document)
}

/// What is said about the smallest document after `change`.
fn refused(change: impl FnOnce(&mut Value)) -> String {
    match changed(change) {
        Ok(config) => panic!("taken: {config:?}"),
        Err(error) => error.to_string(),
    }
}

fn process_of(config: Config) -> Process {
    config.container.process.unwrap()
}

/// The document's only mount.
fn mount(entry: Value) -> Result<ContainerMount> {
    changed(|document| document["mounts"] = json!([entry]))
        .map(|mut config| config.container.mounts.remove(0))
}

/// What is warned of in the document with this mount alone.
fn mount_warnings(entry: Value) -> Vec<String> {
    let config = changed(|document| document["mounts"] = json!([entry])).unwrap();
    config.warnings.iter().map(ToString::to_string).collect()
}

/// The error of a field of the document's only mount.
fn mount_refused(entry: Value) -> String {
    mount(entry).unwrap_err().to_string()
}
