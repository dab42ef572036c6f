//! Sandboxes that are started ahead of their sessions.

use crate::support::{Client, Server, deploy_body, settings_file, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

fn pool(client: &Client) -> Value {
    client.get("/health").expect(200)["pool"].clone()
}

fn wait_until_warm(client: &Client, count: u64) {
    wait_until("the warm sandboxes have started", || pool(client)["warm"] == count);
}

/// Names of the sessions that saggar knows: those of warm sandboxes too.
fn records(server: &Server) -> Vec<String> {
    let listed = server.saggar(&["list", "--json"]);
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    listed.lines().map(id).collect()
}

fn session_id(created: &Value) -> String {
    created["session"]["id"].as_str().unwrap().to_owned()
}

fn exec(client: &Client, session: &str, command: &str) -> String {
    let body = json!({ "command": command });
    let response = client.post(&format!("/api/sessions/{session}/exec"), &body).expect(200);
    response["stdout"].as_str().unwrap().to_owned()
}

/// Deploys the demo agent with one warm sandbox and these variables.
fn deploy(client: &Client, env: &Value) {
    let mut body = deploy_body("hello");
    body["env"] = env.clone();
    client.post("/api/agents", &body).expect(201);
    client.patch("/api/agents/hello/config", &json!({ "preWarmCount": 1 })).expect(200);
}

#[test]
fn session_starts_in_the_warm_sandbox_and_another_one_is_started() {
    let server = Server::start();
    let client = server.client();
    deploy(&client, &json!({ "FROM": "agent" }));
    wait_until_warm(&client, 1);
    let [warm] = <[String; 1]>::try_from(records(&server)).unwrap();
    // It is no session of a client.
    assert_eq!(client.get("/api/sessions").expect(200)["total"], 0);
    client.get(&format!("/api/sessions/{warm}")).expect(404);

    let options = json!({ "agent": "hello", "model": "m", "allowedTools": ["Read"] });
    let created = client.post("/api/sessions", &options).expect(201);
    assert_eq!(session_id(&created), warm);
    assert_eq!(
        (&created["session"]["status"], &created["session"]["model"]),
        (&json!("active"), &json!("m"))
    );
    assert_eq!(created["session"]["sandboxId"], server.session_record(&warm)["sandbox"]);
    assert_eq!(exec(&client, &warm, "echo $FROM"), "agent\n");
    assert_eq!(client.run_turn(&warm, "hi").last().unwrap().event, "done");
    wait_until_warm(&client, 1);
    assert_eq!(pool(&client)["preWarmHits"], 1);
    let metrics = client.download("/metrics").2;
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("ash_resume_total{path=\"prewarm\"} 1\n"), "{metrics}");
    assert!(metrics.contains("ash_pool_sandboxes{state=\"warm\"} 1\n"), "{metrics}");
}

#[test]
fn session_with_its_own_variables_or_files_gets_a_sandbox_of_its_own() {
    let server = Server::start();
    let client = server.client();
    deploy(&client, &json!({}));
    wait_until_warm(&client, 1);
    let [warm] = <[String; 1]>::try_from(records(&server)).unwrap();
    let secret = json!({ "type": "custom", "key": "k" });
    let credential = client.post("/api/credentials", &secret).expect(201)["credential"]["id"].clone();
    for own in [
        json!({ "extraEnv": { "OWN": "1" } }),
        json!({ "systemPrompt": "own" }),
        json!({ "mcpServers": {} }),
        json!({ "credentialId": credential }),
    ] {
        let mut body = json!({ "agent": "hello" });
        body.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        assert_ne!(session_id(&client.post("/api/sessions", &body).expect(201)), warm, "{own}");
    }
    // Nor is it used for a session that is resumed.
    let created =
        client.post("/api/sessions", &json!({ "agent": "hello", "extraEnv": { "A": "1" } })).expect(201);
    let id = session_id(&created);
    exec(&client, &id, "echo kept > kept");
    client.post(&format!("/api/sessions/{id}/stop"), &json!({})).expect(200);
    client.post(&format!("/api/sessions/{id}/resume"), &json!({})).expect(200);
    assert_eq!(exec(&client, &id, "cat kept; echo $A"), "kept\n1\n");
    assert_eq!((pool(&client)["preWarmHits"].clone(), records(&server).contains(&warm)), (json!(0), true));
    let other = server.client_of_tenant("other");
    other.post("/api/agents", &json!({ "name": "hello", "systemPrompt": "x" })).expect(201);
    let created = other.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    assert_ne!(session_id(&created), warm);
}

#[test]
fn warm_sandbox_of_a_changed_agent_is_not_used() {
    let server = Server::start();
    let client = server.client();
    let body = json!({ "name": "hello", "systemPrompt": "first" });
    client.post("/api/agents", &body).expect(201);
    client.patch("/api/agents/hello/config", &json!({ "preWarmCount": 1 })).expect(200);
    let mut warm = Vec::new();
    let prompt_of_new_session = |expected: &str, warm: &mut Vec<String>| {
        let created = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
        let id = session_id(&created);
        assert!(!warm.contains(&id), "{expected}");
        assert_eq!(exec(&client, &id, "cat CLAUDE.md"), expected);
        warm.extend(records(&server));
    };
    let file = json!({ "files": [{ "path": "CLAUDE.md", "content": crate::support::base64(b"file") }] });
    wait_until_warm(&client, 1);
    warm.extend(records(&server));
    client.post("/api/agents/hello/files", &file).expect(200);
    prompt_of_new_session("file", &mut warm);
    wait_until_warm(&client, 1);
    warm.extend(records(&server));
    client.patch("/api/agents/hello", &json!({ "env": { "OWN": "1" } })).expect(200);
    prompt_of_new_session("file", &mut warm);
    wait_until_warm(&client, 1);
    warm.extend(records(&server));
    client.post("/api/agents", &body).expect(201);
    prompt_of_new_session("first", &mut warm);
    wait_until_warm(&client, 1);
    warm.extend(records(&server));
    let version = json!({ "systemPrompt": "version" });
    client.post("/api/agents/hello/versions", &version).expect(201);
    client.post("/api/agents/hello/versions/1/activate", &json!({})).expect(200);
    prompt_of_new_session("version", &mut warm);
    client.delete("/api/agents/hello").expect(200);
    wait_until("the sandboxes are gone", || records(&server).is_empty());
}

#[test]
fn warm_sandboxes_do_not_take_slots_that_sessions_need() {
    let file = settings_file("[sandbox]\nmax = 2\npre_warm = 2\n");
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()], &[]);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    wait_until_warm(&client, 2);
    let body = json!({ "agent": "hello", "extraEnv": { "A": "1" } });
    let ids = [(); 2].map(|()| session_id(&client.post("/api/sessions", &body).expect(201)));
    for id in ids {
        assert_eq!(client.get(&format!("/api/sessions/{id}")).expect(200)["session"]["status"], "active");
    }
    assert_eq!(pool(&client)["warm"], 0);
    assert_eq!(records(&server).len(), 2);
}

#[test]
fn warm_sandboxes_end_with_their_server() {
    let mut server = Server::start();
    deploy(&server.client(), &json!({}));
    wait_until_warm(&server.client(), 1);
    let left = records(&server);
    // Killed: the next server ends it.
    server.stop(Signal::KILL);
    assert_eq!(records(&server), left);
    server.restart();
    let client = server.client();
    wait_until_warm(&client, 1);
    let records_now = records(&server);
    assert!(records_now.len() == 1 && records_now != left, "{records_now:?}");
    let used = session_id(&client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201));
    assert!(server.stop(Signal::TERM).success());
    assert_eq!(records(&server), [used]);
}

#[test]
fn warm_sandbox_that_has_exited_is_not_used() {
    let server = Server::start();
    let client = server.client();
    deploy(&client, &json!({}));
    wait_until_warm(&client, 1);
    let [warm] = <[String; 1]>::try_from(records(&server)).unwrap();
    crate::support::send_signal(server.supervisor(&warm), Signal::KILL);
    wait_until("it has exited", || server.session_record(&warm)["controlSocket"].is_null());
    let id = session_id(&client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201));
    assert_ne!(id, warm);
    assert_eq!(exec(&client, &id, "echo alive"), "alive\n");
    wait_until("its files are removed", || !records(&server).contains(&warm));
}
