//! A pod of the server's, as a kubelet runs it.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::pod::{Pod, container};
use crate::callers::Engine;
use crate::callers::cri::messages::{ContainerConfig, Mount, StopContainer, Variable};
use crate::kubernetes_api::{ApiState, decode, variables};
use crate::scenarios::eventually;

/// In seconds, between SIGTERM and SIGKILL.
const GRACE: i64 = 1;

/// A pod whose agent runs.
pub(super) struct SessionPod<'a> {
    api: &'a ApiState,
    name: String,
    pod: Pod<'a>,
    /// The id of the agent's container.
    agent: String,
}

impl<'a> SessionPod<'a> {
    /// Waits for a pod of the API server, and runs its containers: those that come before the agent to their end.
    #[track_caller]
    pub(super) fn run(engine: &'a dyn Engine, api: &'a ApiState) -> Self {
        let (object, secret) = eventually("a pod and its secret", || {
            let objects = api.objects.lock().unwrap();
            let found = objects.pods.values().next().zip(objects.secrets.values().next());
            found.map(|(pod, secret)| (pod.clone(), secret.clone())).ok_or_else(|| format!("{objects:?}"))
        });
        assert_eq!(object["spec"]["runtimeClassName"], engine.cri().handler());
        let annotations: HashMap<String, String> =
            serde_json::from_value(object["metadata"]["annotations"].clone()).unwrap();
        let pod = Pod::with_annotations(engine, annotations);
        for volume in object["spec"]["volumes"].as_array().unwrap() {
            write_volume(&pod, volume, &secret);
        }
        for before in object["spec"]["initContainers"].as_array().unwrap() {
            let status = pod.start(configured(&pod, before, &secret)).wait();
            assert_eq!(status.exit_code, 0, "{before}: {status:?}");
        }
        let container = &object["spec"]["containers"][0];
        let agent = pod.start(configured(&pod, container, &secret)).id;
        let name = text(&object["metadata"]["name"]);
        let running = json!({ "name": container["name"], "state": { "running": {} } });
        api.set_status(&name, json!({ "phase": "Running", "containerStatuses": [running] }));
        SessionPod { api, name, pod, agent }
    }

    /// The name of the pod.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the server deletes the pod, and ends it.
    #[track_caller]
    pub(super) fn end(self) {
        eventually("the deletion of the pod", || {
            let objects = self.api.objects.lock().unwrap();
            let pod = &objects.pods[&self.name];
            if pod["metadata"]["deletionTimestamp"].is_null() { Err(pod.to_string()) } else { Ok(()) }
        });
        self.pod.cri.call(StopContainer { id: self.agent.clone(), timeout: GRACE }).unwrap();
        drop(self.pod);
        self.api.remove_pod(&self.name);
    }
}

/// A container of the manifest in the image of the tests.
fn configured(pod: &Pod<'_>, manifest: &Value, secret: &Value) -> ContainerConfig {
    let words = manifest["command"].as_array().unwrap();
    let command: Vec<String> = words.iter().map(text).collect();
    let mounts = manifest["volumeMounts"].as_array().unwrap();
    let variables = variables(manifest, secret).into_iter();
    ContainerConfig {
        working_dir: manifest["workingDir"].as_str().unwrap_or_default().to_owned(),
        envs: variables.map(|(key, value)| Variable { key, value }).collect(),
        mounts: mounts
            .iter()
            .map(|mount| Mount {
                container_path: text(&mount["mountPath"]),
                host_path: volume(pod, &mount["name"]).to_str().unwrap().to_owned(),
                readonly: mount["readOnly"] == true,
            })
            .collect(),
        ..container(&text(&manifest["name"]), &command, 0)
    }
}

fn write_volume(pod: &Pod<'_>, manifest: &Value, secret: &Value) {
    let directory = volume(pod, &manifest["name"]);
    fs::create_dir(&directory).unwrap();
    for item in manifest["secret"]["items"].as_array().into_iter().flatten() {
        let value = decode(&secret["data"][text(&item["key"])]);
        fs::write(directory.join(text(&item["path"])), value).unwrap();
    }
}

/// The directory of a volume.
fn volume(pod: &Pod<'_>, name: &Value) -> PathBuf {
    pod.directory().join(format!("volume-{}", text(name)))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text")).to_owned()
}
