//! The mock by itself: the agent's tests rest on it, so it is tested first.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::MockApi;
use super::script::{Reply, reply_to};
use crate::support::caller::Caller;
use crate::support::place::Place;

fn tools() -> Value {
    json!([{
        "name": "Write",
        "input_schema": {
            "properties": {"file_path": {}, "content": {}, "mode": {}},
            "required": ["file_path", "content", "mode"],
        },
    }])
}

fn prompt(text: &str) -> Value {
    json!({"tools": tools(), "messages": [{"role": "user", "content": text}]})
}

#[test]
fn a_prompt_decides_the_reply() {
    assert_eq!(reply_to(&prompt("please mock:say two words")), Reply::Text("two words".to_owned()));
    assert_eq!(reply_to(&prompt("mock:stream")), Reply::Endless);
    let input = json!({"file_path": "/w/a.txt", "content": "one line", "mode": "from the mock"});
    let call = Reply::ToolUse { name: "Write".to_owned(), input };
    assert_eq!(reply_to(&prompt("mock:write /w/a.txt one line")), call);
}

#[test]
fn mock_describes_a_tool_that_is_not_offered_as_text() {
    let reply = reply_to(&prompt("mock:run true"));
    assert_eq!(reply, Reply::Text("the agent offers no tool Bash".to_owned()));
}

#[test]
fn the_newest_block_counts() {
    let result = json!({"type": "tool_result", "content": [{"type": "text", "text": "fine"}]});
    let mut request = prompt("mock:write a b");
    request["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": [result]}));
    assert_eq!(reply_to(&request), Reply::Text("the tool said: fine".to_owned()));
    let next = json!({"type": "text", "text": "mock:say next"});
    request["messages"][1]["content"].as_array_mut().unwrap().push(next);
    assert_eq!(reply_to(&request), Reply::Text("next".to_owned()));
}

#[test]
fn one_connection_serves_requests_with_a_length_and_in_chunks() {
    let (api, port) = MockApi::on_loopback();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let body = prompt("mock:say hello").to_string();
    write!(stream, "POST /v1/messages?beta=true HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    assert_eq!(json_answer(&mut answers)["content"][0]["text"], "hello");
    let (head, tail) = body.split_at(9);
    let chunks = format!("9\r\n{head}\r\n{:x};ext=1\r\n{tail}\r\n0\r\ntrailer: x\r\n\r\n", tail.len());
    write!(stream, "POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunks}").unwrap();
    assert_eq!(json_answer(&mut answers)["content"][0]["text"], "hello");
    write!(stream, "GET /api/hello HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(json_answer(&mut answers), json!({}));
    assert_eq!(api.turns().len(), 2);
    assert!(api.last_turn().conversation_has("mock:say hello"));
    assert_eq!(api.other_requests(), ["GET /api/hello"]);
}

#[test]
fn mock_stream_ends_on_request_and_abandoned_streams_are_counted() {
    let place = Place::new(Caller::current());
    let socket = place.join("api.sock");
    let api = MockApi::on_unix(&socket);
    let begin = || {
        let mut body = prompt("mock:stream");
        body["stream"] = json!(true);
        let body = body.to_string();
        let mut stream = UnixStream::connect(&socket).unwrap();
        write!(stream, "POST /v1/messages HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert!(lines.by_ref().any(|line| line.contains("part 3")), "the stream goes on");
        lines
    };
    drop(begin());
    api.wait_for_abandoned_streams(1);
    let mut lines = begin();
    api.stop_streams();
    assert!(lines.any(|line| line == "event: message_stop"));
}

/// Reads an answer that has a length.
fn json_answer(from: &mut impl BufRead) -> Value {
    let mut length = 0;
    loop {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            from.read_exact(&mut body).unwrap();
            return serde_json::from_slice(&body).unwrap();
        }
    }
}
