//! The manifest of a session's pod: that of the settings, and what the server adds.

use super::session_secret::{FOLDER_ARCHIVE, SessionSecret};
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};

/// The names of the volumes that the server adds.
const FOLDER_VOLUME: &str = "saggar-folder";
const WORKSPACE_VOLUME: &str = "saggar-workspace";
/// Where the container that fills the workspace has the folder of the agent.
const FOLDER: &str = "/saggar-folder";
/// The workspace, unless the manifest has a `workingDir`.
const WORKSPACE: &str = "/workspace";

/// The label of the pods of a server, with the id of its data directory.
pub(super) const SERVER_LABEL: &str = "org.saggar/server";
/// The label of a pod, with the id of its session.
pub(super) const SESSION_LABEL: &str = "org.saggar/session";

/// A manifest of a pod whose first container is that of the agent.
#[derive(Debug, Clone)]
pub(super) struct PodTemplate {
    pod: Value,
    /// The name of the agent's container.
    container: String,
}

/// What differs between the pods of sessions.
#[derive(Debug)]
pub(super) struct SessionPod<'a> {
    /// The name of the pod, of its secret, and of its bridge in the directory of sockets.
    pub(super) name: &'a str,
    pub(super) session: &'a str,
    /// The id of the server's data directory.
    pub(super) server: &'a str,
    pub(super) secret: &'a SessionSecret,
}

impl PodTemplate {
    /// Checks a manifest.
    ///
    /// # Errors
    /// Fails if it is no pod, or if a field is missing or cannot be that of a pod with a bridge.
    pub(super) fn new(pod: Value) -> Result<Self> {
        if !pod.is_object() || pod.get("kind").is_some_and(|kind| kind != "Pod") {
            return Err(Error::new("it is no manifest of a pod"));
        }
        let agent = &pod["spec"]["containers"][0];
        let text = |name: &str| {
            let text = agent[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            text.ok_or_else(|| Error::new(format!("spec.containers[0].{name} is missing")))
        };
        let container = text("name")?;
        text("image")?;
        if agent["tty"] == true {
            return Err(Error::new(
                "spec.containers[0].tty is true: the bridge has the streams of the agent",
            ));
        }
        let restart = &pod["spec"]["restartPolicy"];
        if !restart.is_null() && restart != "Never" {
            return Err(Error::new(format!(
                "spec.restartPolicy is {restart}: a session ends with its agent; use Never"
            )));
        }
        let of_server = ["finalizers", "ownerReferences", "generateName"];
        if let Some(name) = of_server.into_iter().find(|name| !pod["metadata"][*name].is_null()) {
            return Err(Error::new(format!("metadata.{name}: the server alone decides when its pods end")));
        }
        let lists = [
            "/spec/volumes",
            "/spec/initContainers",
            "/spec/containers/0/volumeMounts",
            "/spec/containers/0/env",
        ];
        let maps = ["/metadata", "/metadata/labels", "/metadata/annotations"];
        let is_wrong = |path: &str, is_type: fn(&Value) -> bool| {
            pod.pointer(path).is_some_and(|value| !value.is_null() && !is_type(value))
        };
        let wrong = lists.into_iter().find(|path| is_wrong(path, Value::is_array));
        match wrong.or_else(|| maps.into_iter().find(|path| is_wrong(path, Value::is_object))) {
            Some(path) => Err(Error::new(format!("{path} has the wrong type"))),
            None => Ok(PodTemplate { pod, container }),
        }
    }

    /// The name of the agent's container.
    pub(super) fn container(&self) -> &str {
        &self.container
    }

    /// The manifest of a session's pod.
    pub(super) fn pod_of(&self, session: &SessionPod<'_>) -> Value {
        let mut pod = self.pod.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        let metadata = object(&mut pod["metadata"]);
        metadata.insert("name".into(), json!(session.name));
        metadata.remove("namespace");
        let labels = object(metadata.entry("labels").or_insert(Value::Null));
        labels.insert(SERVER_LABEL.into(), json!(session.server));
        labels.insert(SESSION_LABEL.into(), json!(session.session));
        let annotations = object(metadata.entry("annotations").or_insert(Value::Null));
        annotations.insert("org.saggar.bridge".into(), json!(session.name));
        annotations.insert("org.saggar.spool".into(), json!("true"));
        annotations.insert("org.saggar.container".into(), json!(self.container));

        let spec = object(&mut pod["spec"]);
        spec.insert("restartPolicy".into(), json!("Never"));
        for (name, default) in [
            ("runtimeClassName", json!("saggar")),
            // An agent has no business with the API and the services of the cluster, unless the operator says so.
            ("automountServiceAccountToken", json!(false)),
            ("enableServiceLinks", json!(false)),
        ] {
            // Null would be the default of Kubernetes, such as another runtime.
            if spec.get(name).is_none_or(Value::is_null) {
                spec.insert(name.to_owned(), default);
            }
        }
        let items = json!([{ "key": FOLDER_ARCHIVE, "path": FOLDER_ARCHIVE }]);
        let volumes = list(spec.entry("volumes").or_insert(Value::Null));
        volumes
            .push(json!({ "name": FOLDER_VOLUME, "secret": { "secretName": session.name, "items": items } }));
        // The operator's own can have a size limit.
        if volumes.iter().all(|volume| volume["name"] != WORKSPACE_VOLUME) {
            volumes.push(json!({ "name": WORKSPACE_VOLUME, "emptyDir": {} }));
        }
        let filler = fill_workspace(&spec["containers"][0]);
        list(spec.entry("initContainers").or_insert(Value::Null)).push(filler);
        let agent = &mut spec["containers"][0];
        if agent["workingDir"].is_null() {
            agent["workingDir"] = json!(WORKSPACE);
        }
        let workspace = agent["workingDir"].clone();
        list(&mut agent["volumeMounts"]).push(json!({ "name": WORKSPACE_VOLUME, "mountPath": workspace }));
        // The last one of a name takes precedence.
        list(&mut agent["env"]).extend(session.secret.variables(session.name));
        pod
    }
}

/// The container that unpacks the folder of the agent into the workspace. It has the image of the agent, which is on the
/// node anyway, and its rights.
fn fill_workspace(agent: &Value) -> Value {
    let mut container = json!({
        "name": WORKSPACE_VOLUME,
        "image": agent["image"],
        "command": ["tar", "-xozf", format!("{FOLDER}/{FOLDER_ARCHIVE}"), "-C", "/saggar-workspace"],
        "volumeMounts": [
            { "name": FOLDER_VOLUME, "mountPath": FOLDER, "readOnly": true },
            { "name": WORKSPACE_VOLUME, "mountPath": "/saggar-workspace" },
        ],
    });
    for name in ["imagePullPolicy", "securityContext", "resources"] {
        if !agent[name].is_null() {
            container[name] = agent[name].clone();
        }
    }
    container
}

/// A value as an object, which it becomes if it is null. [`PodTemplate::new`] has checked it.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object"),
    }
}

/// The same for a list.
fn list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("it was made a list"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;

    fn filled(manifest: &str, variables: &[&str]) -> Value {
        let template = PodTemplate::new(yaml::parse(manifest).unwrap()).unwrap();
        template.pod_of(&SessionPod {
            name: "saggar-1",
            session: "1",
            server: "s",
            secret: &SessionSecret::of_variables(variables),
        })
    }

    #[test]
    fn smallest_manifest_is_filled() {
        let pod = filled("spec: {containers: [{name: agent, image: i}]}", &["A"]);
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "saggar-1",
                "labels": { "org.saggar/server": "s", "org.saggar/session": "1" },
                "annotations": {
                    "org.saggar.bridge": "saggar-1",
                    "org.saggar.spool": "true",
                    "org.saggar.container": "agent",
                },
            },
            "spec": {
                "restartPolicy": "Never",
                "runtimeClassName": "saggar",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "volumes": [
                    { "name": "saggar-folder", "secret": {
                        "secretName": "saggar-1",
                        "items": [{ "key": "folder.tar.gz", "path": "folder.tar.gz" }],
                    } },
                    { "name": "saggar-workspace", "emptyDir": {} },
                ],
                "initContainers": [{
                    "name": "saggar-workspace",
                    "image": "i",
                    "command": ["tar", "-xozf", "/saggar-folder/folder.tar.gz", "-C", "/saggar-workspace"],
                    "volumeMounts": [
                        { "name": "saggar-folder", "mountPath": "/saggar-folder", "readOnly": true },
                        { "name": "saggar-workspace", "mountPath": "/saggar-workspace" },
                    ],
                }],
                "containers": [{
                    "name": "agent",
                    "image": "i",
                    "workingDir": "/workspace",
                    "volumeMounts": [{ "name": "saggar-workspace", "mountPath": "/workspace" }],
                    "env": [{
                        "name": "A",
                        "valueFrom": { "secretKeyRef": { "name": "saggar-1", "key": "variable-0" } },
                    }],
                }],
            },
        });
        assert_eq!(pod, expected);
    }

    #[test]
    fn manifest_of_the_operator_remains() {
        let manifest = "
metadata:
  namespace: elsewhere
  labels: {team: a, org.saggar/server: other}
  annotations: {org.saggar.adapter: demo, org.saggar.bridge: other}
spec:
  runtimeClassName: saggar-gpu
  enableServiceLinks:
  automountServiceAccountToken: true
  nodeName: other
  volumes: [{name: saggar-workspace, emptyDir: {sizeLimit: 1Gi}}, {name: cache, emptyDir: {}}]
  initContainers: [{name: first, image: x}]
  containers:
    - name: agent
      image: i
      workingDir: /home/agent/work
      securityContext: {runAsUser: 1000}
      volumeMounts: [{name: cache, mountPath: /cache}]
    - {name: beside, image: j}
";
        let pod = filled(manifest, &[]);
        let metadata = &pod["metadata"];
        assert!(metadata["namespace"].is_null() && metadata["labels"]["team"] == "a", "{metadata}");
        assert_eq!(metadata["labels"]["org.saggar/server"], "s");
        assert_eq!(metadata["annotations"]["org.saggar.adapter"], "demo");
        assert_eq!(metadata["annotations"]["org.saggar.bridge"], "saggar-1");
        let spec = &pod["spec"];
        assert_eq!(spec["runtimeClassName"], "saggar-gpu");
        assert_eq!(
            (&spec["automountServiceAccountToken"], &spec["nodeName"]),
            (&json!(true), &json!("other"))
        );
        assert_eq!(spec["volumes"].as_array().unwrap().len(), 3);
        assert_eq!(spec["volumes"][0]["emptyDir"]["sizeLimit"], "1Gi");
        assert_eq!(spec["initContainers"][0]["name"], "first");
        assert_eq!(spec["initContainers"][1]["securityContext"], json!({ "runAsUser": 1000 }));
        let agent = &spec["containers"][0];
        assert_eq!(
            agent["volumeMounts"][1],
            json!({ "name": "saggar-workspace", "mountPath": "/home/agent/work" })
        );
        assert_eq!(agent["env"], json!([]));
        assert_eq!(spec["containers"][1], json!({ "name": "beside", "image": "j" }));
    }

    #[test]
    fn manifest_that_cannot_be_used_is_refused() {
        let container = "{name: a, image: i}";
        for (manifest, name) in [
            ("[]".to_owned(), "no manifest of a pod"),
            ("kind: Deployment".to_owned(), "no manifest of a pod"),
            (
                format!("metadata: {{finalizers: [a/b]}}\nspec: {{containers: [{container}]}}"),
                "metadata.finalizers",
            ),
            ("spec: {}".to_owned(), "containers[0].name"),
            ("spec: {containers: [{name: a}]}".to_owned(), "containers[0].image"),
            ("spec: {containers: [{name: a, image: i, tty: true}]}".to_owned(), "tty"),
            (format!("spec: {{restartPolicy: Always, containers: [{container}]}}"), "restartPolicy"),
            (format!("spec: {{volumes: x, containers: [{container}]}}"), "/spec/volumes"),
            (format!("metadata: {{labels: []}}\nspec: {{containers: [{container}]}}"), "/metadata/labels"),
        ] {
            let error = PodTemplate::new(yaml::parse(&manifest).unwrap()).unwrap_err().to_string();
            assert!(error.contains(name), "{manifest}: {error}");
        }
    }
}
