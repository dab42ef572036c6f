//! The stream of a session: replay after an id, and live frames.

use crate::support::{Frame, Server};
use rustix::process::Signal;
use serde_json::json;

/// The frames up to the end of `turns` turns.
fn take(frames: &mut impl Iterator<Item = Frame>, turns: usize) -> Vec<Frame> {
    let (mut taken, mut done) = (Vec::new(), 0);
    while done < turns {
        let frame = frames.next().expect("a frame");
        done += usize::from(frame.event == "done");
        taken.push(frame);
    }
    taken
}

#[test]
fn stream_replays_what_turns_sent_and_continues() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let body = json!({ "content": "count: 3", "includePartialMessages": true });
    let mut sent: Vec<Frame> = client.send(&session, &body).collect();
    sent.extend(client.run_turn(&session, "hi"));
    // Each stream begins with a frame of its own.
    sent.retain(|frame| frame.event != "session_start");
    assert!(sent.windows(2).all(|pair| pair[0].id < pair[1].id), "{sent:?}");

    let mut stream = client.stream(&session, 0);
    let first = stream.next().unwrap();
    assert_eq!((first.event.as_str(), first.id), ("session_start", 0));
    assert_eq!(take(&mut stream, 2), sent);
    // Now it is live, for turns of any client.
    let live = client.run_turn(&session, "again");
    assert_eq!(take(&mut stream, 1), live[1..]);

    // From any frame on, the rest comes once.
    let all: Vec<&Frame> = sent.iter().chain(&live[1..]).collect();
    for (position, frame) in all.iter().enumerate() {
        let mut rest = client.stream(&session, frame.id);
        assert_eq!(rest.next().unwrap().id, frame.id);
        let dones = all[position + 1..].iter().filter(|frame| frame.event == "done").count();
        let found = take(&mut rest, dones);
        assert_eq!(found.iter().collect::<Vec<_>>(), all[position + 1..], "after {}", frame.id);
    }
    client
        .request("GET", &format!("/api/sessions/{session}/stream"), &[("last-event-id", "x")], b"")
        .expect(400);
    client.get(&format!("/api/sessions/{session}/stream?after=-1")).expect(400);
}

#[test]
fn stream_has_the_same_frames_after_restarts_and_without_a_sandbox() {
    let mut server = Server::start();
    let session = server.create_session();
    let mut sent = server.client().run_turn(&session, "run: echo x");
    sent.remove(0);
    server.stop(Signal::KILL);
    server.restart();
    let client = server.client();
    let mut stream = client.stream(&session, 0);
    stream.next();
    assert_eq!(take(&mut stream, 1), sent);
    // The end of the sandbox ends the stream.
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).expect(200);
    assert_eq!(stream.count(), 0);
    let stored: Vec<Frame> = client.stream(&session, 0).skip(1).collect();
    assert_eq!(stored, sent);
    client.post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(200);
    let mut later = client.run_turn(&session, "hi");
    later.remove(0);
    let mut stream = client.stream(&session, sent.last().unwrap().id);
    stream.next();
    assert_eq!(take(&mut stream, 1), later);
    client.delete(&format!("/api/sessions/{session}")).expect(200);
    let stored: Vec<Frame> = client.stream(&session, 0).skip(1).collect();
    assert_eq!(stored, [sent, later].concat());
}
