//! The events of a turn or of a session, each once and in order, across lost connections.
//!
//! A turn is sent again with the same `Idempotency-Key`: the server then sends its stream from the beginning, and what
//! was delivered already is dropped. A session is followed from its last event by `Last-Event-ID` (saggar-server(8),
//! STREAMS).

use crate::connection::Connection;
use crate::response_error::RequestFailure;
use crate::sse::{EventParser, ServerSentEvent};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::{random, text};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::time::Duration;

/// Maximum number of attempts to connect without an event or a comment between them.
const MAX_ATTEMPTS: u32 = 8;
/// Delay before the second of them; each other one doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Longest of these delays.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Longest delay that a server can ask for. If it asks for more, the request has failed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// What is streamed.
#[derive(Debug)]
enum Source {
    /// A turn: the body of its message, and the key under which it is sent again.
    Turn { body: Value, key: String },
    /// A session, from the event with this id.
    Session { after: Option<u64> },
}

/// The events of a turn or of a session.
pub struct EventStream<'a> {
    connection: &'a Connection,
    session: String,
    source: Source,
    response: Option<Box<dyn Read>>,
    parser: EventParser,
    events: VecDeque<ServerSentEvent>,
    delivered: Delivered,
    /// Attempts to connect since the last event.
    attempts: u32,
    /// Before the next attempt, the server wants this delay.
    retry_after: Duration,
    has_connected: bool,
    is_complete: bool,
}

impl fmt::Debug for EventStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("session", &self.session).finish_non_exhaustive()
    }
}

/// What of a stream the caller has. Ids never decrease, but several events can have the same one, and not every event
/// is sent again: a permission request is only while it is open. Those with the last id are therefore compared.
#[derive(Debug, Default)]
struct Delivered {
    /// The last id.
    last: Option<u64>,
    /// The events with the last id: name and data.
    at_last: Vec<(String, String)>,
    /// Those that this connection has not repeated yet.
    repeated: Vec<(String, String)>,
    has_started: bool,
}

impl Delivered {
    /// Begins a connection.
    fn reconnect(&mut self) {
        self.repeated = self.at_last.clone();
    }

    /// The id after which a session is followed: of the events with the last id, some can be missing.
    fn resume_after(&self) -> Option<u64> {
        self.last.map(|last| last.saturating_sub(1))
    }

    /// Adds an event; false if the caller has it already.
    fn add(&mut self, event: &ServerSentEvent) -> bool {
        // Each response begins with one of its own.
        if event.name == "session_start" {
            return !std::mem::replace(&mut self.has_started, true);
        }
        if event.id < self.last {
            return false;
        }
        if event.id > self.last {
            self.last = event.id;
            self.at_last.clear();
            self.repeated.clear();
        }
        let key = (event.name.clone(), event.data.clone());
        if let Some(at) = self.repeated.iter().position(|repeated| *repeated == key) {
            self.repeated.swap_remove(at);
            return false;
        }
        self.at_last.push(key);
        true
    }
}

impl<'a> EventStream<'a> {
    /// Sends a message and streams its turn. `body` is that of `POST /api/sessions/id/messages`.
    ///
    /// # Errors
    /// [`Code::System`] if there are no random numbers for the key.
    pub fn of_turn(connection: &'a Connection, session: &str, body: Value) -> Result<Self> {
        let mut bytes = [0; 16];
        random::fill(&mut bytes).map_err(|errno| Error::system("get random numbers", errno))?;
        Ok(EventStream::new(connection, session, Source::Turn { body, key: text::hex(&bytes) }))
    }

    /// Streams the events of a session after the one with the id `after`, and then new ones, while it is active.
    pub fn of_session(connection: &'a Connection, session: &str, after: Option<u64>) -> Self {
        EventStream::new(connection, session, Source::Session { after })
    }

    fn new(connection: &'a Connection, session: &str, source: Source) -> Self {
        EventStream {
            connection,
            session: session.to_owned(),
            source,
            response: None,
            parser: EventParser::default(),
            events: VecDeque::new(),
            delivered: Delivered::default(),
            attempts: 0,
            retry_after: Duration::ZERO,
            has_connected: false,
            is_complete: false,
        }
    }

    /// Waits for the next event; `None` after the last one.
    ///
    /// # Errors
    /// Those of [`Connection::get`]; for a lost connection only after several attempts to connect again.
    pub fn next_event(&mut self) -> Result<Option<ServerSentEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if !self.delivered.add(&event) {
                    continue;
                }
                self.attempts = 0;
                let ends_turn = matches!(event.name.as_str(), "done" | "error");
                self.is_complete |= ends_turn && self.is_turn();
                return Ok(Some(event));
            }
            match &mut self.response {
                Some(_) => self.read()?,
                None if self.is_complete => return Ok(None),
                None => self.connect()?,
            }
        }
    }

    fn is_turn(&self) -> bool {
        matches!(self.source, Source::Turn { .. })
    }

    /// Reads the next bytes. At the end of a response, decides whether there will be more.
    fn read(&mut self) -> Result<()> {
        let Some(response) = &mut self.response else { return Ok(()) };
        let mut chunk = [0; 16 << 10];
        match response.read(&mut chunk) {
            Ok(0) => {
                self.response = None;
                // A server that shuts down ends its streams, too.
                self.is_complete |= !self.is_turn() && !self.is_active()?;
            }
            Ok(count) => {
                let (mut events, comments) = (Vec::new(), self.parser.comments());
                self.parser.push(&chunk[..count], &mut events)?;
                self.events.extend(events);
                if self.parser.comments() > comments {
                    self.attempts = 0;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.response = None,
        }
        if self.response.is_none() && !self.is_complete && self.attempts >= MAX_ATTEMPTS {
            let address = self.connection.address();
            let error = Error::new(Code::System, format!("the connection to {address} was lost"));
            return Err(if self.is_turn() { error.hint("the turn continues on the server") } else { error });
        }
        Ok(())
    }

    /// Whether the session has a sandbox that can have further events. It may if the server does not answer.
    fn is_active(&self) -> Result<bool> {
        match self.connection.get_soon(&["api", "sessions", &self.session]) {
            Ok(answer) => Ok(answer["session"]["status"] == "active"),
            Err(failure) if failure.is_temporary() => Ok(true),
            Err(failure) => Err(failure.into_error(self.connection.address())),
        }
    }

    /// Tries once to open the stream, after a delay if the attempt before has led to no event.
    fn connect(&mut self) -> Result<()> {
        if self.attempts > 0 {
            let delay = FIRST_DELAY.saturating_mul(1 << (self.attempts - 1).min(16)).min(MAX_DELAY);
            std::thread::sleep(delay.max(std::mem::take(&mut self.retry_after)));
        }
        self.attempts += 1;
        match self.open() {
            Ok(response) => {
                self.response = Some(response);
                self.parser = EventParser::default();
                self.delivered.reconnect();
                self.has_connected = true;
                Ok(())
            }
            Err(failure) if self.can_retry(&failure) && self.attempts < MAX_ATTEMPTS => {
                self.retry_after = failure.retry_after();
                Ok(())
            }
            Err(failure) => Err(failure.into_error(self.connection.address())),
        }
    }

    fn open(&self) -> std::result::Result<Box<dyn Read>, RequestFailure> {
        let path = |last| ["api", "sessions", &self.session, last];
        match &self.source {
            Source::Turn { body, key } => {
                let header = Some(("idempotency-key", key.as_str()));
                self.connection.open_stream(&path("messages"), Some(body), header)
            }
            Source::Session { after } => {
                let after = self.delivered.resume_after().or(*after).map(|id| id.to_string());
                let header = after.as_deref().map(|id| ("last-event-id", id));
                self.connection.open_stream(&path("stream"), None, header)
            }
        }
    }

    /// Whether another attempt can succeed. A server that was never reached is reported at once.
    fn can_retry(&self, failure: &RequestFailure) -> bool {
        failure.is_temporary()
            && failure.retry_after() <= MAX_RETRY_AFTER
            && (self.has_connected || !failure.is_unreachable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(id: u64, name: &str, data: &str) -> ServerSentEvent {
        ServerSentEvent { id: Some(id), name: name.into(), data: data.into() }
    }

    #[test]
    fn an_event_that_is_not_sent_again_hides_no_other() {
        let mut delivered = Delivered::default();
        assert!(delivered.add(&event(7000, "permission_request", "{}")));
        delivered.reconnect();
        assert_eq!(delivered.resume_after(), Some(6999));
        assert!(delivered.add(&event(7000, "permission_resolved", "{}")));
        assert!(!delivered.add(&event(6998, "message", "{}")));
    }

    proptest! {
        #[test]
        fn a_stream_that_was_cut_continues_where_it_was(
            steps in prop::collection::vec((0..2u64, 0..3u8), 1..30),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        ) {
            let mut id = 7;
            let events: Vec<_> = steps
                .iter()
                .map(|(step, data)| {
                    id += step;
                    event(id, "message", &data.to_string())
                })
                .collect();
            let (mut delivered, mut received) = (Delivered::default(), Vec::new());
            let ends = cuts.iter().map(|cut| cut.index(events.len())).chain([events.len()]);
            for end in ends {
                delivered.reconnect();
                received.extend(events.iter().take(end).filter(|event| delivered.add(event)).cloned());
            }
            prop_assert_eq!(received, events);
        }
    }
}
