//! Pods: what a kubelet asks of containerd, and containerd of a runtime.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::{WAIT, eventually};
use crate::bridge_client::BridgeClient;
use crate::callers::cri::messages::{
    ContainerConfig, ContainerMetadata, ContainerSecurity, ContainerState, ContainerStatus,
    ContainerStatusRequest, CreateContainer, ExecResult, ExecSync, ImageSpec, LinuxContainer, LinuxPod,
    NamespaceMode, Namespaces, PodConfig, PodMetadata, PodSecurity, RemoveContainer, RemovePod, Resources,
    RunPod, StartContainer, StopContainer, StopPod, UpdateResources,
};
use crate::callers::cri::{Cri, agent_manifest, annotations, text};
use crate::callers::{Engine, IMAGE, fresh_name, is_unified};

/// A pod with the network of the host; it and its containers are gone when dropped.
struct Pod<'a> {
    cri: &'a Cri,
    id: String,
    config: PodConfig,
}

impl<'a> Pod<'a> {
    #[track_caller]
    fn run(engine: &'a dyn Engine) -> Self {
        Pod::with_annotations(engine, HashMap::new())
    }

    #[track_caller]
    fn with_annotations(engine: &'a dyn Engine, annotations: HashMap<String, String>) -> Self {
        let (cri, name) = (engine.cri(), fresh_name());
        let security_context = Some(PodSecurity { namespaces: Some(namespaces()) });
        let mut config = PodConfig {
            metadata: Some(PodMetadata { name: name.clone(), uid: name, namespace: "default".into() }),
            log_directory: String::new(),
            annotations,
            linux: Some(LinuxPod { cgroup_parent: cri.cgroup_parent(), security_context }),
        };
        let logs = cri.log_directory(&config);
        fs::create_dir(&logs).unwrap();
        config.log_directory = logs.to_str().unwrap().to_owned();
        let request = RunPod { config: Some(config.clone()), runtime_handler: cri.handler().to_owned() };
        Pod { cri, id: cri.call(request).unwrap().id, config }
    }

    /// A container with this name, created and not started.
    fn create(&self, name: &str, command: &[String], memory: i64) -> Result<Started<'_>, String> {
        let security_context = Some(ContainerSecurity { namespaces: Some(namespaces()) });
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.to_owned() }),
            image: Some(ImageSpec { image: IMAGE.to_owned() }),
            command: command.to_vec(),
            log_path: format!("{name}.log"),
            linux: Some(LinuxContainer { resources: Some(Resources { memory }), security_context }),
        };
        let request = CreateContainer {
            pod: self.id.clone(),
            config: Some(config),
            pod_config: Some(self.config.clone()),
        };
        let id = self.cri.call(request)?.id;
        let log = PathBuf::from(&self.config.log_directory).join(format!("{name}.log"));
        Ok(Started { cri: self.cri, id, log })
    }

    #[track_caller]
    fn start(&self, name: &str, command: &[String], memory: i64) -> Started<'_> {
        let container = self.create(name, command, memory).unwrap();
        container.cri.call(StartContainer { id: container.id.clone() }).unwrap();
        container
    }

    /// A container that runs a line of shell.
    #[track_caller]
    fn shell(&self, line: &str) -> Started<'_> {
        self.start(&fresh_name(), &shell(line), 0)
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        let stopped = self.cri.call(StopPod { id: self.id.clone() });
        let removed = self.cri.call(RemovePod { id: self.id.clone() });
        if !std::thread::panicking() {
            stopped.and(removed).unwrap();
        }
    }
}

/// A container of a pod; removed with it.
struct Started<'a> {
    cri: &'a Cri,
    id: String,
    log: PathBuf,
}

impl Started<'_> {
    #[track_caller]
    fn status(&self) -> ContainerStatus {
        self.cri.call(ContainerStatusRequest { id: self.id.clone() }).unwrap().status.unwrap()
    }

    /// Waits for its end.
    #[track_caller]
    fn wait(&self) -> ContainerStatus {
        eventually("the end of a container", || {
            let status = self.status();
            if status.state() == ContainerState::Exited { Ok(status) } else { Err(format!("{status:?}")) }
        })
    }

    /// Its output so far: of each line the stream and the text, as the log of a kubelet has them.
    fn logged(&self) -> Vec<(String, String)> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let parse = |line: &str| {
            let mut words = line.splitn(4, ' ').skip(1);
            let (stream, _, text) = (words.next()?, words.next()?, words.next()?);
            Some((stream.to_owned(), text.to_owned()))
        };
        log.lines().filter_map(parse).collect()
    }

    #[track_caller]
    fn expect(&self, stream: &str, text: &str) {
        eventually(text, || {
            let logged = self.logged();
            let found = logged.iter().any(|line| line.0 == stream && line.1.contains(text));
            if found { Ok(()) } else { Err(format!("{logged:?}")) }
        });
    }

    #[track_caller]
    fn exec(&self, line: &str) -> ExecResult {
        self.cri.call(ExecSync { id: self.id.clone(), command: shell(line) }).unwrap()
    }
}

fn shell(line: &str) -> Vec<String> {
    ["sh", "-c", line].map(str::to_owned).to_vec()
}

/// No network plugin is needed on the host's network. Each container has processes of its own.
fn namespaces() -> Namespaces {
    Namespaces { network: NamespaceMode::Node.into(), pid: NamespaceMode::Container.into() }
}

pub(super) fn exit_status(engine: &dyn Engine) {
    let pod = Pod::run(engine);
    for code in [0, 3, 255] {
        let status = pod.shell(&format!("exit {code}")).wait();
        let reason = if code == 0 { "Completed" } else { "Error" };
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason), "{status:?}");
    }
}

pub(super) fn logs(engine: &dyn Engine) {
    let pod = Pod::run(engine);
    let container = pod.shell("echo out; echo err >&2");
    container.wait();
    container.expect("stdout", "out");
    container.expect("stderr", "err");
}

pub(super) fn exec_sync(engine: &dyn Engine) {
    let pod = Pod::run(engine);
    let container = pod.shell(WAIT);
    let result = container.exec("echo out; echo err >&2; exit 5");
    assert_eq!((result.stdout, result.stderr, result.exit_code), (b"out\n".into(), b"err\n".into(), 5));
    let first = container.exec("cat /proc/1/cmdline");
    assert!(String::from_utf8_lossy(&first.stdout).contains("trap"), "it is in the container: {first:?}");
}

pub(super) fn missing_program(engine: &dyn Engine) {
    let pod = Pod::run(engine);
    let container = pod.create("missing", &["no-such-program".to_owned()], 0).unwrap();
    let refused = container.cri.call(StartContainer { id: container.id.clone() }).unwrap_err();
    assert!(refused.contains("no-such-program"), "{refused}");
    assert_eq!(container.wait().reason, "StartError");
}

pub(super) fn stop(engine: &dyn Engine) {
    let pod = Pod::run(engine);
    let container = pod.shell(WAIT);
    container.expect("stdout", "up");
    assert_eq!(container.status().state(), ContainerState::Running);
    container.cri.call(StopContainer { id: container.id.clone(), timeout: 60 }).unwrap();
    assert_eq!(container.status().exit_code, 7, "it has handled SIGTERM");
    container.cri.call(RemoveContainer { id: container.id.clone() }).unwrap();
    assert!(!container.cri.state_of(&container.id).exists());
}

pub(super) fn memory(engine: &dyn Engine) {
    let pod = Pod::run(engine);
    // One endless line: tail has to keep it.
    let container = pod.start("large", &["tail".to_owned(), "/dev/zero".to_owned()], 32 << 20);
    assert_eq!(container.wait().exit_code, 137);
    // containerd learns of it on another way than of the end.
    eventually("the reason", || {
        let status = container.status();
        if status.reason == "OOMKilled" { Ok(()) } else { Err(format!("{status:?}")) }
    });
}

pub(super) fn update(engine: &dyn Engine) {
    let pod = Pod::run(engine);
    let container = pod.start("updated", &shell(WAIT), 64 << 20);
    let resources = Some(Resources { memory: 96 << 20 });
    container.cri.call(UpdateResources { id: container.id.clone(), resources }).unwrap();
    let file = if is_unified() { "memory.max" } else { "memory/memory.limit_in_bytes" };
    let result = container.exec(&format!("cat /sys/fs/cgroup/{file}"));
    assert_eq!(String::from_utf8_lossy(&result.stdout).trim(), (96 << 20).to_string(), "{result:?}");
}

/// The pod of `packaging/runtimes/kubernetes-agent-pod.yaml`, with a container beside the agent.
pub(super) fn agent_pod(engine: &dyn Engine) {
    let manifest = agent_manifest();
    let container = &manifest["spec"]["containers"][0];
    let command: Vec<String> = container["command"].as_vec().unwrap().iter().map(text).collect();
    assert_eq!(text(&manifest["spec"]["runtimeClassName"]), engine.cri().handler());
    let pod = Pod::with_annotations(engine, annotations(&manifest));
    let beside = pod.start("beside", &shell(WAIT), 0);
    let agent = pod.start(&text(&container["name"]), &command, 0);

    let socket = |id: &str| engine.cri().state_of(id).join("bridge.sock");
    for other in [&beside.id, &pod.id] {
        assert!(engine.cri().state_of(other).exists() && !socket(other).exists(), "{other} has a bridge");
    }
    let mut client = BridgeClient::connect(&socket(&agent.id));
    for prompt in ["first", "second"] {
        let outcome = client.turn(prompt);
        assert!(outcome.is_done(), "{outcome:?}");
        let answer = outcome.of_type("assistant").next().unwrap();
        assert_eq!((&answer["pid"], &answer["heard"]["message"]["content"]), (&json!(1), &json!(prompt)));
    }
    let result = client.exec("tr '\\0' ' ' </proc/1/cmdline", 60_000);
    assert!(result["stdout"].as_str().unwrap().contains("/bin/claude --print"), "{result}");
    agent.expect("stdout", &format!("started with {}", command[1..].join(" ")));

    agent.cri.call(StopContainer { id: agent.id.clone(), timeout: 1 }).unwrap();
    client.expect_close();
    agent.cri.call(RemoveContainer { id: agent.id.clone() }).unwrap();
    assert!(!agent.cri.state_of(&agent.id).exists());
    assert_eq!(beside.status().state(), ContainerState::Running);
}
