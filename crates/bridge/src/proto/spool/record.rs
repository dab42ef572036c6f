//! The bytes of a segment: a header, then records, each with a checksum over its header and one over its body. All
//! numbers are little endian.
//!
//! ```text
//! segment: magic 8 │ first number 8 │ boot 16 │ checksum of the 32 before 4 │ checksum of the next 4 │ lost up to 8
//! record:  number 8 │ command 8 │ length 4 │ kind 4 │ checksum of the body 4 │ checksum of the 28 before 4 │ body
//! ```
//! `lost up to` is the only field that changes: events up to that number were sent and could not be stored. It is
//! overwritten in place, which also works on a full disk.

use crc32fast::hash as crc32;

/// Size of a segment header, in bytes.
pub const SEGMENT_HEADER_SIZE: usize = 48;
/// Size of a record header, in bytes.
pub const RECORD_HEADER_SIZE: usize = 32;
/// Offset in the segment header of the checksum and number of the lost events.
pub const LOST_NUMBERS_OFFSET: u64 = 36;

const MAGIC: [u8; 8] = *b"saggar\x01\n";

/// The type of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolRecordKind {
    /// An event; the body is its line.
    Event = 1,
    /// The last event of a command; the body is its line.
    LastEvent,
    /// The start of a command; the body is the JSON of its id.
    CommandStarted,
    /// The end of a command whose last event is not stored.
    CommandEnded,
    /// The clean end of a run.
    RunClosed,
}

impl SpoolRecordKind {
    const ALL: [SpoolRecordKind; 5] = [
        SpoolRecordKind::Event,
        SpoolRecordKind::LastEvent,
        SpoolRecordKind::CommandStarted,
        SpoolRecordKind::CommandEnded,
        SpoolRecordKind::RunClosed,
    ];

    /// Whether the record is an event, and so has a number of its own.
    pub fn is_event(self) -> bool {
        matches!(self, SpoolRecordKind::Event | SpoolRecordKind::LastEvent)
    }
}

/// A record to store.
#[derive(Debug, Clone, Copy)]
pub struct SpoolRecord<'a> {
    /// The type.
    pub kind: SpoolRecordKind,
    /// The number of the event; for other records, the number of the event before.
    pub number: u64,
    /// The store's number of the command; 0 for none.
    pub command: u64,
    /// The body; its content depends on the type.
    pub body: &'a [u8],
}

impl SpoolRecord<'_> {
    /// Size of the record with its header, in bytes.
    pub fn size(&self) -> usize {
        RECORD_HEADER_SIZE + self.body.len()
    }

    /// Encodes the header; `None` if the body is longer than the maximum.
    pub fn header(&self) -> Option<[u8; RECORD_HEADER_SIZE]> {
        let length = u32::try_from(self.body.len()).ok()?;
        let mut header = [0; RECORD_HEADER_SIZE];
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

/// The header of a stored record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolRecordHeader {
    /// The type; see [`SpoolRecord::kind`].
    pub kind: SpoolRecordKind,
    /// The number; see [`SpoolRecord::number`].
    pub number: u64,
    /// The command; see [`SpoolRecord::command`].
    pub command: u64,
    /// Size of the body, in bytes.
    pub length: u32,
    checksum: u32,
}

impl SpoolRecordHeader {
    /// Parses a header; `None` if the bytes are not a valid header or its type is unknown.
    pub fn read(bytes: &[u8; RECORD_HEADER_SIZE]) -> Option<SpoolRecordHeader> {
        let checksum = read_u32(bytes, 28);
        let kind = read_u32(bytes, 20);
        let kind = SpoolRecordKind::ALL.into_iter().find(|known| *known as u32 == kind)?;
        let header = SpoolRecordHeader {
            kind,
            number: read_u64(bytes, 0),
            command: read_u64(bytes, 8),
            length: read_u32(bytes, 16),
            checksum: read_u32(bytes, 24),
        };
        (crc32(&bytes[..28]) == checksum).then_some(header)
    }

    /// Size of the record with its header, in bytes.
    pub fn size(&self) -> u64 {
        RECORD_HEADER_SIZE as u64 + u64::from(self.length)
    }

    /// Whether length and checksum match this body.
    pub fn matches_body(&self, body: &[u8]) -> bool {
        u32::try_from(body.len()) == Ok(self.length) && crc32(body) == self.checksum
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolSegmentHeader {
    /// The number of the first event that the segment may hold.
    pub first_number: u64,
    /// Events up to this number were sent and are not in the segment.
    pub lost_up_to: u64,
    /// The boot id of the machine when the segment was created.
    pub boot_id: [u8; 16],
}

impl SpoolSegmentHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_SIZE] {
        let mut header = [0; SEGMENT_HEADER_SIZE];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &self.first_number.to_le_bytes());
        put(16, &self.boot_id);
        put(36, &Self::encode_lost(self.lost_up_to));
        let sum = crc32(&header[..32]);
        header[32..36].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// Encodes the lost number and its checksum, to be written at [`LOST_NUMBERS_OFFSET`].
    pub fn encode_lost(up_to: u64) -> [u8; 12] {
        let mut bytes = [0; 12];
        let up_to = up_to.to_le_bytes();
        bytes[..4].copy_from_slice(&crc32(&up_to).to_le_bytes());
        bytes[4..].copy_from_slice(&up_to);
        bytes
    }

    /// Parses a header; `None` if the bytes are not a valid header.
    pub fn read(bytes: &[u8; SEGMENT_HEADER_SIZE]) -> Option<SpoolSegmentHeader> {
        let is_one = bytes.starts_with(&MAGIC) && crc32(&bytes[..32]) == read_u32(bytes, 32);
        let mut boot = [0; 16];
        boot.copy_from_slice(&bytes[16..32]);
        let is_whole = crc32(&bytes[40..]) == read_u32(bytes, 36);
        let lost = if is_whole { read_u64(bytes, 40) } else { 0 };
        is_one.then_some(SpoolSegmentHeader {
            first_number: read_u64(bytes, 8),
            lost_up_to: lost,
            boot_id: boot,
        })
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |eight| u64::from_le_bytes(*eight))
}
