//! Items of the queue whose server is killed or stopped: each turn runs once.

use crate::queue::{
    BLOCKED, enqueue, item, message_types, release, server_with_workers, wait_for_status, wait_for_turn,
};
use crate::support::{Client, Server, deploy_body, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

/// The number of turns that the bridge of a session has accepted: their ids are in its spool.
fn accepted_turns(server: &Server, session: &str) -> usize {
    let spool = server.data_dir().join("saggar/sessions").join(session).join("spool");
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir(spool).unwrap() {
        let content = fs::read(entry.unwrap().path()).unwrap_or_default();
        let content = String::from_utf8_lossy(&content);
        ids.extend(content.split("\"turn-").skip(1).filter_map(|rest| rest.get(..36).map(str::to_owned)));
    }
    ids.len()
}

fn count(types: &[String], kind: &str) -> usize {
    types.iter().filter(|found| *found == kind).count()
}

/// Checks that a session has one user message and one result: its turn ran once.
fn assert_ran_once(client: &Client, session: &str) {
    let types = message_types(client, session);
    assert_eq!((count(&types, "user"), count(&types, "result")), (1, 1), "{types:?}");
}

#[test]
fn turn_that_runs_during_a_restart_is_followed_to_its_end() {
    for signal in [Signal::KILL, Signal::TERM] {
        let (mut server, _directory) = server_with_workers(1);
        let client = server.client();
        let id = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
        let session = wait_for_turn(&client, &id);
        let next = enqueue(&client, &json!({ "agentName": "hello", "prompt": "hi" }));
        server.stop(signal);
        server.restart();
        let client = server.client();
        assert_eq!(item(&client, &id)["status"], "processing");
        // It uses the only worker.
        assert_eq!(item(&client, &next)["status"], "pending");
        release(&client, &session);
        let done = wait_for_status(&client, &id, "completed");
        assert_eq!((&done["sessionId"], &done["retryCount"]), (&json!(session), &json!(0)));
        assert_ran_once(&client, &session);
        wait_for_status(&client, &next, "completed");
    }
}

#[test]
fn turn_that_ended_without_a_server_is_found() {
    let (mut server, _directory) = server_with_workers(1);
    let client = server.client();
    let id = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    let session = wait_for_turn(&client, &id);
    server.stop(Signal::KILL);
    server.saggar(&["files", "write", &session, "go"]);
    wait_until("the turn is over", || server.saggar(&["events", &session]).contains("\"ev\":\"done\""));
    server.restart();
    let client = server.client();
    wait_for_status(&client, &id, "completed");
    assert_ran_once(&client, &session);

    // The same, and the sandbox has exited too.
    let id = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    let session = wait_for_turn(&client, &id);
    server.stop(Signal::KILL);
    server.saggar(&["files", "write", &session, "go"]);
    wait_until("the turn is over", || server.saggar(&["events", &session]).contains("\"ev\":\"done\""));
    send_signal(server.supervisor(&session), Signal::TERM);
    wait_until("the supervisor has exited", || server.session_record(&session)["supervisor"].is_null());
    server.restart();
    let client = server.client();
    wait_for_status(&client, &id, "completed");
    assert_ran_once(&client, &session);
}

#[test]
fn turn_that_waits_in_the_bridge_during_a_restart_runs_once() {
    let (mut server, _directory) = server_with_workers(1);
    let (client, session) = (server.client(), server.create_session());
    // The turn of a client, for which that of the item waits.
    let mut frames = client.send(&session, &json!({ "content": BLOCKED }));
    while frames.next().unwrap().event != "tool_use" {}
    let body = json!({ "agentName": "hello", "prompt": "hi", "sessionId": session });
    let id = enqueue(&client, &body);
    wait_until("the bridge has both turns", || accepted_turns(&server, &session) == 2);
    assert_eq!(count(&message_types(&client, &session), "user"), 2);
    // An item in an idle session, whose turn was never sent.
    let idle = server.create_session();
    let unsent = enqueue(&client, &json!({ "agentName": "hello", "prompt": "hi", "sessionId": idle }));
    server.stop(Signal::KILL);
    drop(frames);
    let statement = format!(
        "UPDATE queue_items SET status = 'processing', turn_id = 'turn-x', events_before = 0 WHERE id = '{unsent}'"
    );
    assert_eq!(server.execute(&statement), 1);
    server.restart();
    let client = server.client();
    // By then the server has examined both sessions.
    wait_for_status(&client, &unsent, "pending");
    assert_eq!(item(&client, &id)["status"], "processing");
    release(&client, &session);
    let done = wait_for_status(&client, &id, "completed");
    assert_eq!((&done["error"], &done["retryCount"]), (&json!(null), &json!(0)));
    let types = message_types(&client, &session);
    assert_eq!((count(&types, "user"), count(&types, "result")), (2, 2), "{types:?}");
}

#[test]
fn item_whose_turn_did_not_begin_is_requeued() {
    let (mut server, _directory) = server_with_workers(1);
    let (client, session) = (server.client(), server.create_session());
    // It uses the only worker.
    let blocked = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    let blocked_session = wait_for_turn(&client, &blocked);
    let body = json!({ "agentName": "hello", "prompt": "hi", "sessionId": session });
    let sent = enqueue(&client, &body);
    let made = enqueue(&client, &json!({ "agentName": "hello", "prompt": "hi" }));
    server.stop(Signal::KILL);
    // As if the server had been killed before it sent the command, and before it created the session.
    let unknown = "00000000-0000-4000-8000-000000000000";
    let change = |id: &str, columns: &str| {
        let statement = format!("UPDATE queue_items SET status = 'processing', {columns} WHERE id = '{id}'");
        assert_eq!(server.execute(&statement), 1);
    };
    change(&sent, "turn_id = 'turn-x', events_before = 0");
    change(&made, &format!("session_id = '{unknown}'"));
    server.restart();
    let client = server.client();
    let sent_again = wait_for_status(&client, &sent, "pending");
    assert!(sent_again["error"].as_str().unwrap().contains("did not begin"), "{sent_again}");
    assert_eq!(wait_for_status(&client, &made, "pending")["error"], json!(null));
    release(&client, &blocked_session);
    for id in [&sent, &made] {
        let done = wait_for_status(&client, id, "completed");
        // An item that did not begin has not failed.
        assert_eq!((&done["retryCount"], &done["error"]), (&json!(0), &json!(null)));
        assert_ne!(done["sessionId"], unknown);
        assert_ran_once(&client, done["sessionId"].as_str().unwrap());
    }
    assert_eq!(item(&client, &sent)["sessionId"], session);
}

#[test]
fn turn_of_an_exited_sandbox_without_events_counts_as_failed() {
    let (mut server, _directory) = server_with_workers(1);
    let (client, session) = (server.client(), server.create_session());
    let blocked = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    wait_for_turn(&client, &blocked);
    let body = json!({ "agentName": "hello", "prompt": "hi", "sessionId": session, "maxRetries": 0 });
    let id = enqueue(&client, &body);
    server.stop(Signal::KILL);
    let statement = format!(
        "UPDATE queue_items SET status = 'processing', turn_id = 'turn-x', events_before = 0 WHERE id = '{id}'"
    );
    assert_eq!(server.execute(&statement), 1);
    send_signal(server.supervisor(&session), Signal::TERM);
    wait_until("the supervisor has exited", || server.session_record(&session)["supervisor"].is_null());
    server.restart();
    let client = server.client();
    let failed = wait_for_status(&client, &id, "failed");
    assert_eq!(failed["error"], "The sandbox exited before the first event of the turn");
    assert_eq!(message_types(&client, &session), Vec::<String>::new());
}

#[test]
fn crash_of_the_sandbox_fails_the_turn_and_a_retry_resumes_the_session() {
    let (mut server, _directory) = server_with_workers(1);
    let client = server.client();
    let id = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    let session = wait_for_turn(&client, &id);
    send_signal(server.supervisor(&session), Signal::KILL);
    wait_until("the item waits for its retry", || item(&client, &id)["retryCount"] == 1);
    assert!(
        item(&client, &id)["error"].as_str().unwrap().contains("sandbox exited"),
        "{}",
        item(&client, &id)
    );
    // Also while no server is running.
    server.stop(Signal::KILL);
    server.saggar(&["files", "write", &session, "go"]);
    server.restart();
    let client = server.client();
    let done = wait_for_status(&client, &id, "completed");
    assert_eq!((&done["sessionId"], &done["retryCount"]), (&json!(session), &json!(1)));
}

#[test]
fn shutdown_leaves_pending_items_for_the_next_server() {
    let (mut server, _directory) = server_with_workers(1);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let first = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    let session = wait_for_turn(&client, &first);
    let others: Vec<String> =
        (0..3).map(|_| enqueue(&client, &json!({ "agentName": "hello", "prompt": "hi" }))).collect();
    assert!(server.stop(Signal::TERM).success());
    // The update changes no status: it counts.
    let pending = "UPDATE queue_items SET error = NULL WHERE status = 'pending' AND started_at IS NULL";
    assert_eq!(server.execute(pending), 3);
    server.saggar(&["files", "write", &session, "go"]);
    server.restart();
    let client = server.client();
    for id in others.iter().chain([&first]) {
        let done = wait_for_status(&client, id, "completed");
        assert_ran_once(&client, done["sessionId"].as_str().unwrap());
    }
    let sessions: Vec<Value> = others.iter().map(|id| item(&client, id)["sessionId"].clone()).collect();
    assert!(sessions.iter().all(|found| *found != json!(session)));
}
