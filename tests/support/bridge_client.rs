//! A server's end of the bridge: one connection, newline-delimited JSON, every wait with a deadline. What a server does
//! that keeps to the protocol goes through the types of the client in `saggar::bridge::client`; the rest are bytes.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use saggar::bridge::client::{ClientCommand, ReceivedEvent};
use serde_json::{Value, json};

use super::deadline::Deadline;
use super::lines::Lines;

/// The session id that [`BridgeClient::query`] uses: any opaque string of the server's will do.
pub(crate) const SESSION: &str = "test-session";

/// One connection to a bridge socket.
#[derive(Debug)]
pub(crate) struct BridgeClient {
    lines: Lines<UnixStream>,
}

/// What one command brought: its messages in order, and the one event that ended it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The `data` of each `message` event.
    pub(crate) messages: Vec<Value>,
    /// The terminal event: `done` or `error`.
    pub(crate) end: Value,
}

impl Outcome {
    /// Whether the command ended in `done`.
    pub(crate) fn is_done(&self) -> bool {
        self.end["ev"] == "done"
    }

    /// The messages of this `type`.
    pub(crate) fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.messages.iter().filter(move |message| message["type"] == kind)
    }
}

impl BridgeClient {
    /// Connects and takes the `ready` event, which must be the first.
    pub(crate) fn connect(socket: &Path) -> Self {
        BridgeClient::connect_only(socket).greeted()
    }

    /// Over a connection that stands.
    pub(crate) fn over(stream: UnixStream) -> Self {
        stream.set_write_timeout(Some(Deadline::usual().remaining())).expect("a write timeout can be set");
        BridgeClient { lines: Lines::new(stream) }
    }

    /// After its `ready`, which must be the first event.
    pub(crate) fn greeted(mut self) -> Self {
        assert_eq!(self.event(), json!({"ev": "ready"}), "the first event of a connection is ready");
        self
    }

    /// Connects as a server does that only knows the path: it is there a moment before anybody listens on it.
    pub(crate) fn connect_when_listening(socket: &Path) -> Self {
        super::wait::until_exists(socket);
        let deadline = Deadline::usual();
        while UnixStream::connect(socket)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            assert!(!deadline.remaining().is_zero(), "nobody listens on {}", socket.display());
            deadline.pause();
        }
        BridgeClient::connect(socket)
    }

    /// Connects and reads nothing yet.
    pub(crate) fn connect_only(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", socket.display()));
        BridgeClient::over(stream)
    }

    /// Sends one object as a line.
    pub(crate) fn send(&mut self, command: &Value) {
        let mut line = command.to_string();
        line.push('\n');
        self.send_bytes(line.as_bytes());
    }

    /// Sends bytes as they are: for lines that are not what they should be.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.try_send_bytes(bytes).unwrap_or_else(|error| panic!("the bridge takes no more: {error}"));
    }

    /// The same to a bridge that may close meanwhile.
    pub(crate) fn try_send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.lines.source().write_all(bytes)
    }

    /// Receives once, as much as there is up to `buffer`: what came as one write is seen as one.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> usize {
        Deadline::usual().readable(self.lines.source()).expect("something comes");
        let mut stream = self.lines.source();
        std::io::Read::read(&mut stream, buffer).expect("the bridge can be read")
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Value {
        self.lines.next_json(Deadline::usual())
    }

    /// The next event as the bytes of its line.
    pub(crate) fn raw_event(&mut self) -> Vec<u8> {
        let line = self.lines.next_line(Deadline::usual());
        line.ok().flatten().unwrap_or_else(|| panic!("no event came\n{}", self.lines.report()))
    }

    /// The next event as the bytes of its line, if it comes so soon.
    pub(crate) fn event_within(&mut self, time: Duration) -> Option<Vec<u8>> {
        self.lines.next_line(Deadline::after(time)).ok().flatten()
    }

    /// The next event as the client reads it.
    fn received(&mut self) -> ReceivedEvent {
        ReceivedEvent::parse(self.raw_event())
            .unwrap_or_else(|error| panic!("{error}\n{}", self.lines.report()))
    }

    /// All events up to and with the first that `last` accepts.
    pub(crate) fn events_until(&mut self, last: impl Fn(&Value) -> bool) -> Vec<Value> {
        self.lines.until(Deadline::usual(), last)
    }

    /// Sends a query and returns at once.
    pub(crate) fn query(&mut self, prompt: &str) {
        self.send_bytes(&ClientCommand::query(prompt, SESSION).encode());
    }

    /// Reads to the terminal event of the running command.
    pub(crate) fn outcome(&mut self) -> Outcome {
        let json = |text: &str| serde_json::from_str(text).expect("an event is JSON");
        let mut messages = Vec::new();
        loop {
            let event = self.received();
            if event.is_terminal() {
                return Outcome { messages, end: json(event.line()) };
            }
            let message = event.message();
            messages.push(json(
                message.unwrap_or_else(|| panic!("only messages come before the end: {event:?}")),
            ));
        }
    }

    /// A whole turn: query, messages, end.
    pub(crate) fn turn(&mut self, prompt: &str) -> Outcome {
        self.query(prompt);
        self.outcome()
    }

    /// Runs a command for `timeout` milliseconds at most; its result, after which its `done` came.
    pub(crate) fn exec(&mut self, command: &str, timeout: u64) -> Value {
        self.send_bytes(&ClientCommand::exec(command, Some(Duration::from_millis(timeout))).encode());
        let result = self.event();
        assert_eq!(result["ev"], "exec_result", "{result}");
        assert_eq!(self.event(), json!({"ev": "done", "sessionId": ""}));
        result
    }

    /// Asserts that the other side closes without another event.
    pub(crate) fn expect_close(&mut self) {
        match self.lines.next_line(Deadline::usual()) {
            Ok(None) => {}
            // What it had not read of ours makes the end a reset (unix(7)).
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Ok(Some(line)) => panic!("an event instead of the end: {}", String::from_utf8_lossy(&line)),
            Err(error) => panic!("the bridge does not close: {error}\n{}", self.lines.report()),
        }
    }
}
