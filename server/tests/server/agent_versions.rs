//! Versions of agents.

use crate::support::{Server, deploy_body};
use serde_json::{Value, json};

const VERSIONS: &str = "/api/agents/hello/versions";

/// Starts a session and returns its CLAUDE.md.
fn prompt_of_session(server: &Server, body: &Value) -> String {
    let session = server.client().post("/api/sessions", body).expect(201);
    let path = format!("/api/sessions/{}/exec", session["session"]["id"].as_str().unwrap());
    let output = server.client().post(&path, &json!({ "command": "cat CLAUDE.md" })).expect(200);
    output["stdout"].as_str().unwrap().to_owned()
}

#[test]
fn versions_are_created_updated_and_deleted() {
    let server = Server::start();
    let client = server.client();
    let missing = json!({ "error": "Agent not found", "statusCode": 404 });
    assert_eq!(client.get(VERSIONS).expect(404), missing);
    assert_eq!(client.post(VERSIONS, &json!({})).expect(404), missing);
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    assert_eq!(client.get(VERSIONS).expect(200), json!({ "versions": [] }));

    let body = json!({ "systemPrompt": "p", "releaseNotes": "n", "knowledgeFiles": ["a", "b"] });
    let first = client.post(VERSIONS, &body).expect(201)["version"].clone();
    assert_eq!((&first["versionNumber"], &first["name"]), (&json!(1), &json!("v1")));
    assert_eq!((&first["isActive"], &first["knowledgeFiles"]), (&json!(false), &json!(["a", "b"])));
    let id = first["id"].as_str().unwrap();
    for source in [json!(1), json!("1"), json!(id)] {
        let clone = client.post(VERSIONS, &json!({ "name": "clone", "cloneFrom": source })).expect(201);
        let clone = &clone["version"];
        assert_eq!((&clone["name"], &clone["systemPrompt"]), (&json!("clone"), &json!("p")));
        assert_eq!((&clone["knowledgeFiles"], &clone["releaseNotes"]), (&json!(["a", "b"]), &Value::Null));
    }
    let error = client.post(VERSIONS, &json!({ "cloneFrom": 9 })).expect(400);
    assert_eq!(error, json!({ "error": "Source version 9 not found", "statusCode": 400 }));
    client.post(VERSIONS, &json!({ "name": "x".repeat(256) })).expect(400);

    let listed = client.get(VERSIONS).expect(200);
    let numbers: Vec<_> =
        listed["versions"].as_array().unwrap().iter().map(|version| &version["versionNumber"]).collect();
    assert_eq!(numbers, [4, 3, 2, 1]);
    let by_number = client.get(&format!("{VERSIONS}/1")).expect(200);
    assert_eq!(by_number, json!({ "version": first }));
    assert_eq!(client.get(&format!("{VERSIONS}/{id}")).expect(200), by_number);

    let path = format!("{VERSIONS}/1");
    let updated = client.patch(&path, &json!({ "name": "new", "releaseNotes": null })).expect(200);
    let updated = &updated["version"];
    assert_eq!((&updated["name"], &updated["systemPrompt"]), (&json!("new"), &json!("p")));
    assert_eq!(updated["releaseNotes"], Value::Null);
    assert_eq!(client.delete(&path).expect(200), json!({ "ok": true }));
    let missing = json!({ "error": "Version not found", "statusCode": 404 });
    for path in [path, format!("{VERSIONS}/0"), format!("{VERSIONS}/x"), format!("{VERSIONS}/{id}")] {
        assert_eq!(client.get(&path).expect(404), missing, "{path}");
        assert_eq!(client.delete(&path).expect(404), missing);
        assert_eq!(client.patch(&path, &json!({})).expect(404), missing);
        assert_eq!(client.post(&format!("{path}/activate"), &json!({})).expect(404), missing);
    }
    // The versions of an agent are deleted with it.
    client.delete("/api/agents/hello").expect(200);
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    assert_eq!(client.get(VERSIONS).expect(200), json!({ "versions": [] }));
}

#[test]
fn prompt_of_active_version_is_used_by_new_sessions() {
    let server = Server::start();
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let session = json!({ "agent": "hello" });
    let of_folder = prompt_of_session(&server, &session);
    for prompt in ["first", "second"] {
        client.post(VERSIONS, &json!({ "systemPrompt": prompt })).expect(201);
    }
    client.post(VERSIONS, &json!({ "name": "without prompt" })).expect(201);
    assert_eq!(prompt_of_session(&server, &session), of_folder);
    for (version, prompt) in [(1, "first"), (2, "second"), (3, of_folder.as_str())] {
        let activated =
            client.request("POST", &format!("{VERSIONS}/{version}/activate"), &[], b"").expect(200);
        assert_eq!(activated, json!({ "activated": true, "versionNumber": version }));
        assert_eq!(prompt_of_session(&server, &session), prompt);
    }
    client.post(&format!("{VERSIONS}/1/activate"), &json!({})).expect(200);
    let own = json!({ "agent": "hello", "systemPrompt": "own" });
    assert_eq!(prompt_of_session(&server, &own), "own");
    let listed = client.get(VERSIONS).expect(200);
    let active: Vec<_> =
        listed["versions"].as_array().unwrap().iter().map(|version| version["isActive"].as_bool()).collect();
    assert_eq!(active, [Some(false), Some(false), Some(true)]);
    client.delete(&format!("{VERSIONS}/1")).expect(200);
    assert_eq!(prompt_of_session(&server, &session), of_folder);
}
