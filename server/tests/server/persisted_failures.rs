//! Kills and failures of servers that use a snapshot store, and sessions that move in the middle of their work.

use crate::persisted_sessions::{
    Scene, change, metric, read, remembers, stopped_session, wait_for_copies, write,
};
use crate::support::{Frame, Server, has_exited, saggar_program, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A scene whose `saggar` does what the file `mode` says when it restores a session, once: `fail` starts nothing, and
/// `kill` starts the session without its copy and kills the server, as a restore that is killed in the middle.
struct FaultyScene {
    scene: Scene,
    mode: PathBuf,
}

impl FaultyScene {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (program, mode) = (directory.path().join("saggar"), directory.path().join("mode"));
        let script = format!(
            r#"#!/bin/sh
mode=$(cat {mode} 2>&-)
case "$mode $2 $*" in
fail*--events*) rm {mode}; echo 'saggar: error: no room' >&2; exit 1 ;;
"kill create "*--events*)
    rm {mode}
    count=$#
    while [ $count -gt 0 ]; do
        word=$1 count=$((count - 1))
        shift
        case $word in
        --from | --events | --next-event) shift; count=$((count - 1)) ;;
        *) set -- "$@" "$word" ;;
        esac
    done
    {saggar} "$@" >&2
    kill -9 $PPID
    exit 1 ;;
esac
exec {saggar} "$@"
"#,
            mode = mode.display(),
            saggar = saggar_program().display(),
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let arguments = ["--saggar", program.to_str().unwrap()];
        FaultyScene { scene: Scene::start_with(directory, &arguments), mode }
    }
}

/// The `source` of the last resume.
fn source(scene: &Scene, session: &str) -> String {
    let path = format!("/api/sessions/{session}/events?type=lifecycle");
    let events = scene.server.client().get(&path).expect(200);
    let last = events["events"].as_array().unwrap().iter().rev().find_map(|event| {
        let data: Value = serde_json::from_str(event["data"].as_str()?).ok()?;
        Some(data["source"].as_str()?.to_owned())
    });
    last.unwrap()
}

#[test]
fn restore_that_was_killed_is_repeated() {
    let FaultyScene { mut scene, mode } = FaultyScene::start();
    let (session, before) = stopped_session(&mut scene.server);
    scene.server.move_to("second");
    let stored = scene.objects(&session);
    fs::write(&mode, "kill").unwrap();
    let client = scene.server.client();
    let path = format!("/api/sessions/{session}/resume");
    let resumed = std::thread::spawn(move || client.post(&path, &json!({})).status).join();
    assert!(resumed.is_err(), "the server was not killed: {resumed:?}");
    scene.server.stop(Signal::KILL);

    scene.server.restart();
    let client = scene.server.client();
    wait_for_copies(&client);
    assert_eq!(scene.objects(&session), stored);
    client.get(&format!("/api/sessions/{session}/files")).expect(404);
    change(&client, &session, "resume");
    assert_eq!(source(&scene, &session), "cloud");
    assert_eq!(read(&client, &session, "file"), "one\n");
    assert!(remembers(&client, &session));
    change(&client, &session, "stop");
    let after: Vec<Frame> =
        client.stream(&session, 0).filter(|frame| frame.event != "session_start").collect();
    assert_eq!(after[..before.len()], before);
}

#[test]
fn resume_that_fails_elsewhere_leaves_the_first_machine_in_use() {
    let FaultyScene { mut scene, mode } = FaultyScene::start();
    let (session, _) = stopped_session(&mut scene.server);
    scene.server.move_to("second");
    fs::write(&mode, "fail").unwrap();
    let refused =
        scene.server.client().post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(500);
    assert!(refused["error"].as_str().unwrap().contains("no room"), "{refused}");
    assert!(scene.server.stop(Signal::TERM).success());
    scene.server.move_to("data");
    let client = scene.server.client();
    change(&client, &session, "resume");
    assert_eq!(source(&scene, &session), "local");
    assert_eq!(read(&client, &session, "file"), "one\n");
}

#[test]
fn copy_with_later_events_is_not_replaced() {
    let scene = Scene::start();
    let session = scene.server.create_session();
    let client = scene.server.client();
    client.run_turn(&session, "my name is Ann");
    wait_for_copies(&client);
    let stored = scene.objects(&session);
    assert_eq!(
        scene
            .server
            .execute("UPDATE sessions SET copy = REPLACE(copy, '\"last_event\":', '\"last_event\":9')"),
        1
    );
    client.run_turn(&session, "again");
    change(&client, &session, "stop");
    wait_for_copies(&client);
    assert_eq!(scene.objects(&session), stored);
}

#[test]
fn turn_ends_for_its_client_when_its_session_moves() {
    let mut scene = Scene::start();
    let session = scene.server.create_session();
    let client = scene.server.client();
    let body = json!({ "content": "run: sleep 1000" });
    let mut frames = client.send_once(&session, "k", &body);
    while frames.next().unwrap().event != "tool_use" {}
    assert!(scene.server.stop(Signal::TERM).success());
    scene.server.move_to("second");
    let client = scene.server.client();
    change(&client, &session, "resume");
    let repeated: Vec<Frame> = client.send_once(&session, "k", &body).collect();
    assert!(
        repeated.last().is_some_and(|frame| frame.data.contains("the bridge ended before this command did")),
        "{repeated:?}"
    );
    assert!(client.run_turn(&session, "hello").last().is_some_and(|frame| frame.event == "done"));
}

#[test]
fn due_copies_and_deletions_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().join("store").display());
    let mut server = Server::start();
    let session = server.create_session();
    server.client().run_turn(&session, "my name is Ann");
    server.stop(Signal::KILL);
    // The store is added to an installation that has a session and an agent.
    server.add_arguments(&["--snapshot-url", &url]);
    server.restart();
    let scene = Scene { server, directory };
    let client = scene.server.client();
    wait_for_copies(&client);
    assert_eq!((scene.objects(&session).len(), scene.objects("/agents/").len()), (3, 1));
    // A session without a turn.
    let other =
        client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201)["session"]["id"].clone();
    let other = other.as_str().unwrap().to_owned();
    wait_for_copies(&client);
    assert_eq!(scene.objects(&other).len(), 3);
    let Scene { mut server, directory } = scene;
    write(&client, &session, "file", "changed");
    server.stop(Signal::KILL);
    server.restart();
    let mut scene = Scene { server, directory };
    let client = scene.server.client();
    wait_for_copies(&client);
    assert!(metric(&client, "saggar_snapshot_uploads_total{result=\"ok\"}") > 0);
    client.delete("/api/agents/hello").expect(200);
    scene.server.stop(Signal::KILL);
    scene.server.restart();
    wait_until("the objects are deleted", || scene.objects("").is_empty());
}

#[test]
fn sandbox_that_fails_is_copied() {
    let mut scene = Scene::start();
    let session = scene.server.create_session();
    let client = scene.server.client();
    wait_for_copies(&client);
    let supervisor = scene.server.supervisor(&session);
    client.run_turn(&session, "run: echo late > file");
    rustix::process::kill_process(supervisor, Signal::KILL).unwrap();
    wait_until("the supervisor has exited", || has_exited(supervisor));
    wait_until("the session has no sandbox", || {
        client.get(&format!("/api/sessions/{session}")).expect(200)["session"]["status"] != "active"
    });
    wait_for_copies(&client);
    scene.server.stop(Signal::KILL);
    scene.server.move_to("second");
    let client = scene.server.client();
    change(&client, &session, "resume");
    assert_eq!(read(&client, &session, "file"), "late\n");
}
