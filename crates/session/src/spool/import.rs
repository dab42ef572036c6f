//! Fills the spool of a new session with the events of an earlier one, so that clients of that one can continue.
//!
//! Programs of the earlier session wrote a part of the events. A file worker ([`saggar_sys::file_worker`]) reads them, and
//! can write to the new spool alone.

use super::{SessionSpool, spool_directory};
use saggar_bridge::proto::spool::{SpoolRecord, SpoolRecordKind, SpoolStore, split_sequence_number};
use saggar_sandbox::state::{self, delegated_directory};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file_worker::{self, Confinement, FileAccess, WorkerLimits};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Maximum length of a line, in bytes: that of an event of the bridge with room for its number.
const MAX_LINE: u64 = 128 << 20;
/// Many times what a spool of the largest permitted size needs.
const WORKER_LIMITS: WorkerLimits = WorkerLimits {
    time: Duration::from_secs(600),
    cpu_seconds: 300,
    memory: 2 << 30,
    file_size: libc::RLIM_INFINITY,
    output_size: 1 << 20,
};

/// An event of any type.
#[derive(Debug, Deserialize)]
struct EventLine<'a> {
    ev: String,
    /// The id of its command, of any type.
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

impl EventLine<'_> {
    fn ends_command(&self) -> bool {
        matches!(self.ev.as_str(), "done" | "error")
    }
}

/// The size of a new spool.
#[derive(Debug, Clone, Copy)]
pub struct SpoolBounds {
    /// Maximum size of all events, in bytes.
    pub bytes: u64,
    /// Maximum number of uuids of each kind.
    pub remembered: usize,
}

/// Writes the events in `file`, the output of `saggar session events`, into the spool of the session in `directory`. The
/// next event of the session gets at least the number `next`. The ids of the commands of the events count as uuids of
/// received messages: a message with one of them is not accepted again. A command without a last event counts as
/// interrupted: the bridge ends it with an error.
///
/// # Errors
/// [`Code::Invalid`] for a file that is not regular, a line that is no event, or one whose number is not greater than that
/// of the line before; [`Code::State`] if the session has events; [`Code::System`].
#[expect(clippy::disallowed_methods, reason = "the file that who asks has chosen")]
pub fn import_events(directory: &Path, bounds: SpoolBounds, file: &Path, next: u64) -> Result<()> {
    let mut options = File::options();
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let opened = options.read(true).custom_flags(flags).open(file).and_then(|opened| {
        if opened.metadata()?.is_file() { Ok(opened) } else { Err(io::Error::other("it is no regular file")) }
    });
    let input = opened
        .map_err(|error| Error::new(Code::Invalid, format!("cannot import {}: {error}", file.display())))?;
    let path = spool_directory(directory);
    let spool = delegated_directory::open_delegated(&path)?;
    let failed =
        |error: io::Error| Error::system(format_args!("import events into {}", path.display()), error);
    // Read before the worker is confined, which cannot read it.
    state::process::boot_id();
    let confinement = Confinement {
        task: "import events",
        owner: file_worker::worker_owner(spool.as_fd()).map_err(failed)?,
        capabilities: 0,
        directories: &[(spool.as_fd(), FileAccess::Write)],
        files: &[input.as_fd()],
        limits: WORKER_LIMITS,
    };
    file_worker::run_worker(&confinement, || {
        let own = spool.try_clone().map_err(failed)?;
        let (spool, saved) =
            SessionSpool::open_in(own, &path, bounds.bytes, bounds.remembered).map_err(failed)?;
        if saved.next_event > 1 {
            return Err(Error::new(Code::State, "cannot import events: the session has events"));
        }
        write_events(spool, &mut BufReader::new(&input), next).map_err(|error| match error {
            ImportError::Line(error) => error,
            ImportError::Spool(why) => failed(io::Error::other(why)),
        })
    })
}

enum ImportError {
    /// A line is invalid or cannot be read.
    Line(Error),
    /// The spool cannot be written.
    Spool(String),
}

fn write_events(
    mut spool: SessionSpool,
    events: &mut dyn BufRead,
    next: u64,
) -> std::result::Result<(), ImportError> {
    let mut last = 0;
    let mut commands = BTreeSet::new();
    // In the order of their first events.
    let mut unfinished: Vec<String> = Vec::new();
    for line_number in 1_u64.. {
        let Some(line) = read_line(events).map_err(ImportError::Line)? else { break };
        let invalid = |cause: &str| {
            let text = format!("cannot import events: line {line_number}: {cause}");
            ImportError::Line(Error::new(Code::Invalid, text))
        };
        let event: EventLine<'_> =
            serde_json::from_slice(&line).map_err(|error| invalid(&error.to_string()))?;
        if event.ev == "gap" {
            // The numbers of the events around it say the same.
            continue;
        }
        let (body, number) = split_sequence_number(&line).ok_or_else(|| invalid("it has no number"))?;
        if number <= last {
            return Err(invalid("its number is not greater than that of the event before"));
        }
        last = number;
        if let Some(id) = event.id.map(RawValue::get) {
            if event.ends_command() {
                unfinished.retain(|unended| unended != id);
            } else if !unfinished.iter().any(|unended| unended == id) {
                unfinished.push(id.to_owned());
            }
            if let Ok(id) = serde_json::from_str::<String>(id)
                && !commands.contains(&id)
            {
                spool.store_uuid(false, &id);
                commands.insert(id);
            }
        }
        spool.append(&[SpoolRecord { kind: SpoolRecordKind::Event, number, command: 0, body: &body }]);
    }
    for (id, command) in unfinished.iter().zip(1..) {
        let kind = SpoolRecordKind::CommandStarted;
        spool.append(&[SpoolRecord { kind, number: last, command, body: id.as_bytes() }]);
    }
    spool.flush().map_err(|error| ImportError::Spool(error.why))?;
    // It holds the number of the next event, also if the bounds dropped all events.
    spool.newest = last.max(next.saturating_sub(1));
    let first = spool.newest.saturating_add(1);
    spool.begin_segment(first).map_err(|error| ImportError::Spool(error.to_string()))?;
    spool.close();
    spool.flush().map_err(|error| ImportError::Spool(error.why))
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
    use std::fs;

    const BOUNDS: SpoolBounds = SpoolBounds { bytes: 1 << 20, remembered: 10 };

    fn write(directory: &Path, events: &str, next: u64) -> Result<()> {
        let (spool, _) = SessionSpool::open(directory, BOUNDS.bytes, BOUNDS.remembered)?;
        write_events(spool, &mut events.as_bytes(), next).map_err(|error| match error {
            ImportError::Line(error) => error,
            ImportError::Spool(why) => panic!("{why}"),
        })
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
        write(directory.path(), events, 9).unwrap();
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
        assert_eq!(saved.unfinished, []);
    }

    #[test]
    fn commands_without_a_last_event_are_unfinished() {
        let directory = tempfile::tempdir().unwrap();
        let events = concat!(
            r#"{"ev":"message","data":1,"id":"a","seq":1}"#,
            "\n",
            r#"{"ev":"message","data":1,"id":7,"seq":2}"#,
            "\n",
            r#"{"ev":"error","text":"x","id":"a","seq":3}"#,
            "\n",
            r#"{"ev":"message","data":1,"id":"b","seq":4}"#,
            "\n",
        );
        write(directory.path(), events, 1).unwrap();
        let (_, saved) = SessionSpool::open(directory.path(), BOUNDS.bytes, 10).unwrap();
        let unfinished: Vec<_> = saved.unfinished.iter().map(|unended| unended.id.as_str()).collect();
        assert_eq!((saved.next_event, unfinished), (5, vec!["7", "\"b\""]));
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
            let error = write(directory.path(), events, 1).unwrap_err();
            assert!(error.to_string().contains(expected), "{events}: {error}");
        }
    }

    #[test]
    fn files_that_are_not_regular_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link", "fifo", "missing"] {
            let error = import_events(directory.path(), BOUNDS, &path(name), 1).unwrap_err();
            assert_eq!(error.code(), Code::Invalid, "{name}: {error}");
        }
    }
}
