//! Streams that have nothing to say.

use crate::support::{Client, Server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Sends a request and returns the lines of the response. Without one for two minutes, they end with a failure.
fn lines(
    server: &Server,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> impl Iterator<Item = String> + use<> {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        server.address(),
        server.key(),
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    BufReader::new(stream).lines().map(|line| line.expect("the server sends a line"))
}

/// Waits for a comment, which clients ignore and proxies see. Names of events are collected until then.
fn events_until_comment(lines: &mut dyn Iterator<Item = String>) -> Vec<String> {
    let mut events = Vec::new();
    for line in lines {
        if line.starts_with(':') {
            return events;
        }
        events.extend(line.strip_prefix("event: ").map(str::to_owned));
    }
    panic!("the stream ends without a comment: {events:?}");
}

fn permission(client: &Client, session: &str) -> String {
    let listed = client.get(&format!("/api/sessions/{session}/permissions")).expect(200);
    listed["permissions"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn silent_streams_get_comments_and_go_on() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}");
    let mut of_session = lines(&server, "GET", &format!("{path}/stream"), None);
    assert_eq!(of_session.next().unwrap(), "HTTP/1.1 200 OK");
    assert_eq!(events_until_comment(&mut of_session), ["session_start"]);

    // A turn that waits for an answer.
    let body = json!({ "content": "ask: echo ran" });
    let mut of_turn = lines(&server, "POST", &format!("{path}/messages"), Some(&body));
    assert_eq!(of_turn.next().unwrap(), "HTTP/1.1 200 OK");
    for mut stream in [&mut of_turn as &mut dyn Iterator<Item = String>, &mut of_session] {
        assert!((&mut stream).any(|line| line == "event: permission_request"));
        let events = events_until_comment(stream);
        assert!(!events.contains(&"done".to_owned()), "{events:?}");
    }
    let answer = format!("{path}/permissions/{}", permission(&client, &session));
    client.post(&answer, &json!({ "behavior": "allow" })).expect(200);
    assert!(of_session.any(|line| line == "event: done"));
    assert!(of_turn.any(|line| line == "event: done"));
}
