//! An HTTP client that checks every response against the OpenAPI document.

use super::conformity::{check_frame, check_response};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use ureq::http::{HeaderMap, Method, Request};
use ureq::{Agent, Body};

/// A client with one API key, or without a key.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    url: String,
    key: Option<String>,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    /// The JSON body; null if it is not JSON.
    pub body: Value,
    request: String,
}

impl Response {
    /// Checks the status and returns the body.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.request, self.body);
        self.body
    }
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub id: u64,
    pub event: String,
    /// The data, byte for byte.
    pub data: String,
}

impl Frame {
    /// Parses the data as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

impl Client {
    pub fn new(url: &str, key: Option<&str>) -> Self {
        let settings = Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true);
        Client { agent: settings.build().into(), url: url.to_owned(), key: key.map(str::to_owned) }
    }

    /// Sends a request with these headers, the key and this body.
    #[track_caller]
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let (status, headers, mut body) = self.start(method, path, headers, body);
        let mut text = String::new();
        body.as_reader().read_to_string(&mut text).unwrap();
        check_response(method, path, status, &headers, text.as_bytes());
        let body = serde_json::from_str(&text).unwrap_or_default();
        Response { status, headers, body, request: format!("{method} {path}") }
    }

    /// Sends a request that is to be refused. A stream of events, which can be without an end, is not read.
    #[track_caller]
    pub fn request_refused(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        // A separate client, so that a connection with an unread stream is not pooled.
        let own = Client::new(&self.url, self.key.as_deref());
        let (status, received, mut body) = own.start(method, path, headers, body);
        let mut bytes = Vec::new();
        if received.get("content-type").is_none_or(|media_type| media_type != "text/event-stream") {
            body.as_reader().read_to_end(&mut bytes).unwrap();
        }
        check_response(method, path, status, &received, &bytes);
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Response { status, headers: received, body, request: format!("{method} {path}") }
    }

    fn start(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (u16, HeaderMap, Body) {
        let mut request =
            Request::builder().method(method.parse::<Method>().unwrap()).uri(format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = if body.is_empty() {
            self.agent.run(request.body(()).unwrap())
        } else {
            self.agent.run(request.body(body).unwrap())
        };
        let (parts, body) = response.unwrap().into_parts();
        (parts.status.as_u16(), parts.headers, body)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path, &[], b"")
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.request("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    #[track_caller]
    pub fn patch(&self, path: &str, body: &Value) -> Response {
        self.request("PATCH", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Response {
        self.request("DELETE", path, &[], b"")
    }

    /// The data of the `lifecycle` events of a session, the oldest first.
    #[track_caller]
    pub fn lifecycle_events(&self, session: &str) -> Vec<Value> {
        let listed = self.get(&format!("/api/sessions/{session}/events?type=lifecycle")).expect(200);
        let events = listed["events"].as_array().unwrap();
        events.iter().map(|event| serde_json::from_str(event["data"].as_str().unwrap()).unwrap()).collect()
    }

    /// Gets bytes, with the status and the headers of the response.
    #[track_caller]
    pub fn download(&self, path: &str) -> (u16, HeaderMap, Vec<u8>) {
        let (status, headers, mut body) = self.start("GET", path, &[], b"");
        let mut bytes = Vec::new();
        body.as_reader().read_to_end(&mut bytes).unwrap();
        check_response("GET", path, status, &headers, &bytes);
        (status, headers, bytes)
    }

    /// Sends a message and returns the frames as they arrive, until the stream ends. Dropping the iterator closes the
    /// connection.
    #[track_caller]
    pub fn send(&self, session: &str, body: &Value) -> impl Iterator<Item = Frame> + use<> {
        self.send_with(session, &[], body)
    }

    /// As [`Client::send`], with this `Idempotency-Key`.
    #[track_caller]
    pub fn send_once(&self, session: &str, key: &str, body: &Value) -> impl Iterator<Item = Frame> + use<> {
        self.send_with(session, &[("idempotency-key", key)], body)
    }

    /// As [`Client::send`], with these headers.
    #[track_caller]
    pub fn send_with(
        &self,
        session: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> impl Iterator<Item = Frame> + use<> {
        let path = format!("/api/sessions/{session}/messages");
        let headers = [&[("content-type", "application/json")][..], headers].concat();
        self.frames("POST", &path, &headers, body.to_string().as_bytes())
    }

    /// Returns the frames of the stream of a session after the frame with this id.
    #[track_caller]
    pub fn stream(&self, session: &str, after: u64) -> impl Iterator<Item = Frame> + use<> {
        let path = format!("/api/sessions/{session}/stream");
        self.frames("GET", &path, &[("last-event-id", &after.to_string())], b"")
    }

    #[track_caller]
    fn frames(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> impl Iterator<Item = Frame> + use<> {
        // A separate client, so that the connection is not pooled.
        let own = Client::new(&self.url, self.key.as_deref());
        let (status, headers, body) = own.start(method, path, headers, body);
        assert_eq!(status, 200);
        check_response(method, path, status, &headers, b"");
        assert_eq!(headers["content-type"], "text/event-stream");
        assert_eq!(headers["cache-control"], "no-cache");
        let mut lines = BufReader::new(body.into_reader()).lines().map_while(Result::ok);
        std::iter::from_fn(move || frame(&mut lines)).inspect(check_frame)
    }

    /// Sends a text message and returns all frames of its turn.
    #[track_caller]
    pub fn run_turn(&self, session: &str, text: &str) -> Vec<Frame> {
        self.send(session, &serde_json::json!({ "content": text })).collect()
    }
}

/// Parses the next frame with the line prefixes that clients of Ash expect. Comments are skipped.
fn frame(lines: &mut impl Iterator<Item = String>) -> Option<Frame> {
    let (mut id, mut event, mut data) = (None, None, None);
    for line in lines {
        match line.split_once(": ") {
            Some(("id", value)) => id = Some(value.parse().unwrap()),
            Some(("event", value)) => event = Some(value.to_owned()),
            Some(("data", value)) => assert!(data.replace(value.to_owned()).is_none(), "two lines of data"),
            _ if line.is_empty() && event.is_some() => {
                return Some(Frame { id: id.expect("an id"), event: event?, data: data.expect("data") });
            }
            _ => assert!(line.is_empty() || line.starts_with(':'), "an unknown line {line:?}"),
        }
    }
    assert!(event.is_none(), "the stream ends in the middle of an event");
    None
}
