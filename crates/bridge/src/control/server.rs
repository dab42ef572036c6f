//! The clients of the control socket: bytes in, requests and bytes out. This module has no access to sockets or clocks.
//!
//! Each client sends `hello` first. The server stops reading from a client while [`READ_BACKLOG_LIMIT`] bytes of output
//! wait for it. Beyond [`EVENT_BACKLOG_LIMIT`] bytes the client loses events; when its backlog has shrunk, it is
//! notified of their number.

use super::method::{ControlMethod, METHOD_NAMES};
use super::rpc::{self, RpcError, RpcErrorKind, RpcId, RpcRequest};
use crate::core::ConnId;
use crate::io::{HubCore, HubStep};
use crate::proto::json::shorten;
use crate::proto::{LineSplitter, SplitLine};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Version of the control protocol.
pub const PROTOCOL_VERSION: u64 = 1;
/// Longest line in bytes.
pub const LINE_LIMIT: usize = 1 << 20;
/// Backlog in bytes from which the server reads no more requests from a client.
const READ_BACKLOG_LIMIT: usize = 64 << 10;
/// Backlog in bytes from which a client gets no more events.
const EVENT_BACKLOG_LIMIT: usize = 1 << 20;

/// Identifies the request that a response belongs to. Each ticket is used once.
#[derive(Debug, PartialEq, Eq)]
pub struct ResponseTicket {
    client: ConnId,
    /// `None` for a notification, which gets no response.
    id: Option<RpcId>,
}

impl ResponseTicket {
    /// Whether it belongs to the request with this id of the client of `other`.
    pub fn is_call_of_same_client(&self, other: &ResponseTicket, id: &RpcId) -> bool {
        self.client == other.client && self.id.as_ref() == Some(id)
    }
}

/// A request that is answered with [`ControlServer::respond`].
#[derive(Debug, PartialEq, Eq)]
pub struct ControlRequest {
    /// Passed to [`ControlServer::respond`] with the result.
    pub ticket: ResponseTicket,
    /// The method and its parameters.
    pub method: ControlMethod,
}

/// All connected clients.
#[derive(Debug, Default)]
pub struct ControlServer {
    clients: BTreeMap<ConnId, ConnectedClient>,
    steps: VecDeque<HubStep<ControlRequest>>,
}

#[derive(Debug)]
struct ConnectedClient {
    lines: LineSplitter,
    has_greeted: bool,
    /// The methods that the client may call; `None` for all.
    methods: Option<Vec<String>>,
    is_subscribed: bool,
    /// Number of requests that have no response yet.
    pending_requests: usize,
    /// The client has closed its sending side.
    has_finished: bool,
    /// Bytes that were queued and not yet written.
    backlog: usize,
    /// Number of events dropped since the last event that was sent.
    dropped_events: u64,
}

impl HubCore for ControlServer {
    type Action = ControlRequest;

    fn conn_opened(&mut self, id: ConnId) {
        let lines = LineSplitter::new(LINE_LIMIT);
        let new = ConnectedClient {
            lines,
            has_greeted: false,
            methods: None,
            is_subscribed: false,
            pending_requests: 0,
            has_finished: false,
            backlog: 0,
            dropped_events: 0,
        };
        self.clients.insert(id, new);
    }

    fn conn_input(&mut self, id: ConnId, mut input: &[u8]) {
        while let Some(client) = self.clients.get_mut(&id) {
            match client.lines.next(&mut input) {
                None => return,
                Some(SplitLine::Line(line)) => self.handle_line(id, line),
                Some(SplitLine::TooLong) => {
                    let message = format!("the line is longer than {LINE_LIMIT} bytes");
                    self.send(
                        id,
                        rpc::encode_error_response(None, &RpcError::new(RpcErrorKind::Request, message)),
                    );
                }
            }
        }
    }

    /// The client still reads responses to its earlier requests.
    fn conn_half_closed(&mut self, id: ConnId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.has_finished = true;
        }
        self.close_finished(id);
    }

    fn conn_closed(&mut self, id: ConnId) {
        self.clients.remove(&id);
    }

    fn conn_written(&mut self, id: ConnId, bytes: usize) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.backlog = client.backlog.saturating_sub(bytes);
        if client.dropped_events > 0 && client.backlog < EVENT_BACKLOG_LIMIT / 2 {
            let missed = std::mem::take(&mut client.dropped_events);
            self.send(id, rpc::encode_notification("events.missed", &json!({ "count": missed })));
        }
    }

    fn conn_wants_input(&self, id: ConnId) -> bool {
        self.clients.get(&id).is_some_and(|client| client.backlog < READ_BACKLOG_LIMIT)
    }

    fn tick(&mut self, _: Duration) {}

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn next_step(&mut self) -> Option<HubStep<ControlRequest>> {
        self.steps.pop_front()
    }
}

impl ControlServer {
    /// Sends the response to a request.
    pub fn respond(&mut self, ticket: ResponseTicket, result: Result<Value, RpcError>) {
        let ResponseTicket { client, id } = ticket;
        if let Some(client) = self.clients.get_mut(&client) {
            client.pending_requests = client.pending_requests.saturating_sub(1);
        }
        if let Some(id) = &id {
            self.send(client, rpc::encode_response(id, result));
        }
        self.close_finished(client);
    }

    /// Sends events to the client of this request from now on.
    pub fn subscribe(&mut self, ticket: ResponseTicket) {
        if let Some(client) = self.clients.get_mut(&ticket.client) {
            client.is_subscribed = true;
        }
        self.respond(ticket, Ok(json!({})));
    }

    /// Whether the client of this request is connected.
    pub fn is_connected(&self, ticket: &ResponseTicket) -> bool {
        self.clients.contains_key(&ticket.client)
    }

    /// Whether any client is subscribed to events.
    pub fn has_subscribers(&self) -> bool {
        self.clients.values().any(|client| client.is_subscribed)
    }

    /// Sends an event to all subscribed clients.
    pub fn publish_event(&mut self, event: &impl Serialize) {
        let line = rpc::encode_notification("event", event);
        let listeners: Vec<ConnId> =
            self.clients.iter().filter(|(_, client)| client.is_subscribed).map(|(id, _)| *id).collect();
        for id in listeners {
            match self.clients.get_mut(&id) {
                Some(client)
                    if client.dropped_events > 0 || client.backlog + line.len() > EVENT_BACKLOG_LIMIT =>
                {
                    client.dropped_events += 1;
                }
                _ => self.send(id, line.clone()),
            }
        }
    }

    /// Closes the connection of a client that has closed its sending side and has read all responses.
    fn close_finished(&mut self, id: ConnId) {
        let is_over = |client: &ConnectedClient| {
            client.has_finished && client.pending_requests == 0 && !client.is_subscribed
        };
        if self.clients.get(&id).is_some_and(is_over) {
            self.clients.remove(&id);
            self.steps.push_back(HubStep::Close { conn: id, flush: true });
        }
    }

    fn send(&mut self, id: ConnId, bytes: Vec<u8>) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.backlog += bytes.len();
            self.steps.push_back(HubStep::Send { conn: id, bytes });
        }
    }

    fn handle_line(&mut self, id: ConnId, line: Cow<'_, [u8]>) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let call = match rpc::parse_request(line) {
            Ok(call) => call,
            Err((call, failure)) => {
                return self.send(id, rpc::encode_error_response(call.as_ref(), &failure));
            }
        };
        let result = self.parse_method(id, &call);
        let ticket = ResponseTicket { client: id, id: call.id };
        if let Some(client) = self.clients.get_mut(&id) {
            client.pending_requests += 1;
        }
        match result {
            Ok(ControlMethod::Hello { .. }) => self.respond(ticket, Ok(hello_result())),
            Ok(method) => self.steps.push_back(HubStep::Other(ControlRequest { ticket, method })),
            Err(failure) => self.respond(ticket, Err(failure)),
        }
    }

    /// Parses the method of a request, and checks that this client may call it now.
    fn parse_method(&mut self, id: ConnId, call: &RpcRequest) -> Result<ControlMethod, RpcError> {
        let client =
            self.clients.get_mut(&id).ok_or_else(|| RpcError::new(RpcErrorKind::Internal, "no client"))?;
        if !client.has_greeted && call.method != "hello" {
            return Err(RpcError::new(
                RpcErrorKind::Greeting,
                "the first call is hello, with {\"version\":1}",
            ));
        }
        if client.methods.as_ref().is_some_and(|allowed| !allowed.contains(&call.method)) {
            let message = format!("{}: this connection is limited to other methods", shorten(&call.method));
            return Err(RpcError::new(RpcErrorKind::Method, message));
        }
        let method = ControlMethod::parse(call)?;
        if let ControlMethod::Hello { version, methods } = &method {
            if *version != PROTOCOL_VERSION {
                let message = format!("version {version} is not supported; use version {PROTOCOL_VERSION}");
                return Err(RpcError::new(RpcErrorKind::Version, message));
            }
            if let Some(unknown) =
                methods.iter().flatten().find(|name| !METHOD_NAMES.contains(&name.as_str()))
            {
                let message = format!("hello: there is no method {:?}", shorten(unknown));
                return Err(RpcError::new(RpcErrorKind::Params, message));
            }
            client.has_greeted = true;
            // A limit is never lifted.
            client.methods = match (client.methods.take(), methods) {
                (None, new) => new.clone(),
                (old, None) => old,
                (Some(old), Some(new)) => Some(old.into_iter().filter(|name| new.contains(name)).collect()),
            };
        }
        Ok(method)
    }
}

fn hello_result() -> Value {
    json!({ "version": PROTOCOL_VERSION, "saggar": env!("CARGO_PKG_VERSION"), "methods": METHOD_NAMES })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: ConnId = ConnId(1);
    const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"hello","params":{"version":1}}"#;

    fn greeted() -> ControlServer {
        let mut clients = ControlServer::default();
        clients.conn_opened(ONE);
        clients.conn_input(ONE, format!("{HELLO}\n").as_bytes());
        let said = sent(&mut clients);
        assert_eq!((&said[0]["id"], &said[0]["result"]["version"]), (&json!(0), &json!(1)));
        clients
    }

    /// What was sent; questions are answered with their names.
    fn sent(clients: &mut ControlServer) -> Vec<Value> {
        let mut said = Vec::new();
        while let Some(out) = clients.next_step() {
            match out {
                HubStep::Send { conn: id, bytes } => {
                    said.push(serde_json::from_slice(&bytes).unwrap());
                    clients.conn_written(id, bytes.len());
                }
                HubStep::Other(ControlRequest { ticket, method: ControlMethod::Subscribe }) => {
                    clients.subscribe(ticket)
                }
                HubStep::Other(ControlRequest { ticket, method })
                | HubStep::OtherFirst(ControlRequest { ticket, method }) => {
                    clients.respond(ticket, Ok(json!(format!("{method:?}"))))
                }
                HubStep::Close { .. } => {}
            }
        }
        said
    }

    fn call(clients: &mut ControlServer, line: &str) -> Vec<Value> {
        clients.conn_input(ONE, format!("{line}\n").as_bytes());
        sent(clients)
    }

    #[test]
    fn nothing_is_heard_before_the_greeting_and_its_version() {
        let mut clients = ControlServer::default();
        clients.conn_opened(ONE);
        let code = |said: &[Value]| said[0]["error"]["data"]["name"].as_str().unwrap().to_owned();
        assert_eq!(code(&call(&mut clients, r#"{"jsonrpc":"2.0","id":1,"method":"shutdown"}"#)), "greeting");
        assert_eq!(code(&call(&mut clients, r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#)), "greeting");
        let other = HELLO.replace(":1}", ":2}");
        assert_eq!(code(&call(&mut clients, &other)), "version");
        assert_eq!(code(&call(&mut clients, r#"{"jsonrpc":"2.0","id":1,"method":"state"}"#)), "greeting");
        assert_eq!(code(&call(&mut clients, "[]")), "request");
    }

    #[test]
    fn a_notification_is_done_and_not_answered() {
        let mut clients = greeted();
        clients.conn_input(ONE, b"{\"jsonrpc\":\"2.0\",\"method\":\"shutdown\"}\n\n \r\n");
        let Some(HubStep::Other(ControlRequest {
            ticket,
            method: ControlMethod::Shutdown { if_idle: false },
        })) = clients.next_step()
        else {
            panic!()
        };
        clients.respond(ticket, Ok(json!({})));
        assert_eq!(clients.next_step(), None);
    }

    #[test]
    fn a_line_that_is_too_long_costs_itself_alone() {
        let mut clients = greeted();
        clients.conn_input(ONE, &vec![b'x'; LINE_LIMIT + 5]);
        clients.conn_input(ONE, b"rest\n");
        assert_eq!(sent(&mut clients)[0]["error"]["code"], -32600);
        assert_eq!(call(&mut clients, r#"{"jsonrpc":"2.0","id":7,"method":"state"}"#)[0]["id"], 7);
    }

    #[test]
    fn who_says_no_more_still_hears_what_it_asked_for() {
        let mut clients = greeted();
        clients.conn_input(ONE, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"state\"}\n");
        let Some(HubStep::Other(ControlRequest { ticket, .. })) = clients.next_step() else { panic!() };
        clients.conn_half_closed(ONE);
        assert_eq!(clients.next_step(), None);
        clients.respond(ticket, Ok(json!(1)));
        assert!(matches!(clients.next_step(), Some(HubStep::Send { conn: ONE, .. })));
        assert_eq!(clients.next_step(), Some(HubStep::Close { conn: ONE, flush: true }));
    }

    #[test]
    fn who_does_not_read_misses_events_and_is_told_how_many() {
        let mut clients = greeted();
        assert!(!clients.has_subscribers());
        call(&mut clients, r#"{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}"#);
        assert!(clients.has_subscribers());
        let event = json!({ "text": "x".repeat(1000) });
        let mut unread = Vec::new();
        for _ in 0..2000 {
            clients.publish_event(&event);
            while let Some(HubStep::Send { bytes, .. }) = clients.next_step() {
                unread.push(bytes);
            }
        }
        assert!(unread.iter().map(Vec::len).sum::<usize>() <= EVENT_BACKLOG_LIMIT);
        assert!(!clients.conn_wants_input(ONE));
        let heard = unread.len();
        unread.into_iter().for_each(|bytes| clients.conn_written(ONE, bytes.len()));
        assert!(clients.conn_wants_input(ONE));
        let said = sent(&mut clients);
        assert_eq!(said[0]["method"], "events.missed");
        assert_eq!(said[0]["params"]["count"], 2000 - heard);
        clients.publish_event(&event);
        assert_eq!(sent(&mut clients)[0]["method"], "event");
        clients.conn_closed(ONE);
        clients.publish_event(&event);
        assert_eq!(clients.next_step(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// Every call with an id has one answer with this id, however the bytes are cut.
        #[test]
        fn every_call_is_answered_once(
            calls in proptest::collection::vec((0u32..100, "state|stats|nope|logs|\\[|hello"), 1..20), size in 1usize..40,
        ) {
            let mut clients = greeted();
            let lines: Vec<String> = calls.iter()
                .map(|(id, name)| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{name}\"}}\n")).collect();
            let text = lines.concat();
            text.as_bytes().chunks(size).for_each(|piece| clients.conn_input(ONE, piece));
            let said = sent(&mut clients);
            let ids: Vec<u64> = said.iter().map(|line| line["id"].as_u64().unwrap()).collect();
            let mut ids = ids;
            let mut asked: Vec<u64> = calls.iter().map(|(id, _)| u64::from(*id)).collect();
            ids.sort_unstable();
            asked.sort_unstable();
            prop_assert_eq!(ids, asked);
        }
    }
}
