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

/// Number of attempts to connect again without an event between them.
const MAX_ATTEMPTS: u32 = 8;
/// Delay before the first of them; each other one doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Longest delay.
const MAX_DELAY: Duration = Duration::from_secs(30);

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
    /// What the caller has.
    delivered: Position,
    /// What is still to be dropped of a turn that is streamed from its beginning again.
    repeated: Position,
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

/// A place among events whose ids never decrease; several can have the same id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Position {
    /// The id of the last event before it.
    id: Option<u64>,
    /// Number of events with this id before it.
    count: usize,
}

impl Position {
    /// Moves past an event.
    fn advance(&mut self, id: Option<u64>) {
        match self.id == id {
            true => self.count += 1,
            false => *self = Position { id, count: 1 },
        }
    }

    /// Whether an event that is sent again precedes this place. Each of them is asked for once, in order.
    fn follows(&mut self, id: Option<u64>) -> bool {
        let is_same = id == self.id && self.count > 0;
        self.count -= usize::from(is_same);
        is_same || id < self.id
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
            delivered: Position::default(),
            repeated: Position::default(),
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
                if self.is_repeated(&event) {
                    continue;
                }
                self.attempts = 0;
                self.delivered.advance(event.id);
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

    /// Whether the caller has the event already.
    fn is_repeated(&mut self, event: &ServerSentEvent) -> bool {
        match self.source {
            Source::Turn { .. } => self.repeated.follows(event.id),
            // Each response begins with it; the others are those after `Last-Event-ID`.
            Source::Session { .. } => event.name == "session_start" && self.delivered != Position::default(),
        }
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
                let mut events = Vec::new();
                self.parser.push(&chunk[..count], &mut events)?;
                self.events.extend(events);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.response = None,
        }
        if self.response.is_none() && !self.is_complete && self.attempts >= MAX_ATTEMPTS {
            let address = self.connection.address();
            return Err(Error::new(Code::System, format!("the connection to {address} was lost"))
                .hint("the turn continues on the server"));
        }
        Ok(())
    }

    /// Whether the session has a sandbox that can have further events. It may if the server does not answer.
    fn is_active(&self) -> Result<bool> {
        match self.connection.get(&["api", "sessions", &self.session], &[]) {
            Ok(answer) => Ok(answer["session"]["status"] == "active"),
            Err(error) if error.code() == Code::System => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Tries once to open the stream, after a delay if the attempt before has led to no event.
    fn connect(&mut self) -> Result<()> {
        if self.attempts > 0 {
            let delay = FIRST_DELAY.saturating_mul(1 << self.attempts.min(16));
            std::thread::sleep(delay.max(self.retry_after).min(MAX_DELAY));
        }
        self.attempts += 1;
        match self.open() {
            Ok(response) => {
                self.response = Some(response);
                self.parser = EventParser::default();
                self.repeated = self.delivered;
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
                let after = self.delivered.id.or(*after).map(|id| id.to_string());
                let header = after.as_deref().map(|id| ("last-event-id", id));
                self.connection.open_stream(&path("stream"), None, header)
            }
        }
    }

    /// Whether another attempt can succeed. A server that was never reached is reported at once.
    fn can_retry(&self, failure: &RequestFailure) -> bool {
        match failure {
            RequestFailure::Connection(_) => self.has_connected || !failure.is_unreachable(),
            RequestFailure::Response(response) => response.is_temporary(),
            RequestFailure::Name(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_turn_that_is_sent_again_continues_where_it_was(
            steps in prop::collection::vec(0..2u64, 1..30),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        ) {
            let ids: Vec<Option<u64>> = steps
                .iter()
                .scan(7, |id, step| { *id += step; Some(Some(*id)) })
                .collect();
            let (mut delivered, mut received) = (Position::default(), Vec::new());
            let ends = cuts.iter().map(|cut| cut.index(ids.len())).chain([ids.len()]);
            for end in ends {
                let mut repeated = delivered;
                for (index, id) in ids.iter().enumerate().take(end) {
                    if !repeated.follows(*id) {
                        delivered.advance(*id);
                        received.push(index);
                    }
                }
            }
            prop_assert_eq!(received, (0..ids.len()).collect::<Vec<_>>());
        }
    }
}
