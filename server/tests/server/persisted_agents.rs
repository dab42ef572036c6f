//! Folders of agents in a snapshot store, and the folder that each machine uses.

use crate::persisted_sessions::{Scene, change, read, start_on, wait_for_copies};
use crate::support::s3::S3;
use crate::support::{Client, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;

fn deploy(client: &Client, prompt: &str) {
    client.post("/api/agents", &json!({ "name": "own", "systemPrompt": prompt })).expect(201);
}

fn prompt(client: &Client) -> Value {
    client.get("/api/agents/own/files/CLAUDE.md").expect(200)["content"].clone()
}

/// Creates a session of the agent `own`, and returns its id.
fn create(client: &Client) -> String {
    let created = client.post("/api/sessions", &json!({ "agent": "own" })).expect(201);
    created["session"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn agent_folder_is_restored_on_another_machine() {
    let mut scene = Scene::start();
    let client = scene.server.client();
    client.post("/api/agents", &json!({ "name": "own", "systemPrompt": "Own." })).expect(201);
    let file = json!({ "files": [{ "path": "sub/f", "content": "eA==" }] });
    client.post("/api/agents/own/files", &file).expect(200);
    assert!(scene.server.stop(Signal::TERM).success());
    fs::remove_dir_all(scene.server.data_dir().join("agents")).unwrap();
    scene.server.move_to("second");
    let client = scene.server.client();
    let created = client.post("/api/sessions", &json!({ "agent": "own" })).expect(201);
    let session = created["session"]["id"].as_str().unwrap();
    assert_eq!(
        (read(&client, session, "CLAUDE.md"), read(&client, session, "sub/f")),
        ("Own.".into(), "x".into())
    );
    client.get("/api/agents/own/files/sub/f").expect(200);
    client.delete("/api/agents/own").expect(200);
    wait_until("the objects are deleted", || scene.objects("").is_empty());
}

#[test]
fn deployment_on_another_machine_replaces_the_former_one() {
    let mut scene = Scene::start();
    deploy(&scene.server.client(), "first");
    wait_for_copies(&scene.server.client());
    assert!(scene.server.stop(Signal::TERM).success());
    scene.server.exchange_data("one", "two");
    deploy(&scene.server.client(), "second");
    wait_for_copies(&scene.server.client());
    assert!(scene.server.stop(Signal::TERM).success());
    scene.server.exchange_data("two", "one");
    let client = scene.server.client();
    assert_eq!(prompt(&client), "second");
    assert_eq!(read(&client, &create(&client), "CLAUDE.md"), "second");
    // A deployment here is not replaced by the copy of the former one.
    deploy(&client, "third");
    scene.server.stop(Signal::KILL);
    scene.server.restart();
    let client = scene.server.client();
    wait_for_copies(&client);
    assert_eq!(prompt(&client), "third");
    assert_eq!(
        scene.objects("folder.tar.gz").iter().filter(|file| file.to_str().unwrap().contains("/own/")).count(),
        1
    );
}

#[test]
fn folder_of_an_unfinished_copy_is_copied_by_its_own_machine() {
    let s3 = S3::start();
    let mut server = start_on(&s3);
    deploy(&server.client(), "first");
    wait_for_copies(&server.client());
    s3.hold_uploads();
    deploy(&server.client(), "second");
    s3.wait_for_held_upload();
    server.stop(Signal::KILL);
    s3.release_uploads();

    server.exchange_data("one", "two");
    wait_until("the folder is restored", || prompt(&server.client()) == "first");
    wait_for_copies(&server.client());
    assert!(server.stop(Signal::TERM).success());
    // Now it has the folder when it starts.
    server.restart();
    wait_for_copies(&server.client());
    assert!(server.stop(Signal::TERM).success());

    server.exchange_data("two", "one");
    assert_eq!(prompt(&server.client()), "second");
    wait_for_copies(&server.client());
    assert!(server.stop(Signal::TERM).success());
    server.exchange_data("one", "two");
    assert_eq!(prompt(&server.client()), "second");
}

#[test]
fn applied_changes_are_copied_with_their_agent() {
    let mut scene = Scene::start();
    let client = scene.server.client();
    deploy(&client, "first");
    let session = create(&client);
    client.run_turn(&session, "run: echo one > new");
    change(&client, &session, "stop");
    wait_for_copies(&client);
    client.post(&format!("/api/sessions/{session}/apply"), &json!({})).expect(200);
    wait_for_copies(&client);
    scene.server.stop(Signal::KILL);
    scene.server.move_to("second");
    let client = scene.server.client();
    assert_eq!(read(&client, &create(&client), "new"), "one\n");
}

#[test]
fn folder_of_the_operator_is_used_again_when_it_is_back() {
    let mut scene = Scene::start();
    let [folder, away] = ["placed", "away"].map(|name| scene.directory.path().join(name));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("CLAUDE.md"), "first").unwrap();
    let client = scene.server.client();
    let path = folder.to_str().unwrap();
    client.post("/api/agents", &json!({ "name": "own", "path": path })).expect(201);
    wait_for_copies(&client);
    fs::rename(&folder, &away).unwrap();
    assert!(scene.server.stop(Signal::TERM).success());
    scene.server.restart();
    let client = scene.server.client();
    assert_eq!(read(&client, &create(&client), "CLAUDE.md"), "first");
    assert_eq!(client.get("/api/agents/own").expect(200)["agent"]["path"], path);

    fs::write(away.join("CLAUDE.md"), "second").unwrap();
    fs::rename(&away, &folder).unwrap();
    assert_eq!(read(&client, &create(&client), "CLAUDE.md"), "second");
}
