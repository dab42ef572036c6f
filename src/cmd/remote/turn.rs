//! `saggar remote session send` and `follow`: the events of a turn or of a session.

use super::interrupt::InterruptWatch;
use super::{permissions, text};
use crate::cmd::print_raw;
use crate::error::{Error, Result};
use crate::supervise::agent::{ConversationPart, MessageText, ask_user, print_progress};
use nix::sys::signal::Signal;
use saggar_remote::Connection;
use saggar_remote::event_stream::EventStream;
use saggar_remote::sse::ServerSentEvent;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::sync::Arc;

/// Output format of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnFormat {
    /// The agent's messages, one JSON object per line.
    Json,
    /// Text for people.
    Text,
}

impl TurnFormat {
    /// JSON unless standard output is a terminal.
    pub(super) fn of(json: bool) -> Self {
        if json || !std::io::stdout().is_terminal() { TurnFormat::Json } else { TurnFormat::Text }
    }
}

/// Sends a prompt and prints the turn. Returns the exit status: 1 for a turn that failed, 130 for one that was
/// interrupted.
pub(super) fn send(server: &Arc<Connection>, session: &str, prompt: &str, format: TurnFormat) -> Result<u8> {
    let watch = InterruptWatch::start(Arc::clone(server), session.to_owned())?;
    run(server, session, prompt, format, &watch)
}

/// As [`send`], with a watch that is there already.
pub(super) fn run(
    server: &Connection,
    session: &str,
    prompt: &str,
    format: TurnFormat,
    watch: &InterruptWatch,
) -> Result<u8> {
    let body = json!({ "content": prompt, "includePartialMessages": format == TurnFormat::Text });
    let mut events = EventStream::of_turn(server, session, body)?;
    let mut turn =
        TurnOutput { server, session, format, message_text: MessageText::default(), has_failed: false };
    watch.begin();
    let end = loop {
        match events.next_event() {
            Ok(Some(event)) => turn.on_event(&event)?,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let interrupted = watch.finish();
    end?;
    Ok(match (interrupted, turn.has_failed) {
        (true, _) => 128 + u8::try_from(Signal::SIGINT as i32).unwrap_or(0),
        (false, true) => 1,
        (false, false) => 0,
    })
}

/// Prints a turn.
struct TurnOutput<'a> {
    server: &'a Connection,
    session: &'a str,
    format: TurnFormat,
    message_text: MessageText,
    has_failed: bool,
}

impl TurnOutput<'_> {
    fn on_event(&mut self, event: &ServerSentEvent) -> Result<()> {
        match event.name.as_str() {
            "message" => self.on_message(&event.data),
            "permission_request" => self.on_permission_request(&parse(&event.data)),
            "error" => {
                self.has_failed = true;
                log::warn!("{}", text(&parse(&event.data), "error"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_message(&mut self, data: &str) -> Result<()> {
        let message = parse(data);
        self.has_failed |= message["type"] == "result" && message["is_error"] == true;
        if self.format == TurnFormat::Json {
            print_raw(data)?;
            return print_raw("\n");
        }
        for part in self.message_text.parts(&message) {
            match part {
                ConversationPart::Text(piece) => print_raw(&piece)?,
                ConversationPart::ToolCall { summary, .. } => print_progress(&summary),
                ConversationPart::ToolResult => {}
            }
        }
        std::io::stdout().flush().map_err(|error| Error::system("write to standard output", error))
    }

    /// Asks the user if there is a terminal to ask on; else says how to answer.
    fn on_permission_request(&self, request: &Value) -> Result<()> {
        let (id, tool) = (text(request, "id"), text(request, "tool"));
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            let session = self.session;
            log::warn!(
                "the agent asks for permission to use {tool}: saggar remote permission list {session}, then \
                 saggar remote permission allow {session} {id}"
            );
            return Ok(());
        }
        let allowed = ask_user(&json!({ "tool_name": tool, "input": request["input"] }));
        if let Err(error) = permissions::answer(self.server, self.session, id, allowed) {
            // Another client was faster, or it has timed out.
            log::warn!("{error}");
        }
        Ok(())
    }
}

fn parse(data: &str) -> Value {
    serde_json::from_str(data).unwrap_or_default()
}

/// Prints the events of a session, one JSON object per line: `id`, `event` and `data`.
pub(super) fn follow(server: &Connection, session: &str, after: Option<u64>) -> Result<u8> {
    let mut events = EventStream::of_session(server, session, after);
    while let Some(event) = events.next_event()? {
        // The bytes of the agent, unchanged.
        let Ok(data) = serde_json::from_str::<&RawValue>(&event.data) else { continue };
        let (id, name) = (json!(event.id), json!(event.name));
        print_raw(&format!("{{\"id\":{id},\"event\":{name},\"data\":{data}}}\n"))?;
        std::io::stdout().flush().map_err(|error| Error::system("write to standard output", error))?;
    }
    Ok(0)
}
