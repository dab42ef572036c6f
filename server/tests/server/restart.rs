//! Sessions outlive the server process.

use crate::support::{Client, Server, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

fn status(client: &Client, session: &str) -> Value {
    client.get(&format!("/api/sessions/{session}")).expect(200)["session"]["status"].clone()
}

fn contents(client: &Client, session: &str) -> Vec<String> {
    let listed = client.get(&format!("/api/sessions/{session}/messages?limit=1000")).expect(200);
    let messages = listed["messages"].as_array().unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn session_continues_after_server_restart() {
    let mut server = Server::start();
    let session = server.create_session();
    let client = server.client();
    client.run_turn(&session, "my name is Ann");
    let supervisor = server.supervisor(&session);
    assert!(server.stop(Signal::TERM).success());
    assert_eq!(server.supervisor(&session), supervisor);
    server.restart();
    let client = server.client();
    assert_eq!(status(&client, &session), "active");
    assert!(client.run_turn(&session, "recall").iter().any(|frame| frame.data.contains("my name is Ann")));
    assert_eq!(server.supervisor(&session), supervisor);
}

#[test]
fn events_without_running_server_are_recorded_once() {
    let mut server = Server::start();
    let session = server.create_session();
    for signal in [Signal::KILL, Signal::TERM] {
        let client = server.client();
        let mut frames = client.send(&session, &json!({ "content": "count: 40" }));
        while frames.next().unwrap().event != "message" {}
        server.stop(signal);
        drop(frames);
        server.restart();
    }
    let client = server.client();
    wait_until("the results of both turns are stored", || {
        contents(&client, &session).iter().filter(|content| content.contains("\"type\":\"result\"")).count()
            == 2
    });
    let recorded = contents(&client, &session);
    let uuid = |content: &String| serde_json::from_str::<Value>(content).unwrap()["uuid"].clone();
    let mut ids: Vec<_> =
        recorded.iter().map(uuid).filter(Value::is_string).map(|id| id.to_string()).collect();
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "{recorded:?}");
}

#[test]
fn session_with_exited_sandbox_is_not_active_after_restart() {
    let mut server = Server::start();
    let client = server.client();
    let (killed, shut_down) = (server.create_session(), server.create_session());
    server.stop(Signal::KILL);
    send_signal(server.supervisor(&killed), Signal::KILL);
    send_signal(server.supervisor(&shut_down), Signal::TERM);
    wait_until("both supervisors have exited", || {
        [&killed, &shut_down].iter().all(|session| server.session_record(session)["supervisor"].is_null())
    });
    drop(client);
    server.restart();
    let client = server.client();
    assert_eq!(status(&client, &killed), "error");
    assert_eq!(status(&client, &shut_down), "paused");
    let refused = client.post(&format!("/api/sessions/{shut_down}/messages"), &json!({ "content": "x" }));
    assert_eq!(refused.expect(400)["error"], "Session is paused");
}

#[test]
fn sigterm_ends_streams_and_their_turns_continue() {
    let mut server = Server::start();
    let session = server.create_session();
    let mut frames = server.client().send(&session, &json!({ "content": "run: sleep 1; echo slept" }));
    while frames.next().unwrap().event != "tool_use" {}
    assert!(server.stop(Signal::TERM).success());
    assert!(frames.all(|frame| frame.event != "done"));
    server.restart();
    let client = server.client();
    wait_until("the turn is recorded", || {
        contents(&client, &session).iter().any(|content| content.contains("\"type\":\"result\""))
    });
}

#[test]
fn events_of_a_sandbox_that_exited_without_a_server_are_recorded() {
    let mut server = Server::start();
    let (ended, shut_down) = (server.create_session(), server.create_session());
    let client = server.client();
    let mut frames: Vec<_> = [&ended, &shut_down]
        .iter()
        .map(|session| client.send(session, &json!({ "content": "run: cat fifo || sleep 0.2; echo late" })))
        .collect();
    for frames in &mut frames {
        while frames.next().unwrap().event != "tool_use" {}
    }
    server.stop(Signal::KILL);
    drop(frames);
    for session in [&ended, &shut_down] {
        wait_until("the turn is over", || {
            server.saggar(&["events", session]).contains("\"type\":\"result\"")
        });
        send_signal(server.supervisor(session), Signal::TERM);
        wait_until("the supervisor has exited", || server.session_record(session)["supervisor"].is_null());
    }
    server.saggar(&["end", &ended]);
    server.restart();
    let client = server.client();
    for (session, expected) in [(&ended, "ended"), (&shut_down, "paused")] {
        assert_eq!(status(&client, session), expected);
        let results = contents(&client, session);
        assert_eq!(results.iter().filter(|content| content.contains("\"type\":\"result\"")).count(), 1);
    }
}
