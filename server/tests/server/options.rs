//! The options of sessions and messages, as the agent receives them.

use crate::queue::{enqueue, wait_for_status};
use crate::support::{Client, Frame, Server, wait_until};
use rustix::process::Signal;
use serde_json::{Map, Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Appends each command that it hears to the file `heard` of its workspace, and completes it.
const AGENT: &str = r#"#!/usr/bin/python3
import json, os, socket
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ["ASH_BRIDGE_SOCKET"])
server.listen(1)
peer, _ = server.accept()
peer.sendall(b'{"ev":"ready"}\n')
def send(event):
    peer.sendall(json.dumps(event).encode() + b"\n")
for line in peer.makefile("rb"):
    command = json.loads(line)
    with open("heard", "ab") as heard:
        heard.write(line)
    if command["cmd"] == "query":
        send({"ev": "message", "data": {"type": "result", "subtype": "success", "is_error": False}})
    if command["cmd"] in ("query", "resume"):
        send({"ev": "done", "sessionId": command["sessionId"]})
    elif command["cmd"] == "shutdown":
        break
"#;

/// Deploys the agent `listener`, which is in `folder`.
fn deploy(client: &Client, folder: &Path) {
    fs::write(folder.join("CLAUDE.md"), "Listen.").unwrap();
    fs::write(folder.join("saggar.toml"), "adapter = \"bridge\"\nagent_cmd = \"./agent\"\n").unwrap();
    fs::write(folder.join("agent"), AGENT).unwrap();
    fs::set_permissions(folder.join("agent"), fs::Permissions::from_mode(0o755)).unwrap();
    client.post("/api/agents", &json!({ "name": "listener", "path": folder })).expect(201);
}

/// The options of a session that reach the agent unchanged.
fn session_options() -> Map<String, Value> {
    let options = json!({
        "model": "m-1",
        "permissionMode": "default",
        "allowedTools": ["Bash(git log:*)", "Read"],
        "disallowedTools": ["WebFetch"],
        "betas": ["context-1m-2025-08-07"],
        "subagents": { "reviewer": { "description": "Reviews.", "prompt": "Be strict, \"always\"." } },
        "initialAgent": "reviewer",
    });
    options.as_object().unwrap().clone()
}

/// The options of a message that reach the agent unchanged.
fn message_options() -> Map<String, Value> {
    let options = json!({
        "includePartialMessages": true,
        "maxTurns": 7,
        "maxBudgetUsd": 0.25,
        "effort": "high",
        "thinking": { "type": "enabled", "budgetTokens": 2048 },
        "outputFormat": { "type": "json_schema", "schema": { "type": "object", "required": ["a"] } },
    });
    options.as_object().unwrap().clone()
}

/// Sends a message, and returns the query that the agent heard, without what the server adds for itself.
fn heard_query(
    client: &Client,
    session: &str,
    content: &Value,
    options: &Map<String, Value>,
) -> Map<String, Value> {
    let mut body = options.clone();
    body.insert("content".into(), content.clone());
    let frames: Vec<Frame> = client.send(session, &Value::Object(body)).collect();
    assert_eq!(frames.last().unwrap().event, "done", "{frames:?}");
    assert!(frames.iter().all(|frame| frame.event != "error"), "{frames:?}");
    last_heard_query(client, session)
}

/// The last query that the agent heard, without what the server adds for itself.
fn last_heard_query(client: &Client, session: &str) -> Map<String, Value> {
    let heard = client.get(&format!("/api/sessions/{session}/files/heard?format=json")).expect(200);
    let last = heard["content"].as_str().unwrap().lines().last().unwrap().to_owned();
    let mut query: Map<String, Value> = serde_json::from_str(&last).unwrap();
    assert_eq!((&query["cmd"], &query["sessionId"]), (&json!("query"), &json!(session)), "{last}");
    for own in ["cmd", "sessionId", "id", "uuid"] {
        query.remove(own);
    }
    query
}

/// The query of these options.
fn query(prompt: &Value, options: &[&Map<String, Value>]) -> Map<String, Value> {
    let mut query: Map<String, Value> = options.iter().flat_map(|options| (*options).clone()).collect();
    query.insert("prompt".into(), prompt.clone());
    query
}

fn create_session(client: &Client, options: &Map<String, Value>) -> String {
    let mut body = options.clone();
    body.insert("agent".into(), "listener".into());
    let created = client.post("/api/sessions", &Value::Object(body)).expect(201);
    created["session"]["id"].as_str().unwrap().to_owned()
}

/// Checks that the agent hears the options of the session with each query, and those of a message with that one only.
#[track_caller]
fn check_queries(client: &Client, session: &str, options: &Map<String, Value>) {
    let (prompt, of_message) = (json!("one"), message_options());
    assert_eq!(heard_query(client, session, &prompt, &Map::new()), query(&prompt, &[options]));
    assert_eq!(heard_query(client, session, &prompt, &of_message), query(&prompt, &[options, &of_message]));
    assert_eq!(heard_query(client, session, &prompt, &Map::new()), query(&prompt, &[options]));
}

#[test]
fn agent_hears_the_options_of_its_session_with_each_query() {
    let mut server = Server::start();
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    deploy(&client, folder.path());
    let plain = create_session(&client, &Map::new());
    check_queries(&client, &plain, &Map::new());

    let options = session_options();
    let session = create_session(&client, &options);
    let path = format!("/api/sessions/{session}");
    check_queries(&client, &session, &options);

    client.post(&format!("{path}/stop"), &json!({})).expect(200);
    client.post(&format!("{path}/resume"), &json!({})).expect(200);
    check_queries(&client, &session, &options);

    for signal in [Signal::TERM, Signal::KILL] {
        server.stop(signal);
        server.restart();
        let client = server.client();
        wait_until("the session is known", || client.get(&path).status == 200);
        if client.get(&path).expect(200)["session"]["status"] != "active" {
            client.post(&format!("{path}/resume"), &json!({})).expect(200);
        }
        check_queries(&client, &session, &options);
    }

    let client = server.client();
    let fork = client.post(&format!("{path}/fork"), &json!({})).expect(201);
    let fork = fork["session"]["id"].as_str().unwrap();
    client.post(&format!("/api/sessions/{fork}/resume"), &json!({})).expect(200);
    check_queries(&client, fork, &options);
    // Those of the parent are its own.
    let change = json!({ "model": "m-2", "allowedTools": null, "betas": ["b"] });
    client.patch(&format!("/api/sessions/{fork}/config"), &change).expect(200);
    let mut changed = options.clone();
    changed.remove("allowedTools");
    changed.extend([("model".to_owned(), json!("m-2")), ("betas".to_owned(), json!(["b"]))]);
    check_queries(&client, fork, &changed);
    check_queries(&client, &session, &options);
}

#[test]
fn agent_hears_the_options_in_a_warm_sandbox_and_from_the_queue() {
    let server = Server::start();
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    deploy(&client, folder.path());
    let of_agent = json!({ "preWarmCount": 1, "model": "m-0" });
    client.patch("/api/agents/listener/config", &of_agent).expect(200);
    let warm = || client.get("/health").expect(200)["pool"]["warm"].as_u64();
    let mut options = session_options();
    for model in [Some("m-1"), None] {
        wait_until("a sandbox is warm", || warm() == Some(1));
        let listed = server.saggar(&["list", "--json"]);
        let mut requested = options.clone();
        requested.remove("model");
        requested.extend(model.map(|model| ("model".to_owned(), json!(model))));
        let session = create_session(&client, &requested);
        assert!(listed.contains(&session), "{session} has a sandbox of its own: {listed}");
        // Without a model of its own, the session has that of its agent.
        options.insert("model".into(), json!(model.unwrap_or("m-0")));
        check_queries(&client, &session, &options);

        let item = json!({ "agentName": "listener", "prompt": "queued", "sessionId": session });
        wait_for_status(&client, &enqueue(&client, &item), "completed");
        assert_eq!(last_heard_query(&client, &session), query(&json!("queued"), &[&options]));
    }
}

#[test]
fn option_of_a_message_takes_precedence_over_that_of_its_session() {
    let server = Server::start();
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    deploy(&client, folder.path());
    let (options, prompt) = (session_options(), json!("one"));
    let session = create_session(&client, &options);
    let own = json!({ "model": "m-3" }).as_object().unwrap().clone();
    assert_eq!(heard_query(&client, &session, &prompt, &own), query(&prompt, &[&options, &own]));
    assert_eq!(heard_query(&client, &session, &prompt, &Map::new()), query(&prompt, &[&options]));
    // What is no option of a message is none of the query.
    let foreign =
        json!({ "permissionMode": "plan", "allowedTools": ["Bash"], "cmd": "shutdown", "sessionId": "s" });
    let heard = heard_query(&client, &session, &prompt, foreign.as_object().unwrap());
    assert_eq!(heard, query(&prompt, &[&options]));
}

#[test]
fn agent_hears_the_content_of_a_message_as_it_was_sent() {
    let server = Server::start();
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    deploy(&client, folder.path());
    let session = create_session(&client, &Map::new());
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" });
    for content in [
        json!(""),
        json!("two\nlines, \"quotes\", \u{0}\u{2028} and \u{1f600}"),
        json!("{\"cmd\":\"shutdown\"}"),
        json!([{ "type": "text", "text": "look" }, { "type": "image", "source": source }]),
        json!([{ "type": "unknown", "nested": { "z": [1, 2.5, null, true], "a": {} } }]),
        json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "a" }]),
    ] {
        assert_eq!(heard_query(&client, &session, &content, &Map::new()), query(&content, &[]));
    }
}

#[test]
fn agent_hears_the_permission_mode_of_the_settings_unless_its_session_has_one() {
    let server = Server::start_with(&[], &[("ASH_PERMISSION_MODE", "default")]);
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    deploy(&client, folder.path());
    let mode = |name: &str| json!({ "permissionMode": name }).as_object().unwrap().clone();
    let session = create_session(&client, &Map::new());
    check_queries(&client, &session, &mode("default"));
    for name in ["permissionsByAgent", "bypassPermissions"] {
        let session = create_session(&client, &mode(name));
        check_queries(&client, &session, &Map::new());
    }
}
