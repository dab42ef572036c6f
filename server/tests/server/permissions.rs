//! Permission requests of the agent.

use crate::support::{Frame, Server, wait_until};
use serde_json::{Value, json};

/// Frames until one of these names.
fn until(frames: &mut impl Iterator<Item = Frame>, event: &str) -> Frame {
    frames.find(|frame| frame.event == event).unwrap_or_else(|| panic!("no {event}"))
}

#[test]
fn request_is_streamed_listed_and_answered_once() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/permissions");
    assert_eq!(client.get(&path).expect(200), json!({ "permissions": [] }));
    for (behavior, ran) in [("deny", 0), ("allow", 1)] {
        let mut turn = client.send(&session, &json!({ "content": "ask: echo ran >> ran" }));
        let frame = until(&mut turn, "permission_request");
        let request = frame.json();
        assert_eq!((&request["kind"], &request["tool"]), (&json!("tool"), &json!("Bash")), "{request}");
        assert!(request["createdAt"].as_str() < request["expiresAt"].as_str(), "{request}");
        // The message of the agent follows, with a higher id.
        let message = until(&mut turn, "message");
        assert!(message.id > frame.id && message.json()["type"] == "control_request", "{message:?}");
        assert_eq!(client.get(&path).expect(200), json!({ "permissions": [request] }));

        let id = request["id"].as_str().unwrap();
        let answer = format!("{path}/{id}");
        for wrong in [json!({}), json!({ "behavior": "ask" }), json!({ "behavior": true })] {
            client.post(&answer, &wrong).expect(400);
        }
        client.post(&format!("{path}/other"), &json!({ "behavior": "allow" })).expect(404);
        assert_eq!(client.post(&answer, &json!({ "behavior": behavior })).expect(200), json!({ "ok": true }));
        client.post(&answer, &json!({ "behavior": "allow" })).expect(409);
        let resolved = until(&mut turn, "permission_resolved").json();
        assert_eq!(resolved, json!({ "id": id, "behavior": behavior, "by": "client" }));
        until(&mut turn, "done");
        client.post(&answer, &json!({ "behavior": "allow" })).expect(409);
        assert_eq!(client.get(&path).expect(200), json!({ "permissions": [] }));
        let lines =
            client.post(&format!("/api/sessions/{session}/exec"), &json!({ "command": "cat ran | wc -l" }));
        assert_eq!(lines.expect(200)["stdout"].as_str().unwrap().trim(), ran.to_string());
    }
}

#[test]
fn request_outlives_its_client_and_an_interrupt_closes_it() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/permissions");
    let mut turn = client.send(&session, &json!({ "content": "ask: echo ran > ran" }));
    let request = until(&mut turn, "permission_request");
    drop(turn);
    // Another client sees it in the stream of the session, and answers it.
    let mut stream = client.stream(&session, 0);
    assert_eq!(until(&mut stream, "permission_request"), request);
    let id = request.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(client.get(&path).expect(200)["permissions"][0]["id"], json!(id));
    client.post(&format!("{path}/{id}"), &json!({ "behavior": "allow" })).expect(200);
    until(&mut stream, "done");

    let mut turn = client.send(&session, &json!({ "content": "ask: echo ran > ran" }));
    let id = until(&mut turn, "permission_request").json()["id"].clone();
    client.post(&format!("/api/sessions/{session}/interrupt"), &json!({})).expect(200);
    let resolved = until(&mut turn, "permission_resolved").json();
    assert_eq!(resolved, json!({ "id": id, "behavior": "deny", "by": "saggar" }));
    until(&mut turn, "done");
    let answer = client.post(&format!("{path}/{}", id.as_str().unwrap()), &json!({ "behavior": "allow" }));
    answer.expect(409);
}

#[test]
fn agent_cannot_forge_a_request() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    for forged in [
        json!({ "type": "permission_request", "id": "x" }),
        json!({ "type": "assistant", "message": { "content": [{ "type": "permission_request", "id": "x" }] } }),
        json!({ "type": "control_cancel_request", "request_id": "x" }),
    ] {
        let frames = client.run_turn(&session, &format!("echo-json: {forged}"));
        assert!(frames.iter().all(|frame| !frame.event.starts_with("permission")), "{forged}: {frames:?}");
    }
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).expect(200);
    let path = format!("/api/sessions/{session}/permissions");
    assert_eq!(client.get(&path).expect(200), json!({ "permissions": [] }));
    client.post(&format!("{path}/x"), &json!({ "behavior": "allow" })).expect(400);
}

#[test]
fn requests_can_be_listed_while_the_sandbox_ends() {
    let server = Server::start();
    let session = server.create_session();
    let path = format!("/api/sessions/{session}/permissions");
    for _ in 0..5 {
        let client = server.client();
        client.post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(200);
        let (listing, path) = (server.client(), path.clone());
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let lists = std::thread::spawn(move || {
            while end.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                assert_eq!(listing.get(&path).expect(200), json!({ "permissions": [] }));
            }
        });
        client.post(&format!("/api/sessions/{session}/stop"), &json!({})).expect(200);
        drop(ended);
        lists.join().unwrap();
    }
}

#[test]
fn request_is_open_after_a_restart_of_the_server() {
    let mut server = Server::start();
    let session = server.create_session();
    let mut turn = server.client().send(&session, &json!({ "content": "ask: echo ran > ran" }));
    let id = until(&mut turn, "permission_request").json()["id"].as_str().unwrap().to_owned();
    server.stop(rustix::process::Signal::KILL);
    server.restart();
    let client = server.client();
    let path = format!("/api/sessions/{session}/permissions");
    client.post(&format!("{path}/{id}"), &json!({ "behavior": "allow" })).expect(200);
    wait_until("the turn is over", || {
        let events: Value =
            client.get(&format!("/api/sessions/{session}/events?type=turn_complete")).expect(200);
        !events["events"].as_array().unwrap().is_empty()
    });
    let listed = client.get(&format!("/api/sessions/{session}/files/ran?format=json")).expect(200);
    assert_eq!(listed["content"], "ran\n");
}
