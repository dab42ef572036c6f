//! Who is connected to the control socket: bytes in, calls and bytes out. Knows nothing of sockets and time.
//!
//! Each client greets first. One that does not read is not read either, once [`READ_STOP`] of answers wait for it, and
//! loses events beyond [`EVENTS_MOST`]; it is told how many when there is room again.

use super::method::{Method, NAMES};
use super::rpc::{self, Call, CallId, Failure, Kind};
use crate::bridge::core::ConnId;
use crate::bridge::io::{Core, Step};
use crate::bridge::proto::{LineSplitter, Split};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The version of the protocol.
pub const VERSION: u64 = 1;
/// The longest line, in bytes.
pub const LINE_LIMIT: usize = 1 << 20;
/// From this backlog on no more calls are read from a client.
const READ_STOP: usize = 64 << 10;
/// From this backlog on a client gets no more events.
const EVENTS_MOST: usize = 1 << 20;

/// Where an answer goes; each is answered once.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    client: ConnId,
    /// Without one nobody waits.
    id: Option<CallId>,
}

/// A call that is to be answered with [`Clients::answer`].
#[derive(Debug, PartialEq, Eq)]
pub struct Ask {
    /// Where the answer goes.
    pub ticket: Ticket,
    /// What is asked.
    pub method: Method,
}

/// All clients.
#[derive(Debug, Default)]
pub struct Clients {
    clients: BTreeMap<ConnId, Client>,
    out: VecDeque<Step<Ask>>,
}

#[derive(Debug)]
struct Client {
    lines: LineSplitter,
    greeted: bool,
    subscribed: bool,
    /// Calls without an answer yet.
    open: usize,
    /// It will call no more.
    finished: bool,
    /// Bytes sent and not yet written.
    backlog: usize,
    /// Events that were not sent since the last that was.
    missed: u64,
}

impl Core for Clients {
    type Action = Ask;

    fn conn_open(&mut self, id: ConnId) {
        let lines = LineSplitter::new(LINE_LIMIT);
        let new = Client {
            lines,
            greeted: false,
            subscribed: false,
            open: 0,
            finished: false,
            backlog: 0,
            missed: 0,
        };
        self.clients.insert(id, new);
    }

    fn conn_input(&mut self, id: ConnId, mut input: &[u8]) {
        while let Some(client) = self.clients.get_mut(&id) {
            match client.lines.next(&mut input) {
                None => return,
                Some(Split::Line(line)) => self.line(id, line),
                Some(Split::TooLong) => {
                    let message = format!("the line is longer than {LINE_LIMIT} bytes");
                    self.send(id, rpc::failed(None, &Failure::new(Kind::Request, message)));
                }
            }
        }
    }

    /// It still reads what it has asked for.
    fn conn_finished(&mut self, id: ConnId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.finished = true;
        }
        self.close_finished(id);
    }

    fn conn_closed(&mut self, id: ConnId) {
        self.clients.remove(&id);
    }

    fn conn_written(&mut self, id: ConnId, bytes: usize) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.backlog = client.backlog.saturating_sub(bytes);
        if client.missed > 0 && client.backlog < EVENTS_MOST / 2 {
            let missed = std::mem::take(&mut client.missed);
            self.send(id, rpc::notification("events.missed", &json!({ "count": missed })));
        }
    }

    fn conn_wants_input(&self, id: ConnId) -> bool {
        self.clients.get(&id).is_some_and(|client| client.backlog < READ_STOP)
    }

    fn tick(&mut self, _: Duration) {}

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn next_step(&mut self) -> Option<Step<Ask>> {
        self.out.pop_front()
    }
}

impl Clients {
    /// Answers a call.
    pub fn answer(&mut self, ticket: Ticket, result: Result<Value, Failure>) {
        let Ticket { client, id } = ticket;
        if let Some(client) = self.clients.get_mut(&client) {
            client.open = client.open.saturating_sub(1);
        }
        if let Some(id) = &id {
            self.send(client, rpc::answer(id, result));
        }
        self.close_finished(client);
    }

    /// From now on the client of this call hears events.
    pub fn subscribe(&mut self, ticket: Ticket) {
        if let Some(client) = self.clients.get_mut(&ticket.client) {
            client.subscribed = true;
        }
        self.answer(ticket, Ok(json!({})));
    }

    /// Whether anybody hears events.
    pub fn has_listeners(&self) -> bool {
        self.clients.values().any(|client| client.subscribed)
    }

    /// Tells all who want to hear of it.
    pub fn event(&mut self, event: &impl Serialize) {
        let line = rpc::notification("event", event);
        let listeners: Vec<ConnId> =
            self.clients.iter().filter(|(_, client)| client.subscribed).map(|(id, _)| *id).collect();
        for id in listeners {
            match self.clients.get_mut(&id) {
                Some(client) if client.missed > 0 || client.backlog + line.len() > EVENTS_MOST => {
                    client.missed += 1;
                }
                _ => self.send(id, line.clone()),
            }
        }
    }

    /// Lets a client go that said all and heard all.
    fn close_finished(&mut self, id: ConnId) {
        let is_over = |client: &Client| client.finished && client.open == 0 && !client.subscribed;
        if self.clients.get(&id).is_some_and(is_over) {
            self.clients.remove(&id);
            self.out.push_back(Step::Close { conn: id, flush: true });
        }
    }

    fn send(&mut self, id: ConnId, bytes: Vec<u8>) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.backlog += bytes.len();
            self.out.push_back(Step::Send { conn: id, bytes });
        }
    }

    fn line(&mut self, id: ConnId, line: Cow<'_, [u8]>) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let call = match rpc::parse(line) {
            Ok(call) => call,
            Err((call, failure)) => return self.send(id, rpc::failed(call.as_ref(), &failure)),
        };
        let result = self.check(id, &call);
        let ticket = Ticket { client: id, id: call.id };
        if let Some(client) = self.clients.get_mut(&id) {
            client.open += 1;
        }
        match result {
            Ok(Method::Hello { .. }) => self.answer(ticket, Ok(greeting())),
            Ok(method) => self.out.push_back(Step::Other(Ask { ticket, method })),
            Err(failure) => self.answer(ticket, Err(failure)),
        }
    }

    /// Reads the method of a call, and whether this client may make it now.
    fn check(&mut self, id: ConnId, call: &Call) -> Result<Method, Failure> {
        let client = self.clients.get_mut(&id).ok_or_else(|| Failure::new(Kind::Internal, "no client"))?;
        if !client.greeted && call.method != "hello" {
            return Err(Failure::new(Kind::Greeting, "the first call is hello, with {\"version\":1}"));
        }
        let method = Method::of(call)?;
        if let Method::Hello { version } = method {
            if version != VERSION {
                let message = format!("version {version} is not spoken here; version {VERSION} is");
                return Err(Failure::new(Kind::Version, message));
            }
            client.greeted = true;
        }
        Ok(method)
    }
}

fn greeting() -> Value {
    json!({ "version": VERSION, "saggar": env!("CARGO_PKG_VERSION"), "methods": NAMES })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: ConnId = ConnId(1);
    const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"hello","params":{"version":1}}"#;

    fn greeted() -> Clients {
        let mut clients = Clients::default();
        clients.conn_open(ONE);
        clients.conn_input(ONE, format!("{HELLO}\n").as_bytes());
        let said = sent(&mut clients);
        assert_eq!((&said[0]["id"], &said[0]["result"]["version"]), (&json!(0), &json!(1)));
        clients
    }

    /// What was sent; questions are answered with their names.
    fn sent(clients: &mut Clients) -> Vec<Value> {
        let mut said = Vec::new();
        while let Some(out) = clients.next_step() {
            match out {
                Step::Send { conn: id, bytes } => {
                    said.push(serde_json::from_slice(&bytes).unwrap());
                    clients.conn_written(id, bytes.len());
                }
                Step::Other(Ask { ticket, method: Method::Subscribe }) => clients.subscribe(ticket),
                Step::Other(Ask { ticket, method }) | Step::First(Ask { ticket, method }) => {
                    clients.answer(ticket, Ok(json!(format!("{method:?}"))))
                }
                Step::Close { .. } => {}
            }
        }
        said
    }

    fn call(clients: &mut Clients, line: &str) -> Vec<Value> {
        clients.conn_input(ONE, format!("{line}\n").as_bytes());
        sent(clients)
    }

    #[test]
    fn nothing_is_heard_before_the_greeting_and_its_version() {
        let mut clients = Clients::default();
        clients.conn_open(ONE);
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
        let Some(Step::Other(Ask { ticket, method: Method::Shutdown })) = clients.next_step() else {
            panic!()
        };
        clients.answer(ticket, Ok(json!({})));
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
        let Some(Step::Other(Ask { ticket, .. })) = clients.next_step() else { panic!() };
        clients.conn_finished(ONE);
        assert_eq!(clients.next_step(), None);
        clients.answer(ticket, Ok(json!(1)));
        assert!(matches!(clients.next_step(), Some(Step::Send { conn: ONE, .. })));
        assert_eq!(clients.next_step(), Some(Step::Close { conn: ONE, flush: true }));
    }

    #[test]
    fn who_does_not_read_misses_events_and_is_told_how_many() {
        let mut clients = greeted();
        assert!(!clients.has_listeners());
        call(&mut clients, r#"{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}"#);
        assert!(clients.has_listeners());
        let event = json!({ "text": "x".repeat(1000) });
        let mut unread = Vec::new();
        for _ in 0..2000 {
            clients.event(&event);
            while let Some(Step::Send { bytes, .. }) = clients.next_step() {
                unread.push(bytes);
            }
        }
        assert!(unread.iter().map(Vec::len).sum::<usize>() <= EVENTS_MOST);
        assert!(!clients.conn_wants_input(ONE));
        let heard = unread.len();
        unread.into_iter().for_each(|bytes| clients.conn_written(ONE, bytes.len()));
        assert!(clients.conn_wants_input(ONE));
        let said = sent(&mut clients);
        assert_eq!(said[0]["method"], "events.missed");
        assert_eq!(said[0]["params"]["count"], 2000 - heard);
        clients.event(&event);
        assert_eq!(sent(&mut clients)[0]["method"], "event");
        clients.conn_closed(ONE);
        clients.event(&event);
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
