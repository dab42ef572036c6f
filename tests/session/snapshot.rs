//! Snapshots of sessions that are served, asked for on the control socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{Sessions, agent, bridge, control, supervisor, text};
use crate::control::client::ControlClient;
use crate::support::deadline::Deadline;
use crate::support::process::Watch;

/// How much a writer has to do, so that it is still at work when it is looked for.
const LARGE: &str = "run: head -c 100000000 /dev/urandom > large; echo made";

/// The members of a snapshot.
fn members(file: &Path) -> String {
    let output = Command::new("tar").arg("--zstd").arg("-tf").arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Names in the session's directory of snapshots.
fn kept(sessions: &Sessions, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(sessions.directory(name).join("snapshots")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The process that writes a snapshot for this supervisor, below it.
fn writer(above: u32) -> Option<Watch> {
    let children = fs::read_to_string(format!("/proc/{above}/task/{above}/children")).unwrap_or_default();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).find_map(|pid: u32| {
        // Its name comes last: read before it executes the writer, it would leave the writer's own child to be found, which
        // does not follow its parent's death yet.
        let below = writer(pid);
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if words.starts_with(b"saggar\0__snapshot\0") { Watch::of(pid) } else { below }
    })
}

/// Asks for a snapshot of a session with a large file, and stops its writer while that is at work.
fn stopped(sessions: &Sessions, session: &Value, client: &mut ControlClient) -> (u64, Watch) {
    let (name, pid) = (text(session, "id"), supervisor(session).pid());
    for _ in 0..20 {
        let id = client.ask("snapshot", &json!({}));
        let deadline = Deadline::usual();
        let is_partial = |path: &PathBuf| path.to_string_lossy().ends_with(".partial");
        let found = loop {
            let files = kept(sessions, &name);
            // Under load a whole snapshot may be taken between two looks.
            if files.iter().any(|path| !is_partial(path)) {
                break None;
            }
            if let Some(found) = writer(pid).filter(|_| !files.is_empty()) {
                break Some(found);
            }
            assert!(!deadline.remaining().is_zero(), "there is no writer");
        };
        if let Some(found) = found {
            found.stop();
            // What it writes is there, and is not yet what it will be.
            if kept(sessions, &name).iter().all(is_partial) {
                return (id, found);
            }
            found.signal(Signal::SIGCONT);
        }
        client.answer(id);
        kept(sessions, &name).iter().for_each(|path| fs::remove_file(path).unwrap());
    }
    panic!("every writer was done before it was stopped");
}

/// What has stood still goes on, and there is no file.
fn goes_on(sessions: &Sessions, name: &str) {
    assert!(kept(sessions, name).is_empty(), "{:?}", kept(sessions, name));
    assert!(sessions.send(name, "hi").contains("Hello"));
    assert_eq!(sessions.state(name).0, "active");
}

as_each_caller! {
    /// A session that is served, as its agent sees it at one moment; it goes on afterwards.
    fn a_session_that_is_served_is_kept_in_a_file(caller) {
        for options in [&[][..], &["--workspace-overlay"]] {
            let sessions = Sessions::new(caller);
            let session = sessions.create("kept", options);
            sessions.send("kept", "run: echo x > new; mkdir -p node_modules; echo y > node_modules/z; mkfifo pipe");
            let mut client = control(&session);
            let taken = client.call("snapshot", &json!({}));
            let file = PathBuf::from(text(&taken, "file"));
            assert!(file.starts_with(sessions.directory("kept").join("snapshots")), "{taken}");
            assert_eq!(taken["still"], caller.is_root(), "{taken}");
            assert!(taken["notes"].to_string().contains("pipe: it is a FIFO"), "{taken}");
            let listed = members(&file);
            assert!(listed.contains("/new\n") && !listed.contains("node_modules"), "{listed}");
            assert_eq!(listed.lines().count() as u64, taken["entries"].as_u64().unwrap() + 1, "{listed}");
            let whole = client.call("snapshot", &json!({ "all": true }));
            assert!(members(text(&whole, "file").as_ref()).contains("node_modules/z"));
            assert_eq!(kept(&sessions, "kept").len(), 2);
            assert!(sessions.send("kept", "hi").contains("Hello"));
            assert_eq!(sessions.state("kept").0, "active");
            // It is one like any other.
            sessions.ok(&["end", "kept"]);
        }
    }

    /// The loop answers while a snapshot is being taken, nothing in the sandbox runs, and one whose writer is killed
    /// leaves nothing.
    fn snapshot_blocks_no_client_and_leaves_no_partial_file(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("large", &[]);
        sessions.send("large", LARGE);
        let mut client = control(&session);
        let (id, writer) = stopped(&sessions, &session, &mut client);
        let state = client.get("state");
        assert_eq!((&state["status"], &state["session"]["state"]), (&json!("running"), &json!("active")));
        assert_eq!(client.refused("snapshot", &json!({})).0, "busy");
        assert_eq!(kept(&sessions, "large").len(), 1);
        let mut server = bridge(&session);
        server.send(&json!({ "cmd": "query", "prompt": "run: echo ran > ran", "sessionId": "large" }));
        if caller.is_root() {
            // A resume undoes a pause, and no snapshot.
            client.get("pause");
            client.get("resume");
            let usage = |client: &mut ControlClient| client.get("stats")["cpu"]["usage_usec"].clone();
            let (before, ran) = (usage(&mut client), sessions.directory("large").join("workspace/ran"));
            assert_eq!(usage(&mut client), before);
            assert!(!ran.exists(), "a program ran beside the snapshot");
        }
        writer.signal(Signal::SIGKILL);
        let answer = client.answer(id);
        assert_eq!(answer["error"]["data"]["name"], "internal", "{answer}");
        assert!(server.outcome().is_done());
        goes_on(&sessions, "large");
    }

    /// Neither end of a session waits for a snapshot, and a killed supervisor leaves no writer.
    fn a_snapshot_does_not_outlive_its_session(caller) {
        let sessions = Sessions::new(caller);
        let mut session = sessions.create("ends", &[]);
        sessions.send("ends", LARGE);
        for way in ["control", "bridge", "killed"] {
            let served = supervisor(&session);
            let mut client = control(&session);
            let (id, writer) = stopped(&sessions, &session, &mut client);
            match way {
                "control" => {
                    client.ask("shutdown", &json!({}));
                    assert_eq!(client.answer(id)["error"]["data"]["name"], "state");
                }
                "bridge" => bridge(&session).send(&json!({ "cmd": "shutdown" })),
                _ => served.signal(Signal::SIGKILL),
            }
            for (watch, what) in [(&writer, "the writer"), (&served, "the supervisor")] {
                watch.wait_gone(what);
            }
            sessions.ok(&["resume", "ends"]);
            session = sessions.show("ends");
            goes_on(&sessions, "ends");
        }
    }

    /// A pause that comes meanwhile stays.
    fn a_pause_outlasts_a_snapshot(caller) {
        if !caller.is_root() {
            return;
        }
        let sessions = Sessions::new(caller);
        let session = sessions.create("paused", &[]);
        let mut client = control(&session);
        let agent = agent(&session);
        client.get("pause");
        assert_eq!(client.call("snapshot", &json!({}))["still"], true);
        assert_eq!(client.get("state")["status"], "paused");
        let state = fs::read_to_string(format!("/proc/{}/cgroup", agent.pid())).unwrap();
        let own = state.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned();
        let frozen = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].iter().any(|mount| {
            let events = fs::read_to_string(format!("{mount}{own}/cgroup.events"));
            events.is_ok_and(|events| events.contains("frozen 1"))
        });
        assert!(frozen, "the snapshot has let it go");
        client.get("resume");
        assert!(sessions.send("paused", "hi").contains("Hello"));
    }
}
