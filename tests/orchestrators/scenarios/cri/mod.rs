//! Pods: what a kubelet asks of containerd, and containerd of a runtime.

mod pod;
mod server;
mod session_pod;

pub(super) use server::server_pods;

use serde_json::json;

use super::{WAIT, eventually};
use crate::bridge_client::BridgeClient;
use crate::callers::cri::messages::{
    ContainerState, RemoveContainer, Resources, StartContainer, StopContainer, UpdateResources,
};
use crate::callers::cri::{agent_manifest, annotations, text};
use crate::callers::{Engine, is_unified};
use pod::{Pod, container, shell};

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
    let container = pod.create(container("missing", &["no-such-program".to_owned()], 0)).unwrap();
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
    let container = pod.start(container("large", &["tail".to_owned(), "/dev/zero".to_owned()], 32 << 20));
    assert_eq!(container.wait().exit_code, 137);
    // containerd learns of it on another way than of the end.
    eventually("the reason", || {
        let status = container.status();
        if status.reason == "OOMKilled" { Ok(()) } else { Err(format!("{status:?}")) }
    });
}

pub(super) fn update(engine: &dyn Engine) {
    let pod = Pod::run(engine);
    let container = pod.start(container("updated", &shell(WAIT), 64 << 20));
    let resources = Some(Resources { memory: 96 << 20 });
    container.cri.call(UpdateResources { id: container.id.clone(), resources }).unwrap();
    let file = if is_unified() { "memory.max" } else { "memory/memory.limit_in_bytes" };
    let result = container.exec(&format!("cat /sys/fs/cgroup/{file}"));
    assert_eq!(String::from_utf8_lossy(&result.stdout).trim(), (96 << 20).to_string(), "{result:?}");
}

/// The pod of `packaging/runtimes/kubernetes-agent-pod.yaml`, with a container beside the agent.
pub(super) fn agent_pod(engine: &dyn Engine) {
    let manifest = agent_manifest();
    let of_agent = &manifest["spec"]["containers"][0];
    let command: Vec<String> = of_agent["command"].as_vec().unwrap().iter().map(text).collect();
    assert_eq!(text(&manifest["spec"]["runtimeClassName"]), engine.cri().handler());
    let pod = Pod::with_annotations(engine, annotations(&manifest));
    let beside = pod.start(container("beside", &shell(WAIT), 0));
    let agent = pod.start(container(&text(&of_agent["name"]), &command, 0));

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
