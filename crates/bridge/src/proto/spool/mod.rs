//! The event store of the bridge, for servers that reconnect and request the events they missed (`replay`).
//!
//! Every stored event has a number. Numbers start at 1 and grow by one over the whole life of a session. Records that
//! are never sent (started commands) are stored between the events, without a number of their own.
//!
//! [`SpoolStore`] is the interface that the bridge uses. [`SpoolRecord`] and [`SpoolRecordHeader`] define the bytes on
//! disk; their checksums prevent a partial record from being read as a complete one.

mod record;

pub use record::{
    LOST_NUMBERS_OFFSET, RECORD_HEADER_SIZE, SEGMENT_HEADER_SIZE, SpoolRecord, SpoolRecordHeader,
    SpoolRecordKind, SpoolSegmentHeader,
};

use std::fmt;

/// A position in the store: a segment, named by the first number it may hold, and a byte offset into it. Only the
/// store that returned it can interpret it. Reading at a position that was dropped since then skips to the next stored
/// event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpoolPosition {
    /// The first number that the segment may hold.
    pub segment: u64,
    /// Bytes from the start of the segment.
    pub offset: u64,
}

/// Result of [`SpoolStore::read`].
#[derive(Debug, PartialEq, Eq)]
pub enum SpoolReadResult {
    /// The next stored event, as it was sent, with its newline. Numbers between the requested one and this one are
    /// lost.
    Event {
        /// The number of the event.
        number: u64,
        /// The line of the event.
        line: Vec<u8>,
    },
    /// The next event has this many bytes, more than `max_bytes`.
    TooLarge(usize),
    /// There are no more events.
    End,
}

/// Why records could not be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolError {
    /// The error message.
    pub why: String,
    /// Whether the numbers of the lost events are reserved on disk, so that they are not assigned again after a
    /// restart.
    pub numbers_reserved: bool,
}

/// Stores records up to a size limit; the oldest are dropped first.
pub trait SpoolStore: fmt::Debug {
    /// Appends records in this order and returns the position of the first. They may stay in memory until
    /// [`SpoolStore::flush`].
    fn append(&mut self, records: &[SpoolRecord<'_>]) -> SpoolPosition;

    /// Writes all appended records, so that they survive the exit of this process.
    ///
    /// # Errors
    /// [`SpoolError`] if some records appended since the last call are lost.
    fn flush(&mut self) -> Result<(), SpoolError>;

    /// The position of the event with this number, or of the first stored event after it. Does no I/O.
    fn find(&self, number: u64) -> SpoolPosition;

    /// Reads the first event from `position` on with this number or a later one and at most `max_bytes` bytes. Moves
    /// `position` behind it.
    fn read(&mut self, position: &mut SpoolPosition, number: u64, max_bytes: usize) -> SpoolReadResult;

    /// Stores the uuid of a message that was sent, or of one that was received (RB-39).
    fn store_uuid(&mut self, is_sent: bool, uuid: &str);

    /// Records a clean end of the run: after a reboot, no event counts as possibly lost.
    fn close(&mut self);
}

/// A command that was started and not finished when an earlier run of the session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedCommand {
    /// The store's number of the command.
    pub command: u64,
    /// The JSON of the command's id; empty without an id.
    pub id: String,
}

/// The state that earlier runs of a session saved in its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSpool {
    /// The number of the next event.
    pub next_event: u64,
    /// The store's number of the next command.
    pub next_command: u64,
    /// Unfinished commands, in the order in which they were started.
    pub unfinished: Vec<UnfinishedCommand>,
    /// The newest uuids of sent messages, oldest first.
    pub sent_messages: Vec<String>,
    /// The newest uuids of received messages, oldest first.
    pub received_messages: Vec<String>,
}

impl Default for SavedSpool {
    fn default() -> Self {
        SavedSpool {
            next_event: 1,
            next_command: 1,
            unfinished: Vec::new(),
            sent_messages: Vec::new(),
            received_messages: Vec::new(),
        }
    }
}

/// The line with the sequence number of its event added; `None` if it is not an event line.
pub fn with_sequence_number(line: &[u8], number: u64) -> Option<Vec<u8>> {
    let body = line.strip_suffix(b"}\n")?;
    let member = format!(",\"seq\":{number}}}\n");
    let mut with = Vec::with_capacity(body.len() + member.len());
    with.extend_from_slice(body);
    with.extend_from_slice(member.as_bytes());
    Some(with)
}

/// The line without the sequence number that [`with_sequence_number`] has added, and the number; `None` if it has none.
pub fn split_sequence_number(line: &[u8]) -> Option<(Vec<u8>, u64)> {
    const MEMBER: &[u8] = b",\"seq\":";
    let body = line.strip_suffix(b"}\n")?;
    let at = body.windows(MEMBER.len()).rposition(|part| part == MEMBER)?;
    let (body, member) = body.split_at(at);
    let digits = member.strip_prefix(MEMBER)?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(([body, b"}\n"].concat(), number))
}

#[cfg(test)]
mod tests;
