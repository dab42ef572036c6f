//! The maximum number of sandboxes: sessions without work give up theirs, and starts wait while all work.

use crate::support::{Client, Server, deploy_body, has_exited, settings_file, wait_until};
use serde_json::{Value, json};

fn start_session(client: &Client) -> String {
    let created = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    created["session"]["id"].as_str().unwrap().to_owned()
}

fn session(client: &Client, id: &str) -> Value {
    client.get(&format!("/api/sessions/{id}")).expect(200)["session"].clone()
}

fn last_lifecycle_event(client: &Client, id: &str) -> Value {
    let events = client.get(&format!("/api/sessions/{id}/events?type=lifecycle")).expect(200);
    let last = events["events"].as_array().unwrap().last().unwrap().clone();
    serde_json::from_str(last["data"].as_str().unwrap()).unwrap()
}

/// A server with the demo agent and these settings of sandboxes.
fn server_with(settings: &str) -> (Server, Client) {
    let file = settings_file(&format!("[sandbox]\n{settings}"));
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()], &[]);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    (server, client)
}

#[test]
fn session_that_was_idle_for_longest_is_paused_for_a_new_one() {
    let (server, client) = server_with("max = 2\n");
    let [oldest, other] = [(); 2].map(|()| start_session(&client));
    client.run_turn(&oldest, "my name is Ann");
    client.run_turn(&other, "hi");
    let supervisor = server.supervisor(&oldest);
    let newest = start_session(&client);
    assert!(has_exited(supervisor));
    let statuses = [&oldest, &other, &newest].map(|id| session(&client, id)["status"].clone());
    assert_eq!(statuses, ["paused", "active", "active"]);
    assert_eq!(last_lifecycle_event(&client, &oldest), json!({ "action": "paused", "reason": "capacity" }));
    let refused = client.post(&format!("/api/sessions/{oldest}/messages"), &json!({ "content": "x" }));
    assert_eq!(refused.expect(400)["error"], "Session is paused");

    // It takes the slot of the next one, with its conversation.
    client.post(&format!("/api/sessions/{oldest}/resume"), &json!({})).expect(200);
    assert!(client.run_turn(&oldest, "recall").iter().any(|frame| frame.data.contains("my name is Ann")));
    assert_eq!(session(&client, &other)["status"], "paused");
    let pool = client.get("/health").expect(200)["pool"].clone();
    assert_eq!(
        (&pool["total"], &pool["maxCapacity"], &pool["resumeColdHits"]),
        (&json!(2), &json!(2), &json!(1))
    );
}

#[test]
fn frozen_session_gives_up_its_sandbox_too() {
    let (server, client) = server_with("max = 1\n");
    let frozen = start_session(&client);
    client.post(&format!("/api/sessions/{frozen}/pause"), &json!({})).expect(200);
    start_session(&client);
    assert!(server.session_record(&frozen)["supervisor"].is_null());
    assert_eq!(last_lifecycle_event(&client, &frozen), json!({ "action": "paused" }));
}

#[test]
fn sandboxes_that_work_are_not_ended_and_starts_are_refused_after_a_wait() {
    let (_server, client) = server_with("max = 2\nmax_wait = 0\n");
    let [turn, command] = [(); 2].map(|()| start_session(&client));
    let mut frames = client.send(&turn, &json!({ "content": "run: echo begun > begun; sleep 1000" }));
    while frames.next().unwrap().event != "tool_use" {}
    let (background, path) = (client.clone(), format!("/api/sessions/{command}/exec"));
    let exec = std::thread::spawn(move || {
        background.post(&path, &json!({ "command": "touch begun; until [ -e end ]; do sleep 0.01; done" }))
    });
    let file = format!("/api/sessions/{command}/files/begun");
    wait_until("the command has begun", || client.get(&file).status == 200);

    let refused = client.post("/api/sessions", &json!({ "agent": "hello" }));
    assert_eq!(refused.headers["retry-after"], "5");
    let text = "Failed to create session: capacity reached: 2 sandboxes are running";
    assert_eq!(refused.expect(503), json!({ "error": text, "statusCode": 503 }));
    assert_eq!(client.get("/api/sessions").expect(200)["total"], 2);
    assert_eq!(client.get("/health").expect(200)["pool"]["running"], 1);

    let end = json!({ "files": [{ "path": "end", "content": "" }] });
    client.post(&format!("/api/sessions/{command}/files"), &end).expect(200);
    assert_eq!(exec.join().unwrap().expect(200)["exitCode"], 0);
    start_session(&client);
    assert_eq!(session(&client, &command)["status"], "paused");
    client.post(&format!("/api/sessions/{turn}/interrupt"), &json!({})).expect(200);
    assert_eq!(frames.last().unwrap().event, "done");
}

#[test]
fn start_waits_until_a_sandbox_has_no_work() {
    let (_server, client) = server_with("max = 1\nmax_wait = 60\n");
    let busy = start_session(&client);
    let mut frames = client.send(&busy, &json!({ "content": "run: sleep 1000" }));
    while frames.next().unwrap().event != "tool_use" {}
    let waiting = client.clone();
    let started = std::thread::spawn(move || start_session(&waiting));
    client.post(&format!("/api/sessions/{busy}/interrupt"), &json!({})).expect(200);
    let started = started.join().unwrap();
    assert_eq!(session(&client, &started)["status"], "active");
    assert_eq!(session(&client, &busy)["status"], "paused");
}

#[test]
fn queue_item_without_a_slot_is_not_counted_as_a_retry() {
    let (_server, client) = server_with("max = 1\nmax_wait = 0\n");
    let busy = start_session(&client);
    let mut frames = client.send(&busy, &json!({ "content": "run: sleep 1000" }));
    while frames.next().unwrap().event != "tool_use" {}
    let queued = client.post("/api/queue", &json!({ "agentName": "hello", "prompt": "hi", "maxRetries": 0 }));
    let path = format!("/api/queue/{}", queued.expect(201)["item"]["id"].as_str().unwrap());
    wait_until("the item has found no slot", || {
        let item = client.get(&path).expect(200)["item"].clone();
        item["error"].as_str().is_some_and(|error| error.contains("capacity reached"))
    });
    client.post(&format!("/api/sessions/{busy}/interrupt"), &json!({})).expect(200);
    wait_until("the item is completed", || client.get(&path).expect(200)["item"]["status"] == "completed");
    assert_eq!(client.get(&path).expect(200)["item"]["retryCount"], 0);
}

#[test]
fn idle_session_is_paused_after_the_idle_timeout() {
    let server = Server::start_with(&[], &[("ASH_IDLE_TIMEOUT_MS", "200")]);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let id = start_session(&client);
    // A turn that takes longer than the limit.
    assert_eq!(client.run_turn(&id, "run: sleep 0.6").last().unwrap().event, "done");
    wait_until("the session is paused", || session(&client, &id)["status"] == "paused");
    wait_until("its sandbox is gone", || client.get("/health").expect(200)["activeSandboxes"] == 0);
    let paused = json!({ "action": "paused", "reason": "idle" });
    wait_until("the event is recorded", || last_lifecycle_event(&client, &id) == paused);

    // The queue resumes it.
    let item = json!({ "agentName": "hello", "sessionId": id, "prompt": "hi", "maxRetries": 0 });
    let queued = client.post("/api/queue", &item).expect(201)["item"].clone();
    let path = format!("/api/queue/{}", queued["id"].as_str().unwrap());
    wait_until("the item has ended", || {
        let status = client.get(&path).expect(200)["item"]["status"].clone();
        status != "pending" && status != "processing"
    });
    assert_eq!(client.get(&path).expect(200)["item"]["status"], "completed");
}

/// Turns that begin while their sandbox may be ended: each runs, or its message is refused.
#[test]
fn no_message_is_lost_to_the_end_of_an_idle_sandbox() {
    let server = Server::start_with(&[], &[("ASH_IDLE_TIMEOUT_MS", "1")]);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let id = start_session(&client);
    let (messages, resume) = (format!("/api/sessions/{id}/messages"), format!("/api/sessions/{id}/resume"));
    let (mut sent, mut refused) = (0, 0);
    while sent < 5 || refused < 2 {
        client.post(&resume, &json!({})).expect(200);
        let response = client.post(&messages, &json!({ "content": "hi" }));
        match response.status {
            200 => sent += 1,
            _ => {
                assert_eq!(response.expect(400)["error"], "Session is paused");
                refused += 1;
            }
        }
    }
    let listed = client.get(&format!("{messages}?limit=1000")).expect(200);
    let roles = listed["messages"].as_array().unwrap().iter().map(|message| message["role"].clone());
    assert_eq!(roles.filter(|role| role == "user").count(), sent);
    let complete =
        client.get(&format!("/api/sessions/{id}/events?type=turn_complete&limit=1000")).expect(200);
    assert_eq!(complete["events"].as_array().unwrap().len(), sent);
}
