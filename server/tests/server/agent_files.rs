//! Configuration and files of agents.

use crate::support::{Client, Server, deploy_body, hello_folder};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

const FILES: &str = "/api/agents/made/files";

fn deploy(client: &Client) {
    let files = json!([
        { "path": "saggar.toml", "content": STANDARD.encode("adapter = \"demo\"\n") },
        { "path": "skills/a.md", "content": STANDARD.encode("skill") },
    ]);
    client.post("/api/agents", &json!({ "name": "made", "files": files })).expect(201);
}

fn upload(path: &str, content: &[u8]) -> Value {
    json!({ "files": [{ "path": path, "content": STANDARD.encode(content) }] })
}

fn listed(client: &Client, agent: &str) -> Vec<String> {
    let files = client.get(&format!("/api/agents/{agent}/files")).expect(200);
    let paths = files["files"].as_array().unwrap().iter();
    paths.map(|file| file["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn config_is_merged_by_top_level_key() {
    let server = Server::start();
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let path = "/api/agents/hello/config";
    assert_eq!(client.get(path).expect(200), json!({ "config": {} }));
    client.patch(path, &json!({ "model": "m", "x": { "a": 1 } })).expect(200);
    let config = json!({ "config": { "model": "m", "x": 2 } });
    assert_eq!(client.patch(path, &json!({ "x": 2 })).expect(200), config);
    assert_eq!(client.get(path).expect(200), config);
    assert_eq!(client.get("/api/agents/hello").expect(200)["agent"]["config"], config["config"]);
    client.patch(path, &json!([1])).expect(400);
    let error = client.patch("/api/agents/none/config", &json!({})).expect(404);
    assert_eq!(error, json!({ "error": "Agent not found", "statusCode": 404 }));
    client.get("/api/agents/none/config").expect(404);
}

#[test]
fn uploaded_files_reach_next_session() {
    let server = Server::start();
    let client = server.client();
    deploy(&client);
    assert_eq!(listed(&client, "made"), ["CLAUDE.md", "saggar.toml", "skills/a.md"]);
    let written = client.post(FILES, &upload("skills/ü b.md", b"new")).expect(200);
    assert_eq!(written, json!({ "written": 1 }));
    let file = client.get(&format!("{FILES}/skills/%C3%BC%20b.md")).expect(200);
    assert_eq!(file, json!({ "path": "skills/ü b.md", "content": "new", "size": 3 }));
    let files = client.get(FILES).expect(200);
    let entry = files["files"].as_array().unwrap().iter().find(|file| file["path"] == "skills/ü b.md");
    assert_eq!(entry.unwrap()["size"], 3);
    assert!(entry.unwrap()["modifiedAt"].as_str().unwrap().ends_with('Z'));
    let session = client.post("/api/sessions", &json!({ "agent": "made" })).expect(201);
    let exec = format!("/api/sessions/{}/exec", session["session"]["id"].as_str().unwrap());
    let output = client.post(&exec, &json!({ "command": "cat skills/*b.md" })).expect(200);
    assert_eq!(output["stdout"], "new");

    assert_eq!(client.delete(&format!("{FILES}/skills/a.md")).expect(200), json!({ "deleted": true }));
    let error = client.delete(&format!("{FILES}/skills/a.md")).expect(404);
    assert_eq!(error, json!({ "error": "File not found", "statusCode": 404 }));
    assert_eq!(listed(&client, "made"), ["CLAUDE.md", "saggar.toml", "skills/ü b.md"]);
}

#[test]
fn files_are_returned_as_text_or_bytes() {
    let server = Server::start();
    let client = server.client();
    deploy(&client);
    // More than the limit of other bodies, so that the upload needs its own.
    let large = vec![b'x'; 3 << 20];
    client.post(FILES, &upload("large", &large)).expect(200);
    client.post(FILES, &upload("b\"in", b"\xff\0")).expect(200);
    let error = client.get(&format!("{FILES}/large")).expect(400);
    assert!(error["error"].as_str().unwrap().starts_with("File too large"), "{error}");
    let error = client.get(&format!("{FILES}/b%22in")).expect(400);
    assert!(error["error"].as_str().unwrap().contains("format=raw"), "{error}");
    let (status, headers, bytes) = client.download(&format!("{FILES}/b%22in?format=raw"));
    assert_eq!((status, &bytes[..]), (200, &b"\xff\0"[..]));
    assert_eq!(headers["content-disposition"], "attachment; filename*=UTF-8''b%22in");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(client.download(&format!("{FILES}/large?format=raw")).2, large);
    client.get(&format!("{FILES}/large?format=xml")).expect(400);
}

#[test]
fn invalid_paths_and_links_are_refused() {
    let server = Server::start();
    let client = server.client();
    deploy(&client);
    let folder = server.data_dir().join("agents/made");
    symlink("/etc", folder.join("etc")).unwrap();
    symlink("/etc/passwd", folder.join("passwd")).unwrap();
    for path in ["..%2Fx", "%2Fetc%2Fpasswd", "a%2F..%2F..%2Fx", "a%00b", "etc/passwd", "passwd"] {
        for raw in ["", "?format=raw"] {
            let error = client.get(&format!("{FILES}/{path}{raw}")).expect(400);
            assert!(error["error"].as_str().unwrap().starts_with("Invalid file path"), "{path}: {error}");
        }
    }
    for path in ["../x", "/etc/x", "a/../../x", "a\0b", "", "etc/saggar-test", "etc/passwd"] {
        let error = client.post(FILES, &upload(path, b"x")).expect(400);
        assert!(error["error"].as_str().unwrap().starts_with("Invalid file path"), "{path}: {error}");
    }
    let error = client.get(&format!("{FILES}/skills")).expect(400);
    assert_eq!(error, json!({ "error": "Path is not a file", "statusCode": 400 }));
    client.delete(&format!("{FILES}/etc/passwd")).expect(400);
    client.delete(&format!("{FILES}/skills")).expect(400);
    let error = client.delete(&format!("{FILES}/.%2FCLAUDE.md")).expect(400);
    assert!(error["error"].as_str().unwrap().contains("cannot be deleted"), "{error}");
    assert_eq!(listed(&client, "made"), ["CLAUDE.md", "saggar.toml", "skills/a.md"]);
    assert!(!server.data_dir().join("agents/x").exists());
}

#[test]
fn folder_of_operator_is_read_and_not_changed() {
    let server = Server::start();
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    assert!(listed(&client, "hello").contains(&"CLAUDE.md".to_owned()));
    let file = client.get("/api/agents/hello/files/CLAUDE.md").expect(200);
    assert_eq!(file["content"], fs::read_to_string(hello_folder().join("CLAUDE.md")).unwrap());
    let error = client.post("/api/agents/hello/files", &upload("x", b"x")).expect(400);
    assert!(error["error"].as_str().unwrap().contains("of the operator"), "{error}");
    client.delete("/api/agents/hello/files/saggar.toml").expect(400);
    assert!(hello_folder().join("saggar.toml").exists() && !hello_folder().join("x").exists());

    // A folder that was removed.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("CLAUDE.md"), "x").unwrap();
    client.post("/api/agents", &json!({ "name": "gone", "path": folder.path() })).expect(201);
    drop(folder);
    let error = client.get("/api/agents/gone/files").expect(422);
    assert!(error["error"].as_str().unwrap().contains("deploy the agent again"), "{error}");
    for path in ["/api/agents/none/files", "/api/agents/none/files/CLAUDE.md"] {
        assert_eq!(client.get(path).expect(404)["error"], "Agent not found");
    }
}
