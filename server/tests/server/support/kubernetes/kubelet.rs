//! The kubelet: a thread for each pod. Its containers share a root file system with busybox and saggar.

use super::api::{ApiState, decode, variables};
use crate::support::saggar_program;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const BUSYBOX: &str = "/bin/busybox";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(200);

pub(super) struct Kubelet {
    directory: PathBuf,
    state: Arc<ApiState>,
}

impl Kubelet {
    /// Starts the pods of the API server, and ends those that are deleted, until the process exits.
    pub(super) fn start(directory: &Path, state: Arc<ApiState>) -> Arc<Self> {
        let kubelet = Kubelet { directory: directory.to_owned(), state };
        for name in ["oci", "sockets", "pods", "config"] {
            DirBuilder::new().mode(0o700).create(directory.join(name)).unwrap();
        }
        let config = directory.join("config/saggar");
        fs::create_dir(&config).unwrap();
        let text = format!("bridge.directory = {:?}\n", kubelet.sockets());
        fs::write(config.join("config.toml"), text).unwrap();
        let root = directory.join("rootfs");
        for name in ["bin", "proc", "dev", "tmp", "lib", "lib64"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::copy(BUSYBOX, root.join("bin/busybox")).expect("the package busybox-static");
        for name in ["sh", "tar", "gzip", "cat", "ls", "env", "sleep", "echo", "false"] {
            symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        fs::copy(saggar_program(), root.join("bin/saggar")).unwrap();
        let kubelet = Arc::new(kubelet);
        let watcher = Arc::clone(&kubelet);
        std::thread::spawn(move || {
            let mut seen = BTreeMap::new();
            let mut threads = BTreeMap::new();
            loop {
                let pod = watcher.state.next_change(&mut seen);
                let (name, own) =
                    (pod["metadata"]["name"].as_str().unwrap().to_owned(), Arc::clone(&watcher));
                match threads.remove(&name) {
                    None if pod["metadata"]["deletionTimestamp"].is_null() => {
                        threads.insert(name.clone(), std::thread::spawn(move || own.run_pod(&name, &pod)));
                    }
                    thread => drop(std::thread::spawn(move || own.end_pod(&name, thread))),
                }
            }
        });
        kubelet
    }

    pub(super) fn sockets(&self) -> PathBuf {
        self.directory.join("sockets")
    }

    /// Ends a pod that is being deleted.
    fn end_pod(&self, name: &str, thread: Option<JoinHandle<()>>) {
        let container = format!("{name}-agent");
        self.signal(&container, "TERM");
        if self.is_running(&container) {
            std::thread::sleep(GRACE);
            self.signal(&container, "KILL");
        }
        if let Some(thread) = thread {
            thread.join().unwrap();
        }
        self.state.remove_pod(name);
    }

    fn run_pod(&self, name: &str, pod: &Value) {
        let spec = &pod["spec"];
        self.state.set_status(name, json!({ "phase": "Pending" }));
        let Some(secret) = self.state.wait_for_secret(name) else { return };
        self.write_secret_volumes(pod, &secret);
        for container in spec["initContainers"].as_array().unwrap() {
            let id = format!("{name}-{}", container["name"].as_str().unwrap());
            let bundle = self.bundle(&id, pod, container, &secret);
            let status = self.saggar(&["run", "--bundle", bundle.to_str().unwrap(), &id]).status().unwrap();
            if !status.success() {
                let terminated = json!({ "exitCode": status.code(), "reason": "Error" });
                let failed = json!({ "name": container["name"], "state": { "terminated": terminated } });
                let status = json!({ "phase": "Failed", "initContainerStatuses": [failed] });
                return self.state.set_status(name, status);
            }
        }
        let agent = &spec["containers"][0];
        let id = format!("{name}-agent");
        let bundle = self.bundle(&id, pod, agent, &secret);
        let created = self.saggar(&["create", "--bundle", bundle.to_str().unwrap(), &id]).status().unwrap();
        let started = created.success() && self.saggar(&["start", &id]).status().unwrap().success();
        let set_status = |phase: &str, state: Value| {
            let of_agent = json!({ "name": agent["name"], "state": state });
            self.state.set_status(name, json!({ "phase": phase, "containerStatuses": [of_agent] }));
        };
        if !started {
            let message = fs::read_to_string(bundle.join("log")).unwrap();
            let waiting = json!({ "reason": "CreateContainerError", "message": message });
            return set_status("Pending", json!({ "waiting": waiting }));
        }
        set_status("Running", json!({ "running": {} }));
        while self.is_running(&id) {
            std::thread::sleep(POLL_INTERVAL);
        }
        // As a shim does at once.
        let _ = self.saggar(&["delete", "--force", &id]).status();
        set_status("Failed", json!({ "terminated": { "exitCode": 137, "reason": "Error" } }));
    }

    /// Writes the bundle of a container.
    fn bundle(&self, id: &str, pod: &Value, container: &Value, secret: &Value) -> PathBuf {
        let bundle = self.directory.join("pods").join(id);
        fs::create_dir_all(&bundle).unwrap();
        let mut mounts = vec![json!({ "destination": "/proc", "type": "proc", "source": "proc" })];
        // What the binary is linked with.
        for directory in ["/lib", "/lib64"] {
            mounts.push(json!({ "destination": directory, "type": "bind", "source": directory, "options": ["rbind", "ro"] }));
        }
        for mount in container["volumeMounts"].as_array().unwrap() {
            let mode = if mount["readOnly"] == true { "ro" } else { "rw" };
            mounts.push(json!({
                "destination": mount["mountPath"], "type": "bind", "options": ["rbind", mode],
                "source": self.volume(pod, &mount["name"]),
            }));
        }
        let mut env = vec!["PATH=/bin".to_owned()];
        env.extend(variables(container, secret).iter().map(|(name, value)| format!("{name}={value}")));
        let mut annotations = pod["metadata"]["annotations"].clone();
        annotations["io.kubernetes.cri.container-type"] = json!("container");
        annotations["io.kubernetes.cri.container-name"] = container["name"].clone();
        let namespaces = ["pid", "mount", "ipc", "uts", "network"].map(|name| json!({ "type": name }));
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": { "uid": 0, "gid": 0 }, "args": container["command"], "env": env,
                "cwd": if container["workingDir"].is_null() { json!("/") } else { container["workingDir"].clone() },
            },
            "root": { "path": self.directory.join("rootfs") },
            "mounts": mounts,
            "annotations": annotations,
            "linux": { "namespaces": namespaces },
        });
        let user = rustix::process::geteuid();
        if !user.is_root() {
            config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
            let mapping = json!([{ "containerID": 0, "hostID": user.as_raw(), "size": 1 }]);
            config["linux"]["uidMappings"] = mapping;
            config["linux"]["gidMappings"] =
                json!([{ "containerID": 0, "hostID": rustix::process::getegid().as_raw(), "size": 1 }]);
        }
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        bundle
    }

    /// The directory of a volume.
    fn volume(&self, pod: &Value, name: &Value) -> PathBuf {
        let pod = pod["metadata"]["name"].as_str().unwrap();
        let directory = format!("{pod}-volume-{}", name.as_str().unwrap());
        let directory = self.directory.join("pods").join(directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn write_secret_volumes(&self, pod: &Value, secret: &Value) {
        for volume in pod["spec"]["volumes"].as_array().unwrap() {
            for item in volume["secret"]["items"].as_array().into_iter().flatten() {
                assert_eq!(volume["secret"]["secretName"], secret["metadata"]["name"]);
                let file = self.volume(pod, &volume["name"]).join(item["path"].as_str().unwrap());
                fs::write(file, decode(&secret["data"][item["key"].as_str().unwrap()])).unwrap();
            }
        }
    }

    /// Whether a container runs.
    pub(super) fn is_running(&self, container: &str) -> bool {
        let state = self.saggar(&["state", container]).stdout(Stdio::piped()).output().unwrap();
        let state: Value = serde_json::from_slice(&state.stdout).unwrap_or_default();
        !state["status"].is_null() && state["status"] != "stopped"
    }

    pub(super) fn signal(&self, container: &str, signal: &str) {
        let _ = self.saggar(&["kill", container, signal]).status();
    }

    pub(super) fn delete_all(&self) {
        let containers = self.saggar(&["list", "--quiet"]).stdout(Stdio::piped()).output().unwrap();
        for container in String::from_utf8_lossy(&containers.stdout).lines() {
            let _ = self.saggar(&["delete", "--force", container]).status();
        }
    }

    /// `saggar --root … ARGUMENTS`, with the output of a container in a file.
    fn saggar(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(saggar_program());
        command.arg("--root").arg(self.directory.join("oci")).args(arguments);
        command.env("XDG_CONFIG_HOME", self.directory.join("config")).stdin(Stdio::null());
        let log = arguments.last().map(|id| self.directory.join("pods").join(id).join("log"));
        let output =
            || match log.as_ref().and_then(|log| File::options().append(true).create(true).open(log).ok()) {
                Some(file) => Stdio::from(file),
                None => Stdio::null(),
            };
        command.stdout(output()).stderr(output());
        command
    }
}
