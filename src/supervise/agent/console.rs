//! `saggar agent DIR PROMPT`: the terminal as one more client of the bridge. It says one query on a connection
//! of its own, prints what comes back, and asks the user for permissions when there is one to ask.

use super::doing::Doing;
use super::question;
use crate::bridge::proto::{LineSplitter, Split, json};
use crate::error::{Error, Result};
use crate::text;
use mio::net::UnixStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// The console's own end of its connection.
pub(super) const CONSOLE: Token = Token(1);

/// How the messages are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// The agent's own lines.
    Json,
    /// Text for people.
    Text,
}

/// What the console has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing yet.
    Going,
    /// The turn is complete.
    Done,
    /// The turn failed, and why.
    Failed(String),
}

/// The client.
#[derive(Debug)]
pub(super) struct Console {
    stream: UnixStream,
    input: LineSplitter,
    output: Vec<u8>,
    screen: Screen,
    /// What it comes to once everything is printed.
    over: Option<Progress>,
    show: Show,
    /// Text of the present answer was already shown piece by piece.
    streamed: bool,
    asks_user: bool,
    doing: Doing,
}

#[derive(Deserialize)]
struct Event<'a> {
    ev: &'a str,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    error: Option<String>,
}

impl Console {
    /// A console, and the bridge's end of its connection.
    pub(super) fn new(
        prompt: &str,
        session: &str,
        show: Show,
        registry: &Registry,
    ) -> Result<(Self, UnixStream)> {
        let fail = |e| Error::system("make a connection to the bridge", e);
        let (ours, theirs) = UnixStream::pair().map_err(fail)?;
        Ok((Console::over(ours, prompt, session, show, registry)?, theirs))
    }

    /// A console on a connection to a bridge.
    pub(super) fn over(
        mut ours: UnixStream,
        prompt: &str,
        session: &str,
        show: Show,
        registry: &Registry,
    ) -> Result<Self> {
        let fail = |e| Error::system("watch the connection to the bridge", e);
        registry.register(&mut ours, CONSOLE, Interest::READABLE | Interest::WRITABLE).map_err(fail)?;
        let query = serde_json::json!({
            "cmd": "query", "prompt": prompt, "sessionId": session,
            "includePartialMessages": show == Show::Text,
        });
        let output = format!("{query}\n").into_bytes();
        let asks_user = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let input = LineSplitter::new(usize::MAX);
        let screen = Screen::default();
        let doing = Doing::new(show == Show::Text && std::io::stderr().is_terminal());
        Ok(Console {
            stream: ours,
            input,
            output,
            screen,
            over: None,
            show,
            streamed: false,
            asks_user,
            doing,
        })
    }

    /// Asks for the end of the turn, which then ends in its own time.
    pub(super) fn interrupt(&mut self) {
        self.output.extend_from_slice(b"{\"cmd\":\"interrupt\"}\n");
        self.flush();
    }

    /// Shows for how long the agent has been at what it does; when to call it next.
    pub(super) fn tick(&mut self) -> Option<Duration> {
        self.doing.tick(self.screen.is_at_line_start())
    }

    /// Takes the progress line off the terminal, for somebody else who writes there.
    pub(super) fn clear(&mut self) {
        self.doing.clear();
    }

    /// Handles an event of the connection, or of standard output. While that takes nothing, nothing is read
    /// either, and the bridge holds the agent back.
    pub(super) fn ready(&mut self, registry: &Registry) -> Result<Progress> {
        let mut chunk = [0; 65536];
        loop {
            if self.screen.has_something() {
                self.doing.clear();
            }
            if !self.screen.write(registry) {
                return Ok(Progress::Going);
            }
            if let Some(over) = self.over.take() {
                return Ok(over);
            }
            self.flush();
            let count = match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Progress::Failed("the bridge closed the connection".into())),
                Ok(count) => count,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(Progress::Going),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::system("read from the bridge", e)),
            };
            let mut bytes = &chunk[..count];
            while let (None, Some(Split::Line(line))) = (&self.over, self.input.next(&mut bytes)) {
                match self.event(&line) {
                    Progress::Going => {}
                    over => self.over = Some(over),
                }
            }
        }
    }

    fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn event(&mut self, line: &[u8]) -> Progress {
        let Ok(event) = serde_json::from_slice::<Event<'_>>(line) else { return Progress::Going };
        match (event.ev, event.data) {
            ("message", Some(data)) => self.message(data.get()),
            ("error", _) => return Progress::Failed(event.error.unwrap_or_default()),
            ("done", _) => return Progress::Done,
            _ => {}
        }
        Progress::Going
    }

    fn message(&mut self, data: &str) {
        let message: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
        if message["type"] == "control_request" && message["request"]["subtype"] == "can_use_tool" {
            self.permission(&message);
        }
        match self.show {
            Show::Json => {
                self.screen.push(&json::one_line(data));
                self.screen.push("\n");
            }
            Show::Text => self.text(&message),
        }
    }

    fn text(&mut self, message: &serde_json::Value) {
        match message["type"].as_str() {
            Some("stream_event") => {
                if let Some(piece) = message["event"]["delta"]["text"].as_str() {
                    self.streamed = true;
                    self.screen.push(&text::prose(piece));
                }
            }
            Some("assistant") => {
                for block in message["message"]["content"].as_array().into_iter().flatten() {
                    match (block["type"].as_str(), block["text"].as_str()) {
                        (Some("text"), Some(text)) if !self.streamed => self.screen.push(&text::prose(text)),
                        (Some("tool_use"), _) => {
                            let name = block["name"].as_str().unwrap_or("tool");
                            self.doing.clear();
                            progress(&format!("[{name}] {}", json::shorten(&block["input"].to_string())));
                            self.doing.begin(name);
                        }
                        _ => {}
                    }
                }
                let has_text = message["message"]["content"].as_array().into_iter().flatten();
                if has_text.clone().any(|block| block["type"] == "text") {
                    self.screen.push("\n");
                }
                self.streamed = false;
            }
            // What a tool gave goes to the agent, who thinks about it.
            Some("user") => self.doing.begin_thinking(),
            _ => {}
        }
    }

    /// Asks the user, or says no when there is none to ask.
    fn permission(&mut self, message: &serde_json::Value) {
        let request = &message["request"];
        self.doing.clear();
        let allowed = self.asks_user && question::ask(request);
        let response = if allowed {
            serde_json::json!({ "behavior": "allow", "updatedInput": request["input"] })
        } else {
            let why = if self.asks_user { "the user said no" } else { "there is no user to ask" };
            serde_json::json!({ "behavior": "deny", "message": why })
        };
        let line = serde_json::json!({
            "type": "control_response",
            "response": { "subtype": "success", "request_id": message["request_id"], "response": response },
        });
        self.output.extend_from_slice(format!("{line}\n").as_bytes());
        self.flush();
    }
}

/// Standard output. It is the caller's, and may stay blocking: it is written to only when it says that it takes
/// something, and no more than it then takes without waiting.
#[derive(Debug, Default)]
struct Screen {
    pending: Vec<u8>,
    written: usize,
    watched: bool,
    /// The last text does not end its line.
    in_line: bool,
}

impl Screen {
    fn has_something(&self) -> bool {
        !self.pending.is_empty()
    }

    fn is_at_line_start(&self) -> bool {
        !self.in_line && self.pending.is_empty()
    }

    fn push(&mut self, text: &str) {
        self.in_line = if text.is_empty() { self.in_line } else { !text.ends_with('\n') };
        self.pending.extend_from_slice(text.as_bytes());
    }

    /// Writes what it takes; true when nothing is left. Else [`CONSOLE`] is told when it takes more.
    fn write(&mut self, registry: &Registry) -> bool {
        let stdout = std::io::stdout();
        while self.written < self.pending.len() {
            if !takes_more(stdout.as_fd()) {
                self.watch(registry, stdout.as_fd());
                // It may have become ready before it was watched.
                if !takes_more(stdout.as_fd()) {
                    return false;
                }
            }
            let rest = &self.pending[self.written..];
            let piece = &rest[..rest.len().min(libc::PIPE_BUF)];
            match nix::unistd::write(&stdout, piece) {
                Ok(count) => self.written += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.watch(registry, stdout.as_fd());
                    return false;
                }
                // A reader that went away (a closed pipe) ends nothing: the turn goes on in the workspace.
                Err(_) => self.written = self.pending.len(),
            }
        }
        self.pending.clear();
        self.written = 0;
        true
    }

    fn watch(&mut self, registry: &Registry, stdout: BorrowedFd<'_>) {
        let fd = stdout.as_raw_fd();
        let mut source = SourceFd(&fd);
        let done = if self.watched {
            registry.reregister(&mut source, CONSOLE, Interest::WRITABLE)
        } else {
            registry.register(&mut source, CONSOLE, Interest::WRITABLE)
        };
        self.watched |= done.is_ok();
    }
}

/// Whether a write of at most PIPE_BUF bytes goes through at once (poll(2), pipe(7)).
fn takes_more(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::POLLOUT)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// What goes on, on standard error, when that is a terminal.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        say(&format!("{}\n", text::line(text)));
    }
}

/// Writes to the user. Standard error that is closed is no reason to stop.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
