//! Deployment, update and deletion of agents.

use crate::support::{Client, Server, base64, deploy_body, has_exited, hello_folder, wait_until};
use serde_json::json;
use std::fs;

#[test]
fn agent_folder_deployed_twice_increments_version() {
    let server = Server::start();
    let client = server.client();
    let mut body = deploy_body("hello");
    body["env"] = json!({ "SECRET": "value-of-it" });
    // Clients of Ash send further fields.
    body["model"] = json!("x");
    let first = client.post("/api/agents", &body).expect(201);
    let first = &first["agent"];
    assert_eq!(
        (&first["version"], &first["name"], &first["tenantId"]),
        (&json!(1), &json!("hello"), &json!("default"))
    );
    assert_eq!(first["path"], json!(hello_folder()));
    assert_eq!(first["env"], json!({ "SECRET": "***" }));
    let again = client.post("/api/agents", &deploy_body("hello")).expect(201);
    assert_eq!((&again["agent"]["version"], &again["agent"]["id"]), (&json!(2), &first["id"]));
    assert_eq!(client.get("/api/agents/hello").expect(200), again);
    client.post("/api/agents", &deploy_body("another")).expect(201);
    let listed = client.get("/api/agents").expect(200);
    let names: Vec<_> = listed["agents"].as_array().unwrap().iter().map(|agent| &agent["name"]).collect();
    assert_eq!(names, ["another", "hello"]);
    assert!(!listed.to_string().contains("value-of-it"));
}

#[test]
fn deployed_files_replace_previous_folder() {
    let server = Server::start();
    let client = server.client();
    let files = json!([
        { "path": "CLAUDE.md", "content": base64(b"first") },
        { "path": "skills/a.md", "content": base64(b"skill") },
        { "path": "saggar.toml", "content": base64(b"adapter = \"demo\"\n") },
    ]);
    let agent = client.post("/api/agents", &json!({ "name": "made", "files": files })).expect(201);
    let folder = server.data_dir().join("agents/made");
    assert_eq!(agent["agent"]["path"], json!(folder));
    assert_eq!(fs::read_to_string(folder.join("skills/a.md")).unwrap(), "skill");
    let session = client.post("/api/sessions", &json!({ "agent": "made" })).expect(201);
    let id = session["session"]["id"].as_str().unwrap();
    let exec = client.post(&format!("/api/sessions/{id}/exec"), &json!({ "command": "cat skills/a.md" }));
    assert_eq!(exec.expect(200)["stdout"], "skill");

    let prompt = json!({ "name": "made", "systemPrompt": "second" });
    assert_eq!(client.post("/api/agents", &prompt).expect(201)["agent"]["version"], 2);
    assert_eq!(fs::read_to_string(folder.join("CLAUDE.md")).unwrap(), "second");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(fs::read_dir(server.data_dir().join("agents")).unwrap().count(), 1);
}

#[test]
fn file_paths_outside_agent_folder_are_rejected() {
    let server = Server::start();
    let client = server.client();
    for path in ["../x", "a/../../x", "/etc/x", "", "."] {
        let body = json!({ "name": "bad", "files": [{ "path": path, "content": base64(b"x") }] });
        let error = client.post("/api/agents", &body).expect(400);
        assert!(error["error"].as_str().unwrap().starts_with("Invalid file path"), "{error}");
    }
    let body = json!({ "name": "bad", "files": [{ "path": "x", "content": "no base64!" }] });
    assert!(client.post("/api/agents", &body).expect(400)["error"].as_str().unwrap().contains("base64"));
    client.get("/api/agents/bad").expect(404);
    assert!(!server.data_dir().join("agents").exists() && !server.data_dir().join("x").exists());
}

#[test]
fn invalid_agents_are_rejected() {
    let server = Server::start();
    let client = server.client();
    for name in ["", "a b", "../a", "a/b", "a.b", "ä", &"x".repeat(256)] {
        let error = client.post("/api/agents", &deploy_body(name)).expect(400);
        assert!(error["message"].as_str().unwrap().contains("name"), "{error}");
    }
    let empty = tempfile::tempdir().unwrap();
    let error = client.post("/api/agents", &json!({ "name": "a", "path": empty.path() })).expect(400);
    assert_eq!(error, json!({ "error": "Agent directory must contain CLAUDE.md", "statusCode": 400 }));
    let error = client.post("/api/agents", &json!({ "name": "a", "path": "agents/none" })).expect(400);
    assert_eq!(error["error"], "Agent directory must contain CLAUDE.md");
    let mut body = deploy_body("a");
    body["env"] = json!({ "A B": "x" });
    assert!(client.post("/api/agents", &body).expect(400)["error"].as_str().unwrap().contains("A B"));
    assert_eq!(client.get("/api/agents").expect(200)["agents"], json!([]));
}

#[test]
fn agent_update_replaces_variables_and_merges_config() {
    let server = Server::start();
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let body = json!({ "env": { "B": "2" }, "config": { "model": "m", "x": { "a": 1 } } });
    client.patch("/api/agents/hello", &body).expect(200);
    let agent = client.patch("/api/agents/hello", &json!({ "config": { "x": 2 } })).expect(200);
    assert_eq!(agent["agent"]["config"], json!({ "model": "m", "x": 2 }));
    assert_eq!((&agent["agent"]["env"], &agent["agent"]["version"]), (&json!({ "B": "***" }), &json!(1)));
    client.patch("/api/agents/none", &body).expect(404);
    let session = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    assert_eq!(session["session"]["model"], "m");
}

#[test]
fn deleted_agent_removes_its_sessions_and_sandboxes() {
    let server = Server::start();
    let client = server.client();
    let error = client.delete("/api/agents/hello").expect(404);
    assert_eq!(error, json!({ "error": "Agent not found", "statusCode": 404 }));
    let session = server.create_session();
    let supervisor = server.supervisor(&session);
    assert_eq!(client.delete("/api/agents/hello").expect(200), json!({ "ok": true }));
    client.get("/api/agents/hello").expect(404);
    client.get(&format!("/api/sessions/{session}")).expect(404);
    wait_until("the supervisor has exited", || has_exited(supervisor));
    assert_eq!(server.saggar(&["list", "--json"]), "");
    assert_eq!(fs::read_dir(server.data_dir().join("sessions")).unwrap().count(), 0);
    assert!(hello_folder().join("CLAUDE.md").exists());
}

#[test]
fn folder_above_the_data_directory_is_rejected() {
    let server = Server::start_with(&[], &[("ASH_INTERNAL_SECRET", "secret")]);
    let above = server.data_dir().parent().unwrap().to_owned();
    fs::write(above.join("CLAUDE.md"), "x").unwrap();
    let deploy = |client: &Client, path: &std::path::Path| {
        client.post("/api/agents", &json!({ "name": "above", "path": path })).status
    };
    assert_eq!(deploy(&server.client(), &above), 400);
    // Another tenant has no folder of the host at all.
    let internal = server.client_with(Some("secret"));
    let key = internal.post("/api/internal/api-keys", &json!({ "tenantId": "t2" }));
    let key = key.expect(200)["key"].as_str().unwrap().to_owned();
    let other = server.client_with(Some(&key));
    let apart = tempfile::tempdir().unwrap();
    fs::write(apart.path().join("CLAUDE.md"), "x").unwrap();
    assert_eq!((deploy(&other, apart.path()), deploy(&server.client(), apart.path())), (400, 201));
    other.post("/api/agents", &json!({ "name": "own", "systemPrompt": "x" })).expect(201);
}
