//! `saggar remote session send` and `follow`: the events of a turn or of a session.

use super::interrupt::InterruptWatch;
use super::{id, permissions, text};
use crate::bridge::proto::json::escape_line_breaks;
use crate::cmd::print_now;
use crate::error::{Code, Error, Result};
use crate::supervise::agent::{ConversationPart, MessageText, ask_user, print_progress};
use nix::sys::signal::Signal;
use saggar_remote::Connection;
use saggar_remote::event_stream::EventStream;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::IsTerminal;
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
    let message_text = MessageText::default();
    let mut turn =
        TurnOutput { server, session, format, watch, message_text, is_in_line: false, has_failed: false };
    watch.begin();
    let end = turn.follow(&mut events);
    let interrupted = watch.finish();
    turn.end_line();
    end?;
    Ok(match (interrupted, turn.has_failed) {
        (true, _) => 128 + u8::try_from(Signal::SIGINT as i32).unwrap_or(0),
        (false, true) => 1,
        (false, false) => 0,
    })
}

/// Prints a turn. A reader of standard output that has gone does not end it: the turn continues anyway.
struct TurnOutput<'a> {
    server: &'a Connection,
    session: &'a str,
    format: TurnFormat,
    watch: &'a InterruptWatch,
    message_text: MessageText,
    /// The last text did not end with a newline.
    is_in_line: bool,
    has_failed: bool,
}

impl TurnOutput<'_> {
    fn follow(&mut self, events: &mut EventStream<'_>) -> Result<()> {
        while let Some(event) = events.next_event()? {
            match event.name.as_str() {
                "session_start" => self.watch.repeat(),
                "message" => self.on_message(&event.data)?,
                "permission_request" => self.on_permission_request(&parse(&event.data))?,
                "error" => self.fail(text(&parse(&event.data), "error")),
                _ => {}
            }
        }
        Ok(())
    }

    fn fail(&mut self, reason: &str) {
        self.has_failed = true;
        self.end_line();
        log::warn!("{reason}");
    }

    fn on_message(&mut self, data: &str) -> Result<()> {
        let message = parse(data);
        if self.format == TurnFormat::Json {
            self.has_failed |= is_failed_result(&message);
            return print_now(&json_text(data)?).map(drop);
        }
        for part in self.message_text.parts(&message) {
            match part {
                ConversationPart::Text(piece) => {
                    self.is_in_line = !piece.ends_with('\n');
                    print_now(&piece)?;
                }
                ConversationPart::ToolCall { summary, .. } => {
                    self.end_line();
                    print_progress(&summary);
                }
                ConversationPart::ToolResult => {}
            }
        }
        if is_failed_result(&message) {
            let reason = message["result"].as_str().or_else(|| message["subtype"].as_str());
            self.fail(reason.unwrap_or("the turn has failed"));
        }
        Ok(())
    }

    /// Ends a line that was begun.
    fn end_line(&mut self) {
        if std::mem::take(&mut self.is_in_line) {
            // An error of the output has been reported by the text before.
            let _ = print_now("\n");
        }
    }

    /// Asks the user if there is a terminal to ask on; else prints how to answer.
    fn on_permission_request(&mut self, request: &Value) -> Result<()> {
        let (id, tool) = (id(request, "id")?, text(request, "tool"));
        self.end_line();
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            let session = self.session;
            log::warn!(
                "the agent asks for permission to use {tool}: saggar remote permission list {session}, then \
                 saggar remote permission allow {session} {id}"
            );
            return Ok(());
        }
        let allowed = {
            let _held = self.watch.hold_signals();
            ask_user(&json!({ "tool_name": tool, "input": request["input"] }))
        };
        if let Err(error) = permissions::answer(self.server, self.session, id, allowed) {
            // Another client was faster, or it has timed out.
            log::warn!("{error}");
        }
        Ok(())
    }
}

fn is_failed_result(message: &Value) -> bool {
    message["type"] == "result" && message["is_error"] == true
}

fn parse(data: &str) -> Value {
    serde_json::from_str(data).unwrap_or_default()
}

/// The bytes of a JSON text, on one line.
///
/// # Errors
/// [`Code::Invalid`] for a text that is no JSON, which could control a terminal.
fn json_text(data: &str) -> Result<String> {
    let value: &RawValue = serde_json::from_str(data)
        .map_err(|_| Error::new(Code::Invalid, "the server sent an event that is not JSON"))?;
    Ok(format!("{}\n", escape_line_breaks(value.get())))
}

/// Prints the events of a session, one JSON object per line: `id`, `event` and `data`. Ends when its reader has gone.
pub(super) fn follow(server: &Connection, session: &str, after: Option<u64>) -> Result<u8> {
    let mut events = EventStream::of_session(server, session, after);
    while let Some(event) = events.next_event()? {
        let (id, name, data) = (json!(event.id), json!(event.name), json_text(&event.data)?);
        if !print_now(&format!("{{\"id\":{id},\"event\":{name},\"data\":{}}}\n", data.trim_end()))? {
            break;
        }
    }
    Ok(0)
}
