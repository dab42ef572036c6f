//! A stand-in for the API server of Kubernetes: pods and secrets in memory, one request for each connection.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Condvar, Mutex};

/// The bearer token that requests must have.
pub(crate) const TOKEN: &str = "the-token-of-the-service-account";
/// The only namespace.
pub(crate) const NAMESPACE: &str = "agents";

/// What the API server stores.
#[derive(Debug, Default)]
pub(crate) struct ApiState {
    pub(crate) objects: Mutex<Objects>,
    /// Whether requests must have [`TOKEN`].
    needs_token: bool,
    /// Notified of each object that is created, and of each pod whose deletion begins or ends.
    pub(crate) changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) pods: BTreeMap<String, Value>,
    pub(crate) secrets: BTreeMap<String, Value>,
    /// What the API answers instead, if it fails: a status and a message.
    pub(crate) failure: Option<(u16, String)>,
    uids: u64,
}

struct Request {
    method: String,
    /// The path and the query.
    target: String,
    has_token: bool,
    body: Value,
}

impl ApiState {
    /// An API server that only answers requests with [`TOKEN`].
    pub(crate) fn with_token() -> Self {
        ApiState { needs_token: true, ..ApiState::default() }
    }

    /// Serves a connection.
    pub(crate) fn serve(&self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        let request = read(&mut BufReader::new(&mut *stream))?;
        let (status, body) = self.answer(&request);
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes())?;
        stream.flush()
    }

    /// Waits until a pod is to be started or ended, and returns it; it is not returned again. A pod that is to be ended has
    /// a `deletionTimestamp`.
    pub(crate) fn next_change(&self, seen: &mut BTreeMap<String, bool>) -> Value {
        let mut objects = self.objects.lock().unwrap();
        loop {
            for (name, pod) in &objects.pods {
                let is_deleted = !pod["metadata"]["deletionTimestamp"].is_null();
                if seen.insert(name.clone(), is_deleted) != Some(is_deleted) {
                    return pod.clone();
                }
            }
            objects = self.changed.wait(objects).unwrap();
        }
    }

    /// The secret of a pod, which the API may get later than the pod. `None` if the pod is deleted before.
    pub(crate) fn wait_for_secret(&self, pod: &str) -> Option<Value> {
        let objects = self.objects.lock().unwrap();
        let is_deleted =
            |pod: Option<&Value>| pod.is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
        let objects = self.changed.wait_while(objects, |objects| {
            !objects.secrets.contains_key(pod) && !is_deleted(objects.pods.get(pod))
        });
        objects.unwrap().secrets.get(pod).cloned()
    }

    /// Sets the status of a pod that exists, and the address of its node.
    pub(crate) fn set_status(&self, pod: &str, mut status: Value) {
        status["hostIP"] = json!("127.0.0.1");
        if let Some(pod) = self.objects.lock().unwrap().pods.get_mut(pod) {
            pod["status"] = status;
        }
    }

    /// Begins to delete a pod, and returns it.
    pub(crate) fn delete_pod(&self, name: &str) -> Option<Value> {
        let mut objects = self.objects.lock().unwrap();
        let pod = objects.pods.get_mut(name)?;
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.changed.notify_all();
        Some(pod.clone())
    }

    /// Removes a pod whose containers have ended, and what it owns.
    pub(crate) fn remove_pod(&self, name: &str) {
        let mut objects = self.objects.lock().unwrap();
        objects.pods.remove(name);
        objects.secrets.retain(|_, secret| secret["metadata"]["ownerReferences"][0]["name"] != name);
        self.changed.notify_all();
    }

    fn answer(&self, request: &Request) -> (u16, Value) {
        if self.needs_token && !request.has_token {
            return failure(401, "Unauthorized");
        }
        let mut objects = self.objects.lock().unwrap();
        if let Some((status, message)) = &objects.failure {
            return failure(*status, message);
        }
        let prefix = format!("/api/v1/namespaces/{NAMESPACE}/");
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let path: Vec<_> = path.strip_prefix(&prefix).expect("a path of the namespace").split('/').collect();
        match (request.method.as_str(), path.as_slice()) {
            ("POST", [kind @ ("pods" | "secrets")]) => {
                let created = objects.create(kind, &request.body);
                self.changed.notify_all();
                created
            }
            ("GET", ["pods"]) => {
                let selector = query.strip_prefix("labelSelector=").unwrap().replace("%3D", "=");
                let (label, value) = selector.split_once('=').unwrap();
                let is_selected = |pod: &&Value| pod["metadata"]["labels"][label] == value;
                let items: Vec<_> = objects.pods.values().filter(is_selected).cloned().collect();
                (200, json!({ "kind": "PodList", "items": items }))
            }
            ("GET", ["pods", name]) => match objects.pods.get(*name) {
                Some(pod) => (200, pod.clone()),
                None => not_found(name),
            },
            ("DELETE", ["pods", name]) => {
                let grace = request.body["gracePeriodSeconds"].as_u64();
                assert!(grace > Some(0), "a forced deletion leaves processes");
                drop(objects);
                self.delete_pod(name).map_or_else(|| not_found(name), |pod| (200, pod))
            }
            (method, path) => panic!("unexpected request {method} {path:?}"),
        }
    }
}

impl Objects {
    fn create(&mut self, kind: &str, object: &Value) -> (u16, Value) {
        self.uids += 1;
        let stored = if kind == "pods" { &mut self.pods } else { &mut self.secrets };
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if stored.contains_key(&name) {
            return failure(409, &format!("{kind} \"{name}\" already exists"));
        }
        let mut object = object.clone();
        object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        object["status"] = json!({ "phase": "Pending" });
        stored.insert(name, object.clone());
        (201, object)
    }
}

/// The variables of a container, which has those of the manifest and of its pod's secret.
pub(crate) fn variables(container: &Value, secret: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let value = |variable: &Value| match variable["valueFrom"]["secretKeyRef"]["key"].as_str() {
        Some(key) => String::from_utf8(decode(&secret["data"][key])).unwrap(),
        None => text(&variable["value"]),
    };
    let variables = container["env"].as_array().into_iter().flatten();
    variables.map(|variable| (text(&variable["name"]), value(variable))).collect()
}

/// A value of a secret.
pub(crate) fn decode(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

fn read(stream: &mut impl BufRead) -> io::Result<Request> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let (mut length, mut has_token) = (0, false);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => has_token = value == format!("Bearer {TOKEN}"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Request { method, target, has_token, body: serde_json::from_slice(&body).unwrap_or_default() })
}

fn failure(status: u16, message: &str) -> (u16, Value) {
    (status, json!({ "kind": "Status", "status": "Failure", "message": message, "code": status }))
}

fn not_found(pod: &str) -> (u16, Value) {
    failure(404, &format!("pods \"{pod}\" not found"))
}
