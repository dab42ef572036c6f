//! Pause and resume, by the kernel's own account. Without a cgroup both are refused.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::{ControlClient, serve, socket};
use crate::bridge::served::Stage;
use crate::support::wait;

/// The cgroup of a sandbox: above that of its agent.
fn cgroup_of(state: &Value) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{}/cgroup", state["pid"])).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let above = mounts.iter().map(|mount| mount.join(own)).find(|path| path.join("cgroup.procs").exists());
    let sandbox = above?.parent()?.to_owned();
    sandbox.file_name()?.to_str()?.starts_with("saggar-").then_some(sandbox)
}

fn is_frozen(cgroup: &Path) -> bool {
    fs::read_to_string(cgroup.join("cgroup.events")).unwrap().contains("frozen 1")
}

as_each_caller! {
    /// KC-19: what is paused stands still, with all its processes, and takes no commands.
    fn kc_19_a_paused_sandbox_stands_still(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let mut server = served.connect();
        let state = client.get("state");
        let Some(cgroup) = cgroup_of(&state) else {
            assert!(!caller.is_root(), "root has a cgroup here");
            for method in ["pause", "resume", "stats"] {
                let (name, message) = client.refused(method, &json!({}));
                assert_eq!(name, "unsupported", "{message}");
                assert!(message.contains("saggar doctor"), "{message}");
            }
            assert!(server.turn("hi").is_done());
            return served.shut_down(&mut server);
        };
        client.get("events.subscribe");
        server.query("run: : > up; while [ ! -e go ]; do sleep 0.01; done; echo done");
        wait::until_exists(&stage.work().join("up"));
        assert_eq!(client.get("pause"), json!({}));
        assert!(is_frozen(&cgroup));
        assert_eq!(client.event()["event"], "paused");
        let state = client.get("state");
        assert_eq!((&state["status"], &state["session"]["state"]), (&json!("paused"), &json!("paused")));
        let mut other = served.connect();
        for command in [json!({ "cmd": "exec", "command": "true" }), json!({ "cmd": "query", "prompt": "x", "sessionId": "test-session" })] {
            other.send(&command);
            let event = other.event();
            assert!(event["error"].as_str().unwrap().contains("paused"), "{event}");
        }
        assert_eq!(client.refused("exec", &json!({ "command": "true" })).0, "state");
        // Twice is once.
        client.get("pause");
        assert!(client.heard.is_empty());
        stage.place.make_file("work/go", "");
        assert_eq!(client.get("resume"), json!({}));
        assert!(!is_frozen(&cgroup));
        assert_eq!(client.event()["event"], "resumed");
        assert!(server.outcome().is_done());
        let usage = client.get("stats");
        let told = usage["cpu"]["usage_usec"].as_u64().unwrap();
        let file = fs::read_to_string(cgroup.join("cpu.stat")).unwrap();
        let counted: u64 = file.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok()).unwrap();
        assert!(told > 0 && told <= counted, "{told} of {counted}");
        served.shut_down(&mut server);
        assert!(!cgroup.exists());
    }

    /// The end is never held up by a pause.
    fn a_paused_sandbox_ends_politely(caller) {
        let stage = Stage::new(caller);
        let served = serve(&stage, &["--adapter", "demo"]);
        let mut client = ControlClient::connect(&socket(&stage));
        let Some(cgroup) = cgroup_of(&client.get("state")) else {
            client.get("shutdown");
            return assert!(served.end().0.success());
        };
        client.get("pause");
        let (status, stderr) = served.end_by(nix::sys::signal::Signal::SIGTERM);
        assert!(status.success(), "{status} {stderr}");
        assert!(!cgroup.exists());
    }
}
