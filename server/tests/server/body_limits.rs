//! The sizes of bodies, also of those that do not declare one.

use crate::support::{Server, settings_file};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The limits of the server: of messages, of most other bodies, and of the body with an attachment of 3000 bytes.
const MESSAGE_LIMIT: usize = 50 << 20;
const BODY_LIMIT: usize = 1 << 20;
const ATTACHMENT_LIMIT: usize = 4000 + (64 << 10);
/// The most bytes that are sent at once.
const PART: usize = 1 << 20;

/// How a body is framed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    ContentLength,
    Chunked,
}

/// Sends a request that declares a body of `size` bytes, or chunks, and of that body the first `sent` bytes. Returns the
/// status and the JSON body of the response. The chunks do not end: an answer is about the bytes that have arrived.
fn post(
    server: &Server,
    key: &str,
    path: &str,
    (framing, size): (Framing, usize),
    sent: usize,
) -> (u16, Value) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    // Only a failure reaches it.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = match framing {
        Framing::ContentLength => format!("content-length: {size}"),
        Framing::Chunked => "transfer-encoding: chunked".to_owned(),
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\nconnection: close\r\n{length}\r\n\r\n",
        server.address()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let part = vec![b' '; PART];
    let mut left = sent;
    while left > 0 {
        let bytes = &part[..left.min(PART)];
        if framing == Framing::Chunked {
            // The end of the previous chunk, then the size of this one. No bytes follow the last one, so that the
            // server has read all when it closes the connection.
            let end = if left == sent { "" } else { "\r\n" };
            stream.write_all(format!("{end}{:x}\r\n", bytes.len()).as_bytes()).unwrap();
        }
        stream.write_all(bytes).unwrap();
        left -= bytes.len();
    }
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let status = response.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {response:?}"));
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response:?}"));
    (status.parse().unwrap(), body)
}

#[test]
fn body_beyond_its_limit_is_refused_with_and_without_a_declared_length() {
    let server = Server::start_with(&[], &[("ASH_MAX_ATTACHMENT_SIZE", "3000")]);
    let session = server.create_session();
    let messages = format!("/api/sessions/{session}/messages");
    let exec = format!("/api/sessions/{session}/exec");
    let error = json!({ "error": "Request body is too large", "statusCode": 413 });
    let attachments = format!("/api/sessions/{session}/attachments");
    for (path, limit) in [
        ("/api/sessions", BODY_LIMIT),
        (exec.as_str(), BODY_LIMIT),
        (messages.as_str(), MESSAGE_LIMIT),
        (attachments.as_str(), ATTACHMENT_LIMIT),
    ] {
        for framing in [Framing::ContentLength, Framing::Chunked] {
            let refused = post(&server, &server.key(), path, (framing, limit + 1), limit + 1);
            assert_eq!(refused, (413, error.clone()), "{path}, {framing:?}");
        }
        // As large as allowed: blanks are read as an object without its fields.
        let (status, error) = post(&server, &server.key(), path, (Framing::ContentLength, limit), limit);
        assert_eq!(status, 400, "{path}: {error}");
    }
    let client = server.client();
    assert_eq!(client.get(&messages).expect(200)["messages"], json!([]));
    assert_eq!(client.run_turn(&session, "hi").last().unwrap().event, "done");
}

#[test]
fn client_without_a_key_is_answered_before_its_large_body() {
    let server = Server::start();
    let session = server.create_session();
    let error = json!({ "error": "Invalid API key", "statusCode": 401 });
    // What the server reads of a refused body: until it has waited for a while, or has the first byte beyond.
    let drained = (64 << 10) + 1;
    for (path, sent) in [("messages", 0), ("messages", drained), ("files", drained), ("workspace", drained)] {
        let path = format!("/api/sessions/{session}/{path}");
        let body = (Framing::ContentLength, MESSAGE_LIMIT);
        assert_eq!(post(&server, "ash_guess", &path, body, sent), (401, error.clone()), "{path}, {sent}");
    }
}

#[test]
fn limits_are_settings() {
    let settings = settings_file("[body_limit]\nother = 100\nmessage = 200\n");
    let server = Server::start_with(&["--config", settings.path().to_str().unwrap()], &[]);
    let (client, session) = (server.client(), server.create_session());
    let send = |size: usize| client.send(&session, &json!({ "content": "x".repeat(size) }));
    assert_eq!(send(100).last().unwrap().event, "done");
    let message = json!({ "content": "x".repeat(200) });
    client.post(&format!("/api/sessions/{session}/messages"), &message).expect(413);
    client.post("/api/sessions", &json!({ "agent": "x".repeat(100) })).expect(413);
}
