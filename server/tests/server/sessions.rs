//! Sessions.

use crate::support::{Server, hello_body, is_gone, wait_until};
use serde_json::{Value, json};
use std::fs;

fn exec(server: &Server, session: &str, command: &str) -> String {
    let answer =
        server.client().post(&format!("/api/sessions/{session}/exec"), &json!({ "command": command }));
    answer.expect(200)["stdout"].as_str().unwrap().to_owned()
}

fn create(server: &Server, body: &Value) -> String {
    server.client().post("/api/sessions", body).expect(201)["session"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_session_is_a_sandbox_until_it_is_ended() {
    let server = Server::start();
    let client = server.client();
    let id = server.session();
    let path = format!("/api/sessions/{id}");
    let session = client.get(&path).expect(200)["session"].clone();
    assert_eq!((&session["status"], &session["agentName"]), (&json!("active"), &json!("hello")));
    for field in ["runnerId", "parentSessionId", "model"] {
        assert_eq!(session[field], Value::Null, "{field}");
    }
    let supervisor = server.supervisor(&id);
    assert_eq!(session["sandboxId"], server.record(&id)["sandbox"]);
    assert_eq!(client.get("/health").expect(200)["activeSandboxes"], 1);

    let ended = client.delete(&path).expect(200);
    assert_eq!(ended["session"]["status"], "ended");
    wait_until("the supervisor is gone", || is_gone(supervisor));
    assert_eq!(client.delete(&path).expect(200)["session"]["status"], "ended");
    assert_eq!(client.get("/health").expect(200)["activeSandboxes"], 0);
    let refused = json!({ "error": "Session is ended", "statusCode": 400 });
    assert_eq!(client.post(&format!("{path}/messages"), &json!({ "content": "x" })).expect(400), refused);
    assert_eq!(client.post(&format!("{path}/exec"), &json!({ "command": "x" })).expect(400), refused);
    let events = client.get(&format!("{path}/events?type=lifecycle")).expect(200);
    let actions: Vec<Value> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            serde_json::from_str::<Value>(event["data"].as_str().unwrap()).unwrap()["action"].clone()
        })
        .collect();
    assert_eq!(actions, ["created", "ended"]);
}

#[test]
fn sessions_are_listed_with_the_newest_first() {
    let server = Server::start();
    let client = server.client();
    let first = server.session();
    client.post("/api/agents", &hello_body("other")).expect(201);
    let second = create(&server, &json!({ "agent": "other" }));
    let ids = |path: &str| {
        let listed = client.get(path).expect(200);
        listed["sessions"].as_array().unwrap().iter().map(|session| session["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids("/api/sessions"), [second.as_str(), &first]);
    assert_eq!(ids("/api/sessions?agent=hello&status=active&limit=9"), [first.as_str()]);
    assert!(ids("/api/sessions?agent=none").is_empty());
}

#[test]
fn variables_reach_the_agent_and_nothing_else() {
    let server = Server::start();
    let mut body = hello_body("hello");
    body["env"] = json!({ "A": "of-the-agent", "B": "of-the-agent" });
    server.client().post("/api/agents", &body).expect(201);
    let secret = "s3cret \"quoted\"\n'$HOME'";
    // Variables that would change what saggar itself does are the agent's alone.
    let extra = json!({ "B": secret, "PATH": "/usr/bin:/bin", "SAGGAR_STATE_DIR": "/tmp/none", "XDG_CONFIG_HOME": "/tmp/none" });
    let session = create(&server, &json!({ "agent": "hello", "extraEnv": extra }));
    let print = "printf '%s|%s|%s' \"$A\" \"$B\" \"$XDG_CONFIG_HOME\"";
    assert_eq!(exec(&server, &session, print), format!("of-the-agent|{secret}|/tmp/none"));
    let supervisor = server.supervisor(&session);
    for file in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{}/{file}", supervisor.as_raw_nonzero())).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("s3cret"), "{file}");
    }
    let listed = server.client().get("/api/sessions").expect(200);
    assert!(!listed.to_string().contains("s3cret"));
    let refused =
        server.client().post("/api/sessions", &json!({ "agent": "hello", "extraEnv": { "1": "x" } }));
    refused.expect(400);
}

#[test]
fn a_prompt_and_servers_of_the_session_stand_before_those_of_the_agent() {
    let server = Server::start();
    let client = server.client();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("CLAUDE.md"), "of the agent").unwrap();
    fs::write(folder.path().join("saggar.toml"), "adapter = \"demo\"\n").unwrap();
    fs::write(folder.path().join(".mcp.json"), r#"{"mcpServers":{"a":{"url":"1"},"b":{"url":"1"}}}"#)
        .unwrap();
    client.post("/api/agents", &json!({ "name": "own", "path": folder.path() })).expect(201);
    let session = create(
        &server,
        &json!({ "agent": "own", "systemPrompt": "of the session", "mcpServers": { "b": { "url": "2" } } }),
    );
    assert_eq!(exec(&server, &session, "cat CLAUDE.md"), "of the session");
    let servers: Value = serde_json::from_str(&exec(&server, &session, "cat .mcp.json")).unwrap();
    assert_eq!(servers, json!({ "mcpServers": { "a": { "url": "1" }, "b": { "url": "2" } } }));
    let plain = create(&server, &json!({ "agent": "own" }));
    assert_eq!(exec(&server, &plain, "cat CLAUDE.md"), "of the agent");
    assert_eq!(fs::read_to_string(folder.path().join("CLAUDE.md")).unwrap(), "of the agent");
}

#[test]
fn options_of_queries_are_kept() {
    let server = Server::start();
    server.client().post("/api/agents", &hello_body("hello")).expect(201);
    let options = json!({ "agent": "hello", "model": "m", "allowedTools": ["Read"], "betas": ["b"], "initialAgent": "x" });
    let session = create(&server, &options);
    let session = server.client().get(&format!("/api/sessions/{session}")).expect(200);
    assert_eq!(session["session"]["model"], "m");
    assert_eq!(
        session["session"]["config"],
        json!({ "allowedTools": ["Read"], "betas": ["b"], "initialAgent": "x" })
    );
}

#[test]
fn nothing_is_left_of_a_session_that_did_not_start() {
    let server = Server::start();
    let client = server.client();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("CLAUDE.md"), "x").unwrap();
    client.post("/api/agents", &json!({ "name": "own", "path": folder.path() })).expect(201);
    fs::write(folder.path().join("saggar.toml"), "agent_cmd = \"/nonexistent\"\n").unwrap();
    let extra = json!({ "agent": "own", "extraEnv": { "A": "1" } });
    let error = client.post("/api/sessions", &extra).expect(500);
    assert!(error["error"].as_str().unwrap().starts_with("Failed to create session: "), "{error}");
    assert!(error["error"].as_str().unwrap().contains("/nonexistent"), "{error}");
    fs::remove_dir_all(folder.path()).unwrap();
    let error = client.post("/api/sessions", &json!({ "agent": "own", "systemPrompt": "x" })).expect(422);
    assert!(error["error"].as_str().unwrap().contains("folder"), "{error}");
    let error = client.post("/api/sessions", &json!({ "agent": "own" })).expect(422);
    assert!(error["error"].as_str().unwrap().contains("folder"), "{error}");
    assert_eq!(client.get("/api/sessions").expect(200)["sessions"], json!([]));
    assert_eq!(server.saggar(&["list", "--json"]), "");
    assert_eq!(fs::read_dir(server.data().join("sessions")).unwrap().count(), 0);
}

#[test]
fn a_server_without_saggar_says_what_is_missing() {
    let server = Server::start_with(&["--saggar", "/nonexistent/saggar"], &[]);
    let client = server.client();
    client.post("/api/agents", &hello_body("hello")).expect(201);
    let error = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(500);
    assert!(error["error"].as_str().unwrap().contains("/nonexistent/saggar"), "{error}");
}
