//! Events, as a client receives them.

use crate::proto::{CommandId, LineSplitter, LogLevel, SplitLine};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::text::summary;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::ops::Range;

/// Longest line that a client takes, in bytes: an `exec_result` of twice 10 MiB is six times as long with its escapes.
const EVENT_LIMIT: usize = 256 << 20;

/// One event. The agent's own bytes are kept as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedEvent {
    line: String,
    /// Where the data of a message is in the line.
    data: Option<Range<usize>>,
    body: EventBody,
    id: Option<CommandId>,
    number: Option<u64>,
}

/// What an event says (saggar-bridge(7), EVENTS).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventBody {
    /// The bridge accepts commands.
    Ready,
    /// A message of the agent: [`ReceivedEvent::message`] has it.
    Message,
    /// The command failed, for this reason.
    Error(String),
    /// The command is complete. The server's name of the conversation; empty after an `exec`.
    Done(String),
    /// The result of an `exec`, before its `done`.
    ExecResult(CommandOutput),
    /// These events are lost, the first and the last one included.
    Gap(u64, u64),
    /// A log entry.
    Log {
        /// Its level.
        level: LogLevel,
        /// Its text.
        text: String,
        /// Milliseconds since 1970.
        time: u64,
    },
    /// An event that this version does not know.
    Other,
}

/// What a command did that ran beside the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit code; 128+N after signal N, 124 after the timeout.
    pub exit_code: i32,
    /// Standard output; bytes that are not UTF-8 were replaced.
    pub stdout: String,
    /// Standard error; bytes that are not UTF-8 were replaced.
    pub stderr: String,
    /// Whether output was left out at the limit.
    pub is_truncated: bool,
}

/// What all events have; a message of the agent on its own, in the SDK dialect, has no name.
#[derive(Deserialize)]
struct EventHead<'a> {
    ev: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    seq: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorFields {
    error: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DoneFields {
    session_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecFields {
    exit_code: i32,
    stdout: String,
    stderr: String,
    #[serde(default)]
    truncated: bool,
}

#[derive(Deserialize)]
struct GapFields {
    from: u64,
    to: u64,
}

#[derive(Deserialize)]
struct LogFields {
    level: String,
    text: String,
    ts: u64,
}

impl ReceivedEvent {
    /// The event in a line, without its newline.
    ///
    /// # Errors
    /// [`Code::Invalid`]: the line is not an event.
    pub fn parse(line: Vec<u8>) -> Result<Self> {
        let invalid = |why: &dyn std::fmt::Display, line: &[u8]| {
            let line = summary(&String::from_utf8_lossy(line));
            Error::new(Code::Invalid, format!("the bridge sent a line that is no event ({why}): {line}"))
        };
        let line = String::from_utf8(line).map_err(|error| invalid(&"it is not UTF-8", error.as_bytes()))?;
        let (head, body) = Self::parse_body(&line).map_err(|error| invalid(&error, line.as_bytes()))?;
        let data = match (&body, &head.ev, head.data) {
            (EventBody::Message, None, _) => Some(0..line.len()),
            (EventBody::Message, Some(_), Some(data)) => {
                // It borrows from the line.
                let start = data.get().as_ptr().addr() - line.as_ptr().addr();
                Some(start..start + data.get().len())
            }
            _ => None,
        };
        // In a message on its own these names are the agent's.
        let of_event = |value: Option<&RawValue>| {
            value.filter(|_| head.ev.is_some()).map(|value| value.get().to_owned())
        };
        let id = of_event(head.id).and_then(|id| CommandId::from_json(&id));
        let number = of_event(head.seq).and_then(|number| number.parse().ok());
        Ok(ReceivedEvent { line, data, body, id, number })
    }

    /// The head of an event, and what it says. Each event is asked for its own fields alone: a later version may give another
    /// meaning to a name.
    fn parse_body(line: &str) -> serde_json::Result<(EventHead<'_>, EventBody)> {
        let head: EventHead<'_> = serde_json::from_str(line)?;
        let body = match head.ev.as_deref() {
            None => EventBody::Message,
            Some("message") if head.data.is_none() => return Err(serde::de::Error::missing_field("data")),
            Some("message") => EventBody::Message,
            Some("ready") => EventBody::Ready,
            Some("error") => EventBody::Error(serde_json::from_str::<ErrorFields>(line)?.error),
            Some("done") => EventBody::Done(serde_json::from_str::<DoneFields>(line)?.session_id),
            Some("exec_result") => {
                let ExecFields { exit_code, stdout, stderr, truncated } = serde_json::from_str(line)?;
                EventBody::ExecResult(CommandOutput { exit_code, stdout, stderr, is_truncated: truncated })
            }
            Some("gap") => {
                let GapFields { from, to } = serde_json::from_str(line)?;
                EventBody::Gap(from, to)
            }
            Some("log") => {
                let LogFields { level, text, ts } = serde_json::from_str(line)?;
                let known = [LogLevel::Debug, LogLevel::Info, LogLevel::Warn];
                match known.into_iter().find(|known| known.name() == level) {
                    Some(level) => EventBody::Log { level, text, time: ts },
                    None => EventBody::Other,
                }
            }
            Some(_) => EventBody::Other,
        };
        Ok((head, body))
    }

    /// The event.
    pub fn body(&self) -> &EventBody {
        &self.body
    }

    /// A message of the agent, byte for byte as the agent wrote it: JSON.
    pub fn message(&self) -> Option<&str> {
        self.line.get(self.data.clone()?)
    }

    /// The whole line, without its newline.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The id of the command that the event belongs to.
    pub fn id(&self) -> Option<&CommandId> {
        self.id.as_ref()
    }

    /// Its number, on a connection that has sent `replay`.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Whether a command ends with it.
    pub fn is_terminal(&self) -> bool {
        matches!(self.body, EventBody::Done(_) | EventBody::Error(_))
    }
}

/// Bytes in, events out.
#[derive(Debug)]
pub struct EventDecoder {
    lines: LineSplitter,
}

impl Default for EventDecoder {
    fn default() -> Self {
        EventDecoder { lines: LineSplitter::new(EVENT_LIMIT) }
    }
}

impl EventDecoder {
    /// The next event of `input`, which is shortened by what was read of it; `None` when the rest of it is the beginning of
    /// an event, which is kept. Call it until then.
    ///
    /// # Errors
    /// [`Code::Invalid`]: a line is not an event, or has more than 256 MiB. The next call goes on after it.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Result<ReceivedEvent>> {
        match self.lines.next(input)? {
            SplitLine::Line(line) => Some(ReceivedEvent::parse(line.into_owned())),
            SplitLine::TooLong => {
                Some(Err(Error::new(Code::Invalid, "the bridge sent a line of more than 256 MiB")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::BridgeEvent;
    use proptest::prelude::*;

    fn received(event: BridgeEvent<'_>, id: Option<&str>) -> ReceivedEvent {
        let id = id.and_then(CommandId::from_json);
        let line = event.encode(id.as_ref());
        ReceivedEvent::parse(line.strip_suffix(b"\n").unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_client_reads_what_the_bridge_writes() {
        assert_eq!(received(BridgeEvent::Ready, None).body(), &EventBody::Ready);
        let data = r#"{ "type":"assistant","n":1.0e3,"ev":"x" }"#;
        let message = received(BridgeEvent::Message { data }, Some("\"a\""));
        assert_eq!((message.message(), message.id().unwrap().as_json()), (Some(data), "\"a\""));
        assert_eq!((message.body(), message.is_terminal()), (&EventBody::Message, false));
        let error = received(BridgeEvent::Error { text: "a\n" }, Some("7"));
        assert_eq!((error.body(), error.is_terminal()), (&EventBody::Error("a\n".into()), true));
        let done = received(BridgeEvent::Done { session: "s" }, None);
        assert_eq!((done.body(), done.is_terminal()), (&EventBody::Done("s".into()), true));
        let exec = received(
            BridgeEvent::ExecResult { exit_code: 3, stdout: "o", stderr: "e", truncated: true },
            None,
        );
        let result =
            CommandOutput { exit_code: 3, stdout: "o".into(), stderr: "e".into(), is_truncated: true };
        assert_eq!(exec.body(), &EventBody::ExecResult(result));
        assert_eq!(received(BridgeEvent::Gap { from: 1, to: 2 }, None).body(), &EventBody::Gap(1, 2));
        let log = received(BridgeEvent::Log { level: LogLevel::Warn, text: "t", ts: 5 }, None);
        assert_eq!(log.body(), &EventBody::Log { level: LogLevel::Warn, text: "t".into(), time: 5 });
    }

    #[test]
    fn a_message_of_the_sdk_dialect_is_the_whole_line() {
        let line = r#"{"type":"result","error":{"a":1},"id":[],"text":3}"#;
        let event = ReceivedEvent::parse(line.into()).unwrap();
        assert_eq!((event.message(), event.line()), (Some(line), line));
    }

    #[test]
    fn numbers_are_kept_and_unknown_events_are_no_errors() {
        let parse = |line: &str| ReceivedEvent::parse(line.into());
        let numbered = parse(r#"{"ev":"message","data":[1, 2],"id":7,"seq":42}"#).unwrap();
        assert_eq!((numbered.number(), numbered.message()), (Some(42), Some("[1, 2]")));
        for other in [
            r#"{"ev":"new","x":1,"error":{},"from":"x","text":3}"#,
            r#"{"ev":"log","level":"new","text":"t","ts":1}"#,
        ] {
            assert_eq!(parse(other).unwrap().body(), &EventBody::Other, "{other}");
        }
        assert_eq!(
            parse(r#"{"ev":"message","data":{},"error":{},"level":1}"#).unwrap().message(),
            Some("{}")
        );
        for bad in ["", "x", "[1]", "3", r#"{"ev":"message"}"#, r#"{"ev":"done"}"#, r#"{"ev":5}"#, "\u{7}"] {
            let error = parse(bad).unwrap_err();
            assert!(error.to_string().contains("no event"), "{bad}: {error}");
        }
        assert!(ReceivedEvent::parse(vec![0xff]).unwrap_err().to_string().contains("not UTF-8"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// However the bytes are cut.
        #[test]
        fn any_pieces_give_the_same_events(texts in proptest::collection::vec(".{0,20}", 0..8), cut in 1..40usize) {
            let mut bytes = Vec::new();
            for text in &texts {
                let data = serde_json::to_string(text).unwrap();
                BridgeEvent::Message { data: &data }.append(None, &mut bytes);
            }
            let (mut decoder, mut found) = (EventDecoder::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                let mut piece = piece;
                while let Some(event) = decoder.next(&mut piece) {
                    found.push(serde_json::from_str::<String>(event.unwrap().message().unwrap()).unwrap());
                }
            }
            prop_assert_eq!(found, texts);
        }

        #[test]
        fn any_bytes_are_events_or_errors(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut decoder, mut input) = (EventDecoder::default(), bytes.as_slice());
            while decoder.next(&mut input).is_some() {}
        }
    }
}
