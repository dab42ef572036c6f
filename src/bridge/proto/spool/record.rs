//! The bytes of a segment: a header, then records, each with checksums over its own header and its body. All
//! numbers are little endian.
//!
//! ```text
//! segment: magic 8 │ first number 8 │ boot 16 │ checksum of the 32 before 4 │ checksum of the next 4 │ lost up to 8
//! record:  number 8 │ command 8 │ length 4 │ kind 4 │ checksum of the body 4 │ checksum of the 28 before 4 │ body
//! ```
//! `lost up to` is the one field that changes: events up to that number were told and could not be kept. It is
//! written in place, where a full disk has room for it.

use super::crc32;

/// Bytes of a segment's header.
pub const SEGMENT_HEADER: usize = 48;
/// Bytes of a record's header.
pub const RECORD_HEADER: usize = 32;
/// Where the header of a segment says which numbers were lost.
pub const NUMBERS_LOST: u64 = 36;

const MAGIC: [u8; 8] = *b"saggar\x01\n";

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An event: its line.
    Event = 1,
    /// The last event of a command.
    Last,
    /// A command has begun: the JSON of its id.
    Begun,
    /// A command has ended, and its last event is not kept.
    Ended,
    /// The end of a run in good order.
    Closed,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Event, Kind::Last, Kind::Begun, Kind::Ended, Kind::Closed];

    /// Whether it is an event, and so has a number.
    pub fn is_event(self) -> bool {
        matches!(self, Kind::Event | Kind::Last)
    }
}

/// A record that is to be kept.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// What it is.
    pub kind: Kind,
    /// The number of the event; of anything else that of the event before.
    pub number: u64,
    /// The command it is about; 0 for none.
    pub command: u64,
    /// The rest.
    pub body: &'a [u8],
}

impl Record<'_> {
    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        RECORD_HEADER + self.body.len()
    }

    /// The header before its body; `None` when the body is longer than a record may be.
    pub fn header(&self) -> Option<[u8; RECORD_HEADER]> {
        let length = u32::try_from(self.body.len()).ok()?;
        let mut header = [0; RECORD_HEADER];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.number.to_le_bytes());
        put(8, &self.command.to_le_bytes());
        put(16, &length.to_le_bytes());
        put(20, &(self.kind as u32).to_le_bytes());
        put(24, &crc32(self.body).to_le_bytes());
        let sum = crc32(&header[..28]);
        header[28..].copy_from_slice(&sum.to_le_bytes());
        Some(header)
    }
}

/// The header of a record that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// See [`Record`].
    pub kind: Kind,
    /// See [`Record`].
    pub number: u64,
    /// See [`Record`].
    pub command: u64,
    /// Bytes of its body.
    pub length: u32,
    checksum: u32,
}

impl Header {
    /// Reads a header; `None` when these bytes are none, or of a kind that nobody here knows.
    pub fn read(bytes: &[u8; RECORD_HEADER]) -> Option<Header> {
        let checksum = small(bytes, 28);
        let kind = small(bytes, 20);
        let kind = Kind::ALL.into_iter().find(|known| *known as u32 == kind)?;
        let header = Header {
            kind,
            number: large(bytes, 0),
            command: large(bytes, 8),
            length: small(bytes, 16),
            checksum: small(bytes, 24),
        };
        (crc32(&bytes[..28]) == checksum).then_some(header)
    }

    /// Bytes of the record.
    pub fn size(&self) -> u64 {
        RECORD_HEADER as u64 + u64::from(self.length)
    }

    /// Whether this is its body.
    pub fn fits(&self, body: &[u8]) -> bool {
        u32::try_from(body.len()) == Ok(self.length) && crc32(body) == self.checksum
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The number of the first event that it may hold.
    pub first: u64,
    /// Events up to this number are not in it, and were told.
    pub lost: u64,
    /// The run of the machine in which it was begun.
    pub boot: [u8; 16],
}

impl Segment {
    /// Its bytes.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut header = [0; SEGMENT_HEADER];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &self.first.to_le_bytes());
        put(16, &self.boot);
        put(36, &Self::encode_lost(self.lost));
        let sum = crc32(&header[..32]);
        header[32..36].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// The part of them that says which numbers are lost, at [`NUMBERS_LOST`].
    pub fn encode_lost(up_to: u64) -> [u8; 12] {
        let mut bytes = [0; 12];
        let up_to = up_to.to_le_bytes();
        bytes[..4].copy_from_slice(&crc32(&up_to).to_le_bytes());
        bytes[4..].copy_from_slice(&up_to);
        bytes
    }

    /// Reads a header; `None` when these bytes are none.
    pub fn read(bytes: &[u8; SEGMENT_HEADER]) -> Option<Segment> {
        let is_one = bytes.starts_with(&MAGIC) && crc32(&bytes[..32]) == small(bytes, 32);
        let mut boot = [0; 16];
        boot.copy_from_slice(&bytes[16..32]);
        let is_whole = crc32(&bytes[40..]) == small(bytes, 36);
        let lost = if is_whole { large(bytes, 40) } else { 0 };
        is_one.then_some(Segment { first: large(bytes, 8), lost, boot })
    }
}

fn small(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

fn large(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |eight| u64::from_le_bytes(*eight))
}
