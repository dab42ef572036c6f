//! Sessions outlive the server.

use crate::support::{Client, Server, kill, wait_until};
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
fn a_session_goes_on_under_the_next_server() {
    let mut server = Server::start();
    let session = server.session();
    let client = server.client();
    client.turn(&session, "my name is Ann");
    let supervisor = server.supervisor(&session);
    assert!(server.end(Signal::TERM).success());
    assert_eq!(server.supervisor(&session), supervisor);
    server.start_again();
    let client = server.client();
    assert_eq!(status(&client, &session), "active");
    assert!(client.turn(&session, "recall").iter().any(|frame| frame.data.contains("my name is Ann")));
    assert_eq!(server.supervisor(&session), supervisor);
}

#[test]
fn what_was_said_while_no_server_ran_is_recorded_once() {
    let mut server = Server::start();
    let session = server.session();
    for kill in [Signal::KILL, Signal::TERM] {
        let client = server.client();
        let mut frames = client.send(&session, &json!({ "content": "count: 40" }));
        while frames.next().unwrap().event != "message" {}
        server.end(kill);
        drop(frames);
        server.start_again();
    }
    let client = server.client();
    wait_until("both turns are recorded", || {
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
fn a_session_whose_sandbox_went_meanwhile_is_not_active() {
    let mut server = Server::start();
    let client = server.client();
    let (killed, shut_down) = (server.session(), server.session());
    server.end(Signal::KILL);
    kill(server.supervisor(&killed), Signal::KILL);
    kill(server.supervisor(&shut_down), Signal::TERM);
    wait_until("both supervisors are gone", || {
        [&killed, &shut_down].iter().all(|session| server.record(session)["supervisor"].is_null())
    });
    drop(client);
    server.start_again();
    let client = server.client();
    assert_eq!(status(&client, &killed), "error");
    assert_eq!(status(&client, &shut_down), "paused");
    let refused = client.post(&format!("/api/sessions/{shut_down}/messages"), &json!({ "content": "x" }));
    assert_eq!(refused.expect(400)["error"], "Session is paused");
}
