//! Creation and listing of sessions.

use crate::support::{Server, deploy_body, has_exited, wait_until};
use serde_json::{Value, json};
use std::fs;

fn exec(server: &Server, session: &str, command: &str) -> String {
    let response =
        server.client().post(&format!("/api/sessions/{session}/exec"), &json!({ "command": command }));
    response.expect(200)["stdout"].as_str().unwrap().to_owned()
}

fn create(server: &Server, body: &Value) -> String {
    server.client().post("/api/sessions", body).expect(201)["session"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn session_has_sandbox_until_ended() {
    let server = Server::start();
    let client = server.client();
    let id = server.create_session();
    let path = format!("/api/sessions/{id}");
    let session = client.get(&path).expect(200)["session"].clone();
    assert_eq!((&session["status"], &session["agentName"]), (&json!("active"), &json!("hello")));
    for field in ["runnerId", "parentSessionId", "model"] {
        assert_eq!(session[field], Value::Null, "{field}");
    }
    let supervisor = server.supervisor(&id);
    assert_eq!(session["sandboxId"], server.session_record(&id)["sandbox"]);
    assert_eq!(client.get("/health").expect(200)["activeSandboxes"], 1);

    let ended = client.delete(&path).expect(200);
    assert_eq!(ended["session"]["status"], "ended");
    wait_until("the supervisor has exited", || has_exited(supervisor));
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
fn sessions_are_listed_newest_first() {
    let server = Server::start();
    let client = server.client();
    let first = server.create_session();
    client.post("/api/agents", &deploy_body("other")).expect(201);
    let second = create(&server, &json!({ "agent": "other" }));
    let ids = |path: &str| {
        let listed = client.get(path).expect(200);
        listed["sessions"].as_array().unwrap().iter().map(|session| session["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids("/api/sessions"), [second.as_str(), &first]);
    assert_eq!(ids("/api/sessions?agent=hello&status=active&limit=9"), [first.as_str()]);
    assert_eq!(ids("/api/sessions?limit=1&offset=1"), [first.as_str()]);
    assert!(ids("/api/sessions?status=ended").is_empty());
    assert_eq!(client.get("/api/sessions?limit=1").expect(200)["total"], 2);
    client.get("/api/sessions?limit=0").expect(400);
    assert!(ids("/api/sessions?agent=none").is_empty());
}

#[test]
fn environment_variables_reach_only_the_agent() {
    let server = Server::start();
    let mut body = deploy_body("hello");
    body["env"] = json!({ "A": "of-the-agent", "B": "of-the-agent" });
    server.client().post("/api/agents", &body).expect(201);
    let secret = "s3cret \"quoted\"\n'$HOME'";
    // The last two would configure saggar itself if it inherited them.
    let extra = json!({ "B": secret, "PATH": "/usr/bin:/bin", "SAGGAR_STATE_DIR": "/tmp/none", "XDG_CONFIG_HOME": "/tmp/none" });
    let session = create(&server, &json!({ "agent": "hello", "extraEnv": extra }));
    let print = "printf '%s|%s|%s' \"$A\" \"$B\" \"$XDG_CONFIG_HOME\"";
    assert_eq!(exec(&server, &session, print), format!("of-the-agent|{secret}|/tmp/none"));
    let supervisor = server.supervisor(&session);
    for file in ["cmdline", "environ"] {
        // The environment of a supervisor is not even readable to its own user.
        let bytes = fs::read(format!("/proc/{}/{file}", supervisor.as_raw_nonzero())).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("s3cret"), "{file}");
    }
    let listed = server.client().get("/api/sessions").expect(200);
    assert!(!listed.to_string().contains("s3cret"));
    let refused =
        server.client().post("/api/sessions", &json!({ "agent": "hello", "extraEnv": { "1": "x" } }));
    refused.expect(400);
    // Nothing of them remains on disk when no later start needs them.
    assert!(server.data_dir().join("sessions").join(&session).exists());
    server.client().delete(&format!("/api/sessions/{session}")).expect(200);
    assert!(!server.data_dir().join("sessions").join(&session).exists());
}

#[test]
fn session_prompt_and_mcp_servers_override_those_of_agent() {
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
    let status = |session: &str| {
        let events = client.get(&format!("/api/sessions/{session}/events?type=mcp_status")).expect(200);
        let data = |event: &Value| event["data"].as_str().unwrap().to_owned();
        events["events"].as_array().unwrap().iter().map(data).collect::<Vec<_>>()
    };
    assert_eq!(status(&session), [r#"{"action":"configured","servers":[{"name":"b","transport":"sse"}]}"#]);
    let plain = create(&server, &json!({ "agent": "own" }));
    assert!(status(&plain).is_empty());
    assert_eq!(exec(&server, &plain, "cat CLAUDE.md"), "of the agent");
    assert_eq!(fs::read_to_string(folder.path().join("CLAUDE.md")).unwrap(), "of the agent");
}

#[test]
fn query_options_are_stored() {
    let server = Server::start();
    server.client().post("/api/agents", &deploy_body("hello")).expect(201);
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
fn failed_start_leaves_no_session_and_no_files() {
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
    assert_eq!(fs::read_dir(server.data_dir().join("sessions")).unwrap().count(), 0);
}

#[test]
fn agent_without_a_program_is_an_error_and_not_the_demo_agent() {
    let nothing = tempfile::tempdir().unwrap();
    let nothing = nothing.path().to_str().unwrap();
    let server =
        Server::start_with(&[], &[("XDG_CONFIG_HOME", nothing), ("HOME", nothing), ("PATH", "/nonexistent")]);
    let client = server.client();
    client.post("/api/agents", &json!({ "name": "own", "systemPrompt": "x" })).expect(201);
    let error = client.post("/api/sessions", &json!({ "agent": "own" })).expect(500);
    let text = error["error"].as_str().unwrap();
    for part in ["Failed to create session: ", "claude", "PATH", "agent_cmd", "adapter"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(client.get("/api/sessions").expect(200)["sessions"], json!([]));
    let policy = json!({ "path": "saggar.toml", "content": crate::support::base64(b"adapter = \"demo\"\n") });
    client.post("/api/agents/own/files", &json!({ "files": [policy] })).expect(200);
    client.post("/api/sessions", &json!({ "agent": "own" })).expect(201);
}

#[test]
fn missing_saggar_program_is_named_in_error() {
    let server = Server::start_with(&["--saggar", "/nonexistent/saggar"], &[]);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let error = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(500);
    assert!(error["error"].as_str().unwrap().contains("/nonexistent/saggar"), "{error}");
}

#[test]
fn config_of_a_session_is_merged_and_reaches_later_queries() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/config");
    let set = |body: Value| client.patch(&path, &body).expect(200)["session"].clone();
    let session = set(json!({ "model": "m1", "allowedTools": ["Bash"], "unknown": 1 }));
    assert_eq!((&session["model"], &session["config"]), (&json!("m1"), &json!({ "allowedTools": ["Bash"] })));
    let session = set(json!({ "betas": ["b"], "allowedTools": null }));
    assert_eq!((&session["model"], &session["config"]), (&json!("m1"), &json!({ "betas": ["b"] })));
    assert_eq!(set(json!({ "model": null }))["model"], json!(null));
    assert_eq!(set(json!({}))["config"], json!({ "betas": ["b"] }));
    client.patch(&path, &json!({ "model": 1 })).expect(400);
    client.patch(&path, &json!({ "model": "x".repeat(101) })).expect(400);
    client.patch("/api/sessions/00000000-0000-4000-8000-000000000000/config", &json!({})).expect(404);
}
