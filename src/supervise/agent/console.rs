//! `saggar agent DIR PROMPT`: the terminal as a client of the bridge. It sends one query on a connection of its own,
//! prints the response, and asks the user for permissions if there is a terminal to ask on.

use super::message_text::{ConversationPart, MessageText};
use super::permission_prompt;
use super::progress_line::ProgressLine;
use crate::bridge::client::{ClientCommand, EventBody, EventDecoder, ReceivedEvent};
use crate::bridge::proto::json;
use crate::error::{Error, Result};
use crate::sys::startup;
use crate::text;
use mio::net::UnixStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// The console's own end of its connection.
pub(super) const CONSOLE_TOKEN: Token = Token(1);

/// How the names of the mailbox's tools begin for an agent that has the mailbox in its configuration.
const MAILBOX_TOOLS: &str = "mcp__mailbox__";

/// Output format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsoleFormat {
    /// The agent's messages, one JSON object per line.
    Json,
    /// Text for people.
    Text,
    /// Nothing but questions to the user.
    Questions,
}

/// The state of the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TurnProgress {
    /// The turn is not complete yet.
    Running,
    /// The turn is complete.
    Done,
    /// The turn failed, with the error message.
    Failed(String),
}

/// The client.
#[derive(Debug)]
pub(super) struct AgentConsole {
    stream: UnixStream,
    decoder: EventDecoder,
    unsent: Vec<u8>,
    output_screen: ConsoleOutput,
    /// The result of the turn, returned once all output is written.
    result: Option<TurnProgress>,
    show: ConsoleFormat,
    message_text: MessageText,
    can_ask_user: bool,
    progress_line: ProgressLine,
    /// The result of the turn is an error of the agent, such as one of its model; only without output of messages.
    agent_error: Option<String>,
}

impl AgentConsole {
    /// Creates a console; returns it with the bridge's end of its connection.
    pub(super) fn new(
        prompt: &str,
        session: &str,
        show: ConsoleFormat,
        registry: &Registry,
    ) -> Result<(Self, UnixStream)> {
        let fail = |e| Error::system("make a connection to the bridge", e);
        let (ours, theirs) = UnixStream::pair().map_err(fail)?;
        Ok((AgentConsole::on_stream(ours, prompt, session, show, registry)?, theirs))
    }

    /// A console on a connection to a bridge.
    pub(super) fn on_stream(
        mut ours: UnixStream,
        prompt: &str,
        session: &str,
        show: ConsoleFormat,
        registry: &Registry,
    ) -> Result<Self> {
        let fail = |e| Error::system("watch the connection to the bridge", e);
        registry.register(&mut ours, CONSOLE_TOKEN, Interest::READABLE | Interest::WRITABLE).map_err(fail)?;
        let query = ClientCommand::query(prompt, session);
        let query = query.with("includePartialMessages", show == ConsoleFormat::Text);
        let asks_user = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let screen = ConsoleOutput::default();
        let doing = ProgressLine::new(show == ConsoleFormat::Text && std::io::stderr().is_terminal());
        Ok(AgentConsole {
            stream: ours,
            decoder: EventDecoder::default(),
            unsent: query.encode(),
            output_screen: screen,
            result: None,
            show,
            message_text: MessageText::default(),
            can_ask_user: asks_user,
            progress_line: doing,
            agent_error: None,
        })
    }

    /// Sends an interrupt; the turn ends when the agent has handled it.
    pub(super) fn interrupt(&mut self) {
        self.unsent.extend(ClientCommand::interrupt().encode());
        self.flush();
    }

    /// Updates the progress line; returns the time until the next call.
    pub(super) fn tick(&mut self) -> Option<Duration> {
        self.progress_line.tick(self.output_screen.is_at_line_start())
    }

    /// Clears the progress line before other output to the terminal.
    pub(super) fn clear_progress(&mut self) {
        self.progress_line.clear();
    }

    /// Handles an event of the connection, or of standard output. While standard output is blocked nothing is read from
    /// the connection, so the bridge stops reading from the agent.
    pub(super) fn ready(&mut self, registry: &Registry) -> Result<TurnProgress> {
        let mut chunk = [0; 65536];
        loop {
            if self.output_screen.has_pending() {
                self.progress_line.clear();
            }
            if !self.output_screen.write(registry) {
                return Ok(TurnProgress::Running);
            }
            if let Some(over) = self.result.take() {
                return Ok(self.output_screen.check(over));
            }
            self.flush();
            let count = match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(TurnProgress::Failed("the bridge closed the connection".into())),
                Ok(count) => count,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(TurnProgress::Running),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::system("read from the bridge", e)),
            };
            let mut bytes = &chunk[..count];
            while self.result.is_none()
                && let Some(event) = self.decoder.next(&mut bytes)
            {
                // A line of a later version is no end of the turn.
                let Ok(event) = event.inspect_err(|error| log::debug!("{error}")) else { continue };
                match self.on_bridge_event(&event) {
                    TurnProgress::Running => {}
                    over => self.result = Some(over),
                }
            }
        }
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn on_bridge_event(&mut self, event: &ReceivedEvent) -> TurnProgress {
        if let Some(message) = event.message() {
            self.on_agent_message(message);
        }
        match event.body() {
            EventBody::Error(why) => TurnProgress::Failed(why.clone()),
            EventBody::Done(_) => self.agent_error.take().map_or(TurnProgress::Done, TurnProgress::Failed),
            _ => TurnProgress::Running,
        }
    }

    fn on_agent_message(&mut self, data: &str) {
        let message: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
        if message["type"] == "control_request" && message["request"]["subtype"] == "can_use_tool" {
            self.answer_permission(&message);
        }
        match self.show {
            ConsoleFormat::Json => {
                self.output_screen.push(&json::escape_line_breaks(data));
                self.output_screen.push("\n");
            }
            ConsoleFormat::Text => self.show_text(&message),
            ConsoleFormat::Questions => {
                if message["type"] == "result" {
                    let is_error = message["is_error"] == true;
                    self.agent_error =
                        is_error.then(|| message["result"].as_str().unwrap_or("error").to_owned());
                }
            }
        }
    }

    fn show_text(&mut self, message: &serde_json::Value) {
        for part in self.message_text.parts(message) {
            match part {
                ConversationPart::Text(piece) => self.output_screen.push(&piece),
                ConversationPart::ToolCall { name, summary } => {
                    self.progress_line.clear();
                    print_progress(&summary);
                    self.progress_line.begin_tool(&name);
                }
                ConversationPart::ToolResult => self.progress_line.begin_thinking(),
            }
        }
    }

    /// Whether the request is about a tool of the mailbox of a pair run, in which agents are asked for messages.
    fn is_own_tool(&self, request: &serde_json::Value) -> bool {
        self.show == ConsoleFormat::Questions
            && request["tool_name"].as_str().is_some_and(|name| name.starts_with(MAILBOX_TOOLS))
    }

    /// Asks the user, or denies the request if there is no user to ask.
    fn answer_permission(&mut self, message: &serde_json::Value) {
        let request = &message["request"];
        self.progress_line.clear();
        let allowed = self.is_own_tool(request) || self.can_ask_user && permission_prompt::ask_user(request);
        let response = if allowed {
            serde_json::json!({ "behavior": "allow", "updatedInput": request["input"] })
        } else {
            let why = if self.can_ask_user { "denied by the user" } else { "there is no user to ask" };
            serde_json::json!({ "behavior": "deny", "message": why })
        };
        self.unsent.extend(ClientCommand::answer(message, response).encode());
        self.flush();
    }
}

/// Standard output. It is inherited from the caller and may be blocking: it is written to only when poll(2) reports it
/// writable, and at most as much as cannot block.
#[derive(Debug, Default)]
struct ConsoleOutput {
    pending: Vec<u8>,
    written: usize,
    watched: bool,
    /// The last text did not end with a newline.
    in_line: bool,
    /// Why output was lost.
    failure: Option<Errno>,
}

impl ConsoleOutput {
    /// The result of the turn; lost output is a failure.
    fn check(&self, result: TurnProgress) -> TurnProgress {
        match (&result, self.failure) {
            (TurnProgress::Done, Some(error)) => TurnProgress::Failed(format!(
                "write to standard output: {}; the turn is complete, and a part of its messages is lost",
                error.desc()
            )),
            _ => result,
        }
    }

    fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn is_at_line_start(&self) -> bool {
        !self.in_line && self.pending.is_empty()
    }

    fn push(&mut self, text: &str) {
        self.in_line = if text.is_empty() { self.in_line } else { !text.ends_with('\n') };
        self.pending.extend_from_slice(text.as_bytes());
    }

    /// Writes what does not block; true when all is written. Otherwise [`CONSOLE_TOKEN`] gets an event when more can be
    /// written.
    fn write(&mut self, registry: &Registry) -> bool {
        if startup::stdout_was_closed() && !self.pending.is_empty() {
            self.failure = Some(Errno::EBADF);
        }
        let stdout = std::io::stdout();
        while self.written < self.pending.len() {
            if !is_writable(stdout.as_fd()) {
                self.watch_stdout(registry, stdout.as_fd());
                // It may have become writable before it was registered.
                if !is_writable(stdout.as_fd()) {
                    return false;
                }
            }
            let rest = &self.pending[self.written..];
            let piece = &rest[..rest.len().min(libc::PIPE_BUF)];
            match nix::unistd::write(&stdout, piece) {
                Ok(count) => self.written += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.watch_stdout(registry, stdout.as_fd());
                    return false;
                }
                // The turn continues in the workspace. A reader that has closed its pipe wants no more, as `head`.
                Err(error) => {
                    self.written = self.pending.len();
                    self.failure = self.failure.or(Some(error).filter(|error| *error != Errno::EPIPE));
                }
            }
        }
        self.pending.clear();
        self.written = 0;
        true
    }

    fn watch_stdout(&mut self, registry: &Registry, stdout: BorrowedFd<'_>) {
        let fd = stdout.as_raw_fd();
        let mut source = SourceFd(&fd);
        let done = if self.watched {
            registry.reregister(&mut source, CONSOLE_TOKEN, Interest::WRITABLE)
        } else {
            registry.register(&mut source, CONSOLE_TOKEN, Interest::WRITABLE)
        };
        self.watched |= done.is_ok();
    }
}

/// Whether a write of at most PIPE_BUF bytes does not block (poll(2), pipe(7)).
fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(fd, PollFlags::POLLOUT)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}

/// Writes a progress message to standard error if that is a terminal.
pub(crate) fn print_progress(text: &str) {
    if std::io::stderr().is_terminal() {
        write_stderr(&format!("{}\n", text::one_line(text)));
    }
}

/// Writes to standard error. Errors are ignored: it may be closed.
fn write_stderr(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
