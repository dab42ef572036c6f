//! Server-sent events: the parser of the HTML standard (section 9.2.6, interpreting an event stream), without `retry`,
//! since the client decides when it reconnects.

use saggar_sys::error::{Code, Error, Result};

/// Maximum length of a line, in bytes: more than the largest message of an agent, and a bound for a server that
/// never ends a line.
const MAX_LINE: usize = 256 << 20;

/// An event with data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSentEvent {
    /// The last id that the stream has named, of this event or of one before it. saggar-server uses numbers.
    pub id: Option<u64>,
    /// The type; `message` by default.
    pub name: String,
    /// The data; several lines are joined by line feeds.
    pub data: String,
}

/// Parses a stream that arrives in pieces.
#[derive(Debug, Default)]
pub struct EventParser {
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed belongs to it.
    after_return: bool,
    is_past_first_line: bool,
    comments: usize,
    id: Option<u64>,
    name: String,
    data: Option<String>,
}

impl EventParser {
    /// Takes the next bytes, and appends the events that they complete to `events`.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a line that is too long.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<ServerSentEvent>) -> Result<()> {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.line.extend_from_slice(rest);
                break;
            };
            self.line.extend_from_slice(&rest[..end]);
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.on_line(&line, events);
        }
        match self.line.len() > MAX_LINE {
            true => Err(Error::new(Code::Invalid, "the server sent a line of more than 256 MiB")),
            false => Ok(()),
        }
    }

    /// The number of comments so far, by which a server shows that a silent stream is alive.
    pub fn comments(&self) -> usize {
        self.comments
    }

    fn on_line(&mut self, line: &[u8], events: &mut Vec<ServerSentEvent>) {
        let text = String::from_utf8_lossy(line);
        let mut text = text.as_ref();
        if !std::mem::replace(&mut self.is_past_first_line, true) {
            text = text.strip_prefix('\u{feff}').unwrap_or(text);
        }
        if text.is_empty() {
            return self.finish_event(events);
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            "id" => self.id = value.parse().ok().or(self.id),
            "" => self.comments += 1,
            _ => {}
        }
    }

    fn finish_event(&mut self, events: &mut Vec<ServerSentEvent>) {
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            let name = if name.is_empty() { "message".to_owned() } else { name };
            events.push(ServerSentEvent { id: self.id, name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(pieces: &[&[u8]]) -> Vec<ServerSentEvent> {
        let (mut parser, mut events) = (EventParser::default(), Vec::new());
        pieces.iter().for_each(|piece| parser.push(piece, &mut events).unwrap());
        events
    }

    fn event(id: Option<u64>, name: &str, data: &str) -> ServerSentEvent {
        ServerSentEvent { id, name: name.into(), data: data.into() }
    }

    #[test]
    fn events_are_as_in_the_standard() {
        for (text, events) in [
            ("id: 3\nevent: done\ndata: {}\n\n", vec![event(Some(3), "done", "{}")]),
            // The id stays, the type does not.
            (
                "id: 3\nevent: a\ndata: 1\n\ndata: 2\n\n",
                vec![event(Some(3), "a", "1"), event(Some(3), "message", "2")],
            ),
            ("data: a\ndata:b\ndata\n\n", vec![event(None, "message", "a\nb\n")]),
            ("data: a\r\rdata: b\r\n\r\n", vec![event(None, "message", "a"), event(None, "message", "b")]),
            (": comment\n\nevent: a\n\ndata: x\n\n", vec![event(None, "message", "x")]),
            ("\u{feff}data: x\n\n", vec![event(None, "message", "x")]),
            ("data:  x: y\nother: z\nretry: 5\n\n", vec![event(None, "message", " x: y")]),
            // The stream was cut.
            ("data: x\n\ndata: y\n", vec![event(None, "message", "x")]),
        ] {
            assert_eq!(parse(&[text.as_bytes()]), events, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "(data|id|event|:|é|\u{feff}|\r|\n|1| )*", cut in any::<prop::sample::Index>()) {
            let bytes = text.as_bytes();
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(parse(&[first, second]), parse(&[bytes]));
        }
    }
}
