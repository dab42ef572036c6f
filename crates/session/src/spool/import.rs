//! Fills the spool of a new session with the events of an earlier one, so that clients of that one can continue.

use super::{SessionSpool, spool_directory};
use saggar_bridge::proto::spool::{SpoolRecord, SpoolRecordKind, SpoolStore, split_sequence_number};
use saggar_sys::error::{Code, Error, Result};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::{self, BufRead, Read as _};
use std::path::Path;

/// Maximum length of a line, in bytes: that of an event of the bridge with room for its number.
const MAX_LINE: u64 = 128 << 20;

/// An event of any type.
#[derive(Debug, Deserialize)]
struct EventLine {
    ev: String,
}

/// An event of a command whose id is a text.
#[derive(Debug, Deserialize)]
struct CommandEventLine {
    id: String,
}

/// The size of a new spool.
#[derive(Debug, Clone, Copy)]
pub struct SpoolBounds {
    /// Maximum size of all events, in bytes.
    pub bytes: u64,
    /// Maximum number of uuids of each kind.
    pub remembered: usize,
}

/// Writes `events`, the output of `saggar session events`, into the spool of the session in `directory`. The next event
/// of the session gets at least the number `next`. The ids of the commands of the events count as uuids of received
/// messages: a message with one of them is not accepted again.
///
/// # Errors
/// [`Code::Invalid`] for a line that is no event, or whose number is not greater than that of the line before;
/// [`Code::State`] if the session has events; [`Code::System`].
pub fn import_events(
    directory: &Path,
    bounds: SpoolBounds,
    events: &mut dyn BufRead,
    next: u64,
) -> Result<()> {
    let (mut spool, saved) = SessionSpool::open(directory, bounds.bytes, bounds.remembered)?;
    if saved.next_event > 1 {
        return Err(Error::new(Code::State, "cannot import events: the session has events"));
    }
    let mut last = 0;
    let mut commands = BTreeSet::new();
    for line_number in 1_u64.. {
        let Some(line) = read_line(events)? else { break };
        let invalid = |cause: &str| {
            Error::new(Code::Invalid, format!("cannot import events: line {line_number}: {cause}"))
        };
        let event: EventLine = serde_json::from_slice(&line).map_err(|error| invalid(&error.to_string()))?;
        if event.ev == "gap" {
            // The numbers of the events around it say the same.
            continue;
        }
        let (body, number) = split_sequence_number(&line).ok_or_else(|| invalid("it has no number"))?;
        if number <= last {
            return Err(invalid("its number is not greater than that of the event before"));
        }
        last = number;
        if let Ok(CommandEventLine { id }) = serde_json::from_slice(&line)
            && !commands.contains(&id)
        {
            spool.store_uuid(false, &id);
            commands.insert(id);
        }
        spool.append(&[SpoolRecord { kind: SpoolRecordKind::Event, number, command: 0, body: &body }]);
    }
    let failed = |why: String| {
        Error::system(
            format_args!("import events into {}", spool_directory(directory).display()),
            io::Error::other(why),
        )
    };
    spool.flush().map_err(|error| failed(error.why))?;
    // It holds the number of the next event, also if the bounds dropped all events.
    spool.newest = last.max(next.saturating_sub(1));
    let first = spool.newest.saturating_add(1);
    spool.begin_segment(first).map_err(|error| failed(error.to_string()))?;
    spool.close();
    spool.flush().map_err(|error| failed(error.why))
}

/// Reads the next line with its newline.
fn read_line(events: &mut dyn BufRead) -> Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let failed = |error| Error::system("read the events to import", error);
    events.take(MAX_LINE).read_until(b'\n', &mut line).map_err(failed)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => Err(Error::new(Code::Invalid, "cannot import events: the last line is incomplete")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{StoredEvent, read_stored_events};
    use super::*;

    const BOUNDS: SpoolBounds = SpoolBounds { bytes: 1 << 20, remembered: 10 };

    fn import(directory: &Path, events: &str, next: u64) -> Result<()> {
        import_events(directory, BOUNDS, &mut events.as_bytes(), next)
    }

    fn stored(directory: &Path) -> Vec<StoredEvent> {
        let mut found = Vec::new();
        read_stored_events(directory, 0, &mut |event| {
            found.push(event);
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn imported_events_have_their_numbers_and_the_next_event_follows() {
        let directory = tempfile::tempdir().unwrap();
        let events = concat!(
            r#"{"ev":"gap","from":1,"to":4}"#,
            "\n",
            r#"{"ev":"message","data":1,"id":"turn-a","seq":5}"#,
            "\n",
            r#"{"ev":"done","sessionId":"s","id":"turn-a","seq":6}"#,
            "\n",
        );
        import(directory.path(), events, 9).unwrap();
        assert_eq!(
            stored(directory.path()),
            [
                StoredEvent::Gap(1, 4),
                StoredEvent::Event(5, b"{\"ev\":\"message\",\"data\":1,\"id\":\"turn-a\"}\n".to_vec()),
                StoredEvent::Event(6, b"{\"ev\":\"done\",\"sessionId\":\"s\",\"id\":\"turn-a\"}\n".to_vec()),
            ]
        );
        let (_, saved) = SessionSpool::open(directory.path(), BOUNDS.bytes, 10).unwrap();
        assert_eq!((saved.next_event, saved.received_messages), (9, vec!["turn-a".to_owned()]));
        // A session that has events has its own numbers.
        assert_eq!(import(directory.path(), events, 1).unwrap_err().code(), Code::State);
    }

    #[test]
    fn lines_that_are_no_events_are_refused() {
        for (events, expected) in [
            ("x\n", "line 1"),
            ("{\"ev\":\"message\"}\n", "no number"),
            ("{\"ev\":\"message\",\"seq\":2}\n{\"ev\":\"message\",\"seq\":2}\n", "not greater"),
            ("{\"ev\":\"message\",\"seq\":2}", "incomplete"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let error = import(directory.path(), events, 1).unwrap_err();
            assert!(error.to_string().contains(expected), "{events}: {error}");
        }
    }
}
