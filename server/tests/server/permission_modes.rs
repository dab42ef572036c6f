//! Who answers the permission requests of a session.

use crate::support::{Client, Server, base64, deploy_body, wait_until};
use serde_json::{Value, json};

const BYPASS: &str = "bypassPermissions";

fn create(client: &Client, body: &Value) -> String {
    client.post("/api/sessions", body).expect(201)["session"]["id"].as_str().unwrap().to_owned()
}

/// Whether a client is asked about a call of a tool. If it is, it denies the call.
fn asks(client: &Client, session: &str) -> bool {
    let (mut asked, mut last) = (false, None);
    for frame in client.send(session, &json!({ "content": "ask: echo ran >> ran" })) {
        assert_ne!(frame.event, "error", "{frame:?}");
        last = Some(frame.event.clone());
        if frame.event == "permission_request" {
            asked = true;
            let path =
                format!("/api/sessions/{session}/permissions/{}", frame.json()["id"].as_str().unwrap());
            client.post(&path, &json!({ "behavior": "deny" })).expect(200);
        }
    }
    assert_eq!(last.as_deref(), Some("done"));
    asked
}

/// The number of calls that ran.
fn calls(client: &Client, session: &str) -> usize {
    let body = json!({ "command": "touch ran; cat ran" });
    let output = client.post(&format!("/api/sessions/{session}/exec"), &body).expect(200);
    output["stdout"].as_str().unwrap().lines().count()
}

#[test]
fn bypassing_session_asks_nobody_in_all_of_its_sandboxes_and_its_forks() {
    let server = Server::start();
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let session = create(&client, &json!({ "agent": "hello", "permissionMode": BYPASS }));
    assert!(!asks(&client, &session));
    let path = format!("/api/sessions/{session}");
    client.post(&format!("{path}/stop"), &json!({})).expect(200);
    client.post(&format!("{path}/resume"), &json!({})).expect(200);
    assert!(!asks(&client, &session));
    assert_eq!(calls(&client, &session), 2);
    let fork = client.post(&format!("{path}/fork"), &json!({})).expect(201);
    let fork = fork["session"]["id"].as_str().unwrap();
    client.post(&format!("/api/sessions/{fork}/resume"), &json!({})).expect(200);
    assert!(!asks(&client, fork));
    assert_eq!(calls(&client, fork), 3);
    // The files of the session are removed, and its mode is not.
    client.delete(&path).expect(200);
    let fork = client.post(&format!("{path}/fork"), &json!({})).expect(201);
    let fork = fork["session"]["id"].as_str().unwrap();
    client.post(&format!("/api/sessions/{fork}/resume"), &json!({})).expect(200);
    assert!(!asks(&client, fork));

    for mode in ["default", "permissionsByAgent"] {
        let session = create(&client, &json!({ "agent": "hello", "permissionMode": mode }));
        assert!(asks(&client, &session), "{mode}");
        assert_eq!(calls(&client, &session), 0);
    }
    client.post("/api/sessions", &json!({ "agent": "hello", "permissionMode": "plan" })).expect(400);
}

#[test]
fn rules_of_the_agent_hold_for_a_bypassing_session() {
    let server = Server::start();
    let client = server.client();
    let policy = b"adapter = \"demo\"\n[permissions]\ndeny = [\"Bash\"]\n";
    let files = json!([
        { "path": "CLAUDE.md", "content": base64(b"Deny.") },
        { "path": "saggar.toml", "content": base64(policy) },
    ]);
    client.post("/api/agents", &json!({ "name": "strict", "files": files })).expect(201);
    let session = create(&client, &json!({ "agent": "strict", "permissionMode": BYPASS }));
    assert!(!asks(&client, &session));
    assert_eq!(calls(&client, &session), 0);
}

#[test]
fn mode_of_the_settings_holds_for_sessions_without_one_and_for_warm_sandboxes() {
    let server = Server::start_with(&[], &[("ASH_PERMISSION_MODE", BYPASS)]);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let session = create(&client, &json!({ "agent": "hello" }));
    assert!(!asks(&client, &session));
    assert_eq!(calls(&client, &session), 1);

    client.patch("/api/agents/hello/config", &json!({ "preWarmCount": 1 })).expect(200);
    let pool = || client.get("/health").expect(200)["pool"].take();
    wait_until("a warm sandbox has started", || pool()["warm"] == 1);
    // Its sandbox has another policy.
    let asking = create(&client, &json!({ "agent": "hello", "permissionMode": "default" }));
    assert_eq!(pool()["preWarmHits"], 0);
    assert!(asks(&client, &asking));
    let warm = create(&client, &json!({ "agent": "hello", "permissionMode": BYPASS }));
    assert_eq!(pool()["preWarmHits"], 1);
    assert!(!asks(&client, &warm));
    assert_eq!(calls(&client, &warm), 1);
}
