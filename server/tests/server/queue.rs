//! The queue: items, their order, their turns and their failures.

use crate::support::{Client, Server, deploy_body, wait_until};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

/// A turn that ends when the workspace contains the file `go`.
pub(crate) const BLOCKED: &str = "run: until [ -e go ]; do sleep 0.05; done; echo released";

/// Adds an item and returns its id.
#[track_caller]
pub(crate) fn enqueue(client: &Client, body: &Value) -> String {
    let item = client.post("/api/queue", body).expect(201);
    assert_eq!(item["item"]["status"], "pending");
    item["item"]["id"].as_str().unwrap().to_owned()
}

pub(crate) fn item(client: &Client, id: &str) -> Value {
    client.get(&format!("/api/queue/{id}")).expect(200)["item"].clone()
}

pub(crate) fn wait_for_status(client: &Client, id: &str, status: &str) -> Value {
    wait_until(&format!("the item is {status}"), || item(client, id)["status"] == status);
    item(client, id)
}

/// Waits until the item runs a turn, and returns its session.
pub(crate) fn wait_for_turn(client: &Client, id: &str) -> String {
    wait_until("the turn runs", || {
        item(client, id)["sessionId"].as_str().is_some_and(|session| {
            let events = client.get(&format!("/api/sessions/{session}/events?type=tool_start"));
            events.status == 200 && events.body["events"] != json!([])
        })
    });
    item(client, id)["sessionId"].as_str().unwrap().to_owned()
}

/// Ends the turns of [`BLOCKED`] in a session.
pub(crate) fn release(client: &Client, session: &str) {
    let body = json!({ "files": [{ "path": "go", "content": "" }] });
    client.post(&format!("/api/sessions/{session}/files"), &body).expect(200);
}

/// The types of the messages of a session: `user`, `assistant` and `result`.
pub(crate) fn message_types(client: &Client, session: &str) -> Vec<String> {
    let listed = client.get(&format!("/api/sessions/{session}/messages?limit=1000")).expect(200);
    let content = |row: &Value| serde_json::from_str::<Value>(row["content"].as_str().unwrap()).unwrap();
    let kind = |row: &Value| content(row)["type"].as_str().unwrap().to_owned();
    listed["messages"].as_array().unwrap().iter().map(kind).collect()
}

/// A server with this number of workers.
pub(crate) fn server_with_workers(workers: usize) -> (Server, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("settings.toml");
    fs::write(&config, format!("queue_workers = {workers}\n")).unwrap();
    let server = Server::start_with(&["--config", config.to_str().unwrap()], &[]);
    server.client().post("/api/agents", &deploy_body("hello")).expect(201);
    (server, directory)
}

#[test]
fn item_runs_in_new_session_and_its_messages_are_stored() {
    let server = Server::start();
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let created = client.post("/api/queue", &json!({ "agentName": "hello", "prompt": "hi" })).expect(201);
    let created = &created["item"];
    assert_eq!(
        (&created["tenantId"], &created["agentName"], &created["prompt"], &created["sessionId"]),
        (&json!("default"), &json!("hello"), &json!("hi"), &json!(null))
    );
    assert_eq!(
        (&created["priority"], &created["retryCount"], &created["maxRetries"], &created["error"]),
        (&json!(0), &json!(0), &json!(3), &json!(null))
    );
    let done = wait_for_status(&client, created["id"].as_str().unwrap(), "completed");
    assert!(done["startedAt"].is_string() && done["completedAt"].is_string() && done["error"].is_null());
    let session = done["sessionId"].as_str().unwrap();
    assert_eq!(message_types(&client, session), ["user", "assistant", "result"]);
    let found = client.get(&format!("/api/sessions/{session}")).expect(200);
    assert_eq!(
        (&found["session"]["status"], &found["session"]["agentName"]),
        (&json!("active"), &json!("hello"))
    );
    // The session remains and can be continued, by clients and by the queue.
    assert!(client.run_turn(session, "recall").iter().any(|frame| frame.event == "done"));
    let body = json!({ "agentName": "hello", "prompt": "recall", "sessionId": session });
    let next = wait_for_status(&client, &enqueue(&client, &body), "completed");
    assert_eq!(next["sessionId"], session);
    assert_eq!(message_types(&client, session).len(), 9);
}

#[test]
fn highest_priority_then_oldest_runs_first() {
    let (server, _directory) = server_with_workers(1);
    let client = server.client();
    let first = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    let session = wait_for_turn(&client, &first);
    let add = |prompt: &str, priority: i64| {
        let body =
            json!({ "agentName": "hello", "prompt": prompt, "priority": priority, "sessionId": session });
        enqueue(&client, &body)
    };
    let items =
        [("a", 0), ("b", 9), ("c", 0), ("d", 9), ("e", -1)].map(|(prompt, priority)| add(prompt, priority));
    assert_eq!(
        client.get("/api/queue/stats").expect(200)["stats"],
        json!({ "pending": 5, "processing": 1, "completed": 0, "failed": 0, "cancelled": 0 })
    );
    release(&client, &session);
    for id in &items {
        wait_for_status(&client, id, "completed");
    }
    let listed = client.get(&format!("/api/sessions/{session}/messages?limit=1000")).expect(200);
    let prompts = listed["messages"].as_array().unwrap().iter().filter(|row| row["role"] == "user");
    let content = |row: &Value| serde_json::from_str::<Value>(row["content"].as_str().unwrap()).unwrap();
    let prompts: Vec<Value> = prompts.skip(1).map(|row| content(row)["content"].clone()).collect();
    assert_eq!(prompts, ["b", "d", "a", "c", "e"]);
    let newest = client.get("/api/queue?limit=2&status=completed").expect(200);
    let newest: Vec<_> = newest["items"].as_array().unwrap().iter().map(|item| &item["prompt"]).collect();
    assert_eq!(newest, ["e", "d"]);
}

#[test]
fn workers_run_items_of_different_sessions_at_once() {
    let (server, _directory) = server_with_workers(2);
    let client = server.client();
    let items = [(); 2].map(|()| enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED })));
    let sessions = [wait_for_turn(&client, &items[0]), wait_for_turn(&client, &items[1])];
    assert_ne!(sessions[0], sessions[1]);
    let third = enqueue(&client, &json!({ "agentName": "hello", "prompt": "hi" }));
    // Both workers are busy.
    assert_eq!(item(&client, &third)["status"], "pending");
    release(&client, &sessions[1]);
    wait_for_status(&client, &third, "completed");
    assert_eq!(item(&client, &items[0])["status"], "processing");
    release(&client, &sessions[0]);
    wait_for_status(&client, &items[0], "completed");
}

#[test]
fn session_runs_one_item_at_a_time() {
    let (server, _directory) = server_with_workers(4);
    let (client, session) = (server.client(), server.create_session());
    let body = |prompt: &str| json!({ "agentName": "hello", "prompt": prompt, "sessionId": session });
    let first = enqueue(&client, &body(BLOCKED));
    wait_for_turn(&client, &first);
    let second = enqueue(&client, &body("hi"));
    // Another item is not delayed, and shows that the worker has passed the second one over.
    let other = enqueue(&client, &json!({ "agentName": "hello", "prompt": "hi" }));
    wait_for_status(&client, &other, "completed");
    assert_eq!(item(&client, &second)["status"], "pending");
    release(&client, &session);
    wait_for_status(&client, &second, "completed");
    assert_eq!(item(&client, &first)["status"], "completed");
}

#[test]
fn pending_item_is_cancelled_and_others_are_not() {
    let (server, _directory) = server_with_workers(1);
    let client = server.client();
    let first = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    let session = wait_for_turn(&client, &first);
    let second = enqueue(&client, &json!({ "agentName": "hello", "prompt": "hi" }));
    let cancelled = client.delete(&format!("/api/queue/{second}")).expect(200);
    assert_eq!(cancelled["item"]["status"], "cancelled");
    assert!(cancelled["item"]["completedAt"].is_string());
    for (id, status) in [(&first, "processing"), (&second, "cancelled")] {
        let refused = client.delete(&format!("/api/queue/{id}")).expect(400);
        assert_eq!(refused["error"], format!("Cannot cancel item with status \"{status}\""));
    }
    release(&client, &session);
    wait_for_status(&client, &first, "completed");
    assert_eq!(item(&client, &second)["status"], "cancelled");
    client.delete(&format!("/api/queue/{first}")).expect(400);
}

#[test]
fn invalid_items_are_refused() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    for body in [
        json!({ "prompt": "x" }),
        json!({ "agentName": "hello" }),
        json!({ "agentName": "a b", "prompt": "x" }),
        json!({ "agentName": "hello", "prompt": "" }),
        json!({ "agentName": "hello", "prompt": "x".repeat(500_001) }),
        json!({ "agentName": "hello", "prompt": "x", "maxRetries": -1 }),
        json!({ "agentName": "hello", "prompt": "x", "maxRetries": 101 }),
        json!({ "agentName": "hello", "prompt": "x", "sessionId": "x" }),
        json!({ "agentName": "other", "prompt": "x", "sessionId": session }),
    ] {
        client.post("/api/queue", &body).expect(400);
    }
    let unknown = "00000000-0000-4000-8000-000000000000";
    let body = json!({ "agentName": "hello", "prompt": "x", "sessionId": unknown });
    assert_eq!(client.post("/api/queue", &body).expect(404)["error"], "Session not found");
    client.get(&format!("/api/queue/{unknown}")).expect(404);
    client.delete(&format!("/api/queue/{unknown}")).expect(404);
    client.get("/api/queue/x").expect(400);
    for query in ["limit=0", "limit=501", "limit=x", "status=new"] {
        client.get(&format!("/api/queue?{query}")).expect(400);
    }
    assert_eq!(client.get("/api/queue").expect(200), json!({ "items": [] }));
}

#[test]
fn failed_item_is_retried_until_its_failure_is_permanent() {
    let server = Server::start();
    let client = server.client();
    let once = enqueue(&client, &json!({ "agentName": "late", "prompt": "hi", "maxRetries": 0 }));
    let failed = wait_for_status(&client, &once, "failed");
    assert_eq!(failed["error"], "Agent \"late\" not found");
    assert_eq!((&failed["retryCount"], &failed["sessionId"]), (&json!(0), &json!(null)));
    let again = enqueue(&client, &json!({ "agentName": "late", "prompt": "hi", "maxRetries": 1 }));
    let succeeds = enqueue(&client, &json!({ "agentName": "soon", "prompt": "hi" }));
    for (id, agent) in [(&again, "late"), (&succeeds, "soon")] {
        wait_until("the item waits for its retry", || item(&client, id)["retryCount"] == 1);
        assert_eq!(item(&client, id)["error"], format!("Agent \"{agent}\" not found"));
    }
    // An agent that is deployed meanwhile is found.
    client.post("/api/agents", &deploy_body("soon")).expect(201);
    let failed = wait_for_status(&client, &again, "failed");
    assert_eq!(failed["retryCount"], 1);
    let done = wait_for_status(&client, &succeeds, "completed");
    assert!(done["error"].is_null() && done["retryCount"].as_i64() >= Some(1), "{done}");
}

#[test]
fn result_that_is_an_error_fails_the_item() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let body = json!({ "agentName": "hello", "prompt": BLOCKED, "sessionId": session, "maxRetries": 0 });
    let id = enqueue(&client, &body);
    wait_for_turn(&client, &id);
    client.post(&format!("/api/sessions/{session}/interrupt"), &json!({})).expect(200);
    assert_eq!(wait_for_status(&client, &id, "failed")["error"], "interrupted");
    // A session that is not active runs no item.
    client.post(&format!("/api/sessions/{session}/pause"), &json!({})).expect(200);
    let body = json!({ "agentName": "hello", "prompt": "hi", "sessionId": session, "maxRetries": 0 });
    let id = enqueue(&client, &body);
    assert_eq!(wait_for_status(&client, &id, "failed")["error"], "Session is paused");
}

#[test]
fn items_of_another_tenant_are_not_found() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client_of_tenant("other"));
    let session = server.create_session();
    other.post("/api/agents", &json!({ "name": "hello", "systemPrompt": "x" })).expect(201);
    let body = json!({ "agentName": "hello", "prompt": "hi", "sessionId": session });
    assert_eq!(other.post("/api/queue", &body).expect(404)["error"], "Session not found");
    let id = enqueue(&other, &json!({ "agentName": "hello", "prompt": "hi" }));
    let done = wait_for_status(&other, &id, "completed");
    assert_eq!(done["tenantId"], "other");
    assert_eq!(message_types(&other, done["sessionId"].as_str().unwrap()).len(), 3);
    client.get(&format!("/api/sessions/{}", done["sessionId"].as_str().unwrap())).expect(404);
    client.get(&format!("/api/queue/{id}")).expect(404);
    client.delete(&format!("/api/queue/{id}")).expect(404);
    assert_eq!(client.get("/api/queue").expect(200)["items"], json!([]));
    assert_eq!(client.get("/api/queue/stats").expect(200)["stats"]["completed"], 0);
    assert_eq!(other.get("/api/queue/stats").expect(200)["stats"]["completed"], 1);
}
