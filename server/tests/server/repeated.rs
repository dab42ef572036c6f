//! Messages that a client repeats, since it does not know whether they arrived (the header `Idempotency-Key`).

use crate::support::{Client, Frame, Server};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The number of messages of clients in a session.
fn sent(client: &Client, session: &str) -> usize {
    let listed = client.get(&format!("/api/sessions/{session}/messages?limit=1000")).expect(200);
    listed["messages"].as_array().unwrap().iter().filter(|row| row["role"] == "user").count()
}

/// How often the agent has run the command `echo x >> count`.
fn runs(client: &Client, session: &str) -> usize {
    let body = json!({ "command": "cat count 2>/dev/null | wc -l" });
    let output = client.post(&format!("/api/sessions/{session}/exec"), &body).expect(200);
    output["stdout"].as_str().unwrap().trim().parse().unwrap()
}

fn body(rest: &str) -> Value {
    json!({ "content": format!("run: echo x >> count{rest}") })
}

#[test]
fn repeated_message_runs_once_and_streams_the_same_turn() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    client.run_turn(&session, "hi");
    let first: Vec<Frame> = client.send_once(&session, "k1", &body("")).collect();
    assert_eq!(first.last().unwrap().event, "done");
    let again: Vec<Frame> = client.send_once(&session, "k1", &body("")).collect();
    assert_eq!(again, first);
    assert_eq!((sent(&client, &session), runs(&client, &session)), (2, 1));
    // Another key is another message.
    assert_eq!(client.send_once(&session, "k2", &body("")).last().unwrap().event, "done");
    assert_eq!((sent(&client, &session), runs(&client, &session)), (3, 2));

    let path = format!("/api/sessions/{session}/messages");
    let refused = |key: &str, body: &Value| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        client.request("POST", &path, &headers, body.to_string().as_bytes())
    };
    let other = refused("k1", &body("; true")).expect(422);
    assert!(other["error"].as_str().unwrap().contains("another message"), "{other}");
    refused("", &body("")).expect(400);
    refused(&"x".repeat(256), &body("")).expect(400);
    assert_eq!((sent(&client, &session), runs(&client, &session)), (3, 2));
}

#[test]
fn concurrent_repetitions_share_one_turn() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let streams: Vec<_> = (0..8)
        .map(|_| {
            let (client, session) = (client.clone(), session.clone());
            std::thread::spawn(move || {
                client.send_once(&session, "k", &body("; sleep 0.2")).collect::<Vec<_>>()
            })
        })
        .collect();
    let frames: Vec<Vec<Frame>> = streams.into_iter().map(|stream| stream.join().unwrap()).collect();
    assert!(
        frames.iter().all(|stream| stream[1..] == frames[0][1..] && stream.last().unwrap().event == "done")
    );
    assert_eq!((sent(&client, &session), runs(&client, &session)), (1, 1));
}

#[test]
fn message_is_repeated_after_the_server_was_killed() {
    let mut server = Server::start();
    let session = server.create_session();
    let message = json!({ "content": "count: 40", "includePartialMessages": true });
    let mut stream = server.client().send_once(&session, "k", &message);
    let mut begun: Vec<Frame> = stream.by_ref().take(5).collect();
    server.stop(Signal::KILL);
    begun.extend(stream);
    server.restart();
    let client = server.client();
    let whole: Vec<Frame> = client.send_once(&session, "k", &message).collect();
    assert_eq!(whole.last().unwrap().event, "done");
    // The first stream was a part of it, and the rest can be had by its last id too.
    assert!(whole.len() > begun.len() && whole[1..begun.len()] == begun[1..], "{begun:?}\n{whole:?}");
    let rest: Vec<Frame> = {
        let mut stream = client.stream(&session, begun.last().unwrap().id);
        stream.next();
        let end = whole.last().unwrap().id;
        let mut rest = Vec::new();
        while rest.last().is_none_or(|frame: &Frame| frame.id < end) {
            rest.push(stream.next().unwrap());
        }
        rest
    };
    assert_eq!(rest, whole[begun.len()..]);
    assert_eq!(sent(&client, &session), 1);
}
