//! What a bridge keeps of its conversation, for servers that come back and ask for what they missed (`replay`).
//!
//! Every event that is kept has a number, from 1, growing by one over the whole life of a session. What is never
//! sent to anybody (which commands have begun) stands between them without a number.
//!
//! [`Store`] is what the bridge asks for; [`Record`] and [`Header`] are the bytes in which a store on disk keeps
//! it, so that half a record is never taken for one.

mod crc;
mod record;

pub use crc::crc32;
pub use record::{Header, Kind, NUMBERS_LOST, RECORD_HEADER, Record, SEGMENT_HEADER, Segment};

use std::fmt;

/// Where something is kept: a segment by the first number that it may hold, and bytes into it. Only its store can
/// make something of it; what has been dropped meanwhile is found to be missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The segment.
    pub segment: u64,
    /// Bytes from its start.
    pub offset: u64,
}

/// What [`Store::read`] finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The next event that is there, as it was sent, with its newline. Numbers between the one that was asked for
    /// and this are lost.
    Event {
        /// Its number.
        number: u64,
        /// Its line.
        line: Vec<u8>,
    },
    /// It has so many bytes, which is more than there is room for.
    Large(usize),
    /// There is no more.
    End,
}

/// Why something is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What went wrong.
    pub why: String,
    /// The numbers of what was lost will not be given again, not even after a restart.
    pub numbers_hold: bool,
}

/// Keeps records, up to a bound: the oldest go first.
pub trait Store: fmt::Debug {
    /// Keeps records, in this order; where the first of them is. They may stay in memory until [`Store::flush`].
    fn append(&mut self, records: &[Record<'_>]) -> Place;

    /// Everything that was appended outlives this process from here on.
    ///
    /// # Errors
    /// [`Trouble`]: some of what was appended since the last call is lost.
    fn flush(&mut self) -> Result<(), Trouble>;

    /// Where an event of this number is, or the first after it that is kept. It costs nothing.
    fn find(&self, number: u64) -> Place;

    /// The first event from `place` on with this number or a later one, of at most `room` bytes; `place` is
    /// behind it afterwards.
    fn read(&mut self, place: &mut Place, number: u64, room: usize) -> Found;

    /// Remembers a uuid: of a message that was told, else of one that was taken (RB-39).
    fn note(&mut self, told: bool, uuid: &str);

    /// The end in good order: nothing can have been lost when the machine starts again.
    fn close(&mut self);
}

/// A command that had begun and not ended when an earlier run of a session did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unended {
    /// The store's name of it.
    pub command: u64,
    /// The JSON of its id; empty without one.
    pub id: String,
}

/// What earlier runs of a session left in its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The number of the next event.
    pub next: u64,
    /// The store's name of the next command.
    pub next_command: u64,
    /// What had not ended, in the order in which it began.
    pub unended: Vec<Unended>,
    /// The newest uuids of messages that were told, oldest first.
    pub told: Vec<String>,
    /// The same of messages that were taken.
    pub taken: Vec<String>,
}

impl Default for Left {
    fn default() -> Self {
        Left { next: 1, next_command: 1, unended: Vec::new(), told: Vec::new(), taken: Vec::new() }
    }
}

/// The same line with the number of its event; `None` when it is not the line of an event.
pub fn numbered(line: &[u8], number: u64) -> Option<Vec<u8>> {
    let body = line.strip_suffix(b"}\n")?;
    let member = format!(",\"seq\":{number}}}\n");
    let mut with = Vec::with_capacity(body.len() + member.len());
    with.extend_from_slice(body);
    with.extend_from_slice(member.as_bytes());
    Some(with)
}

#[cfg(test)]
mod tests;
