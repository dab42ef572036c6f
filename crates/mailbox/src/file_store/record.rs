//! The fixed-size records of an index, without I/O.
//!
//! All integers are little-endian. Each record has a checksum, because the index is not synced: after a power failure
//! the file may have blocks of zeros.

use crate::hash::short_digest;
use crate::message::{Message, MessageType, Signal, parse_line};

/// Bytes of the header: magic, version, bytes of a record, device and inode of the messages' file.
pub(super) const HEADER_SIZE: usize = 32;
/// Bytes of a record.
pub(super) const RECORD_SIZE: usize = RECORD_SIZE_FIELD as usize;

const MAGIC: [u8; 8] = *b"saggarbx";
const VERSION: u32 = 1;
const RECORD_SIZE_FIELD: u32 = 56;

/// What recognises a duplicate: a hash of the id and the signal. The run is the directory of the file.
pub(super) type Key = [u8; 16];

/// The key of a message.
pub(super) fn key_of(id: &str, signal: Option<Signal>) -> Key {
    short_digest(&[id.as_bytes(), &[0], signal.map_or("", Signal::as_str).as_bytes()])
}

/// A hash of a name, to select messages by sender and recipient without reading them.
pub(super) fn name_hash(name: &str) -> u64 {
    u64::from_le_bytes(short_digest(&[name.as_bytes()]))
}

/// The header of the index of the file with this device and inode.
pub(super) fn header(device: u64, inode: u64) -> [u8; HEADER_SIZE] {
    let mut writer = FieldWriter::<HEADER_SIZE>::new();
    writer.put(&MAGIC);
    writer.put(&VERSION.to_le_bytes());
    writer.put(&RECORD_SIZE_FIELD.to_le_bytes());
    writer.put(&device.to_le_bytes());
    writer.put(&inode.to_le_bytes());
    writer.bytes
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// A message; the signal is its effective one.
    Message { key: Key, from: u64, to: u64, message_type: MessageType, signal: Option<Signal> },
    /// A line that is no message.
    Unreadable,
    /// An empty line.
    Blank,
}

/// One line of the messages' file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexRecord {
    /// Offset of the line in bytes.
    pub(super) offset: u64,
    /// Bytes of the line without its newline.
    pub(super) length: u64,
    /// What the line is.
    pub(super) kind: LineKind,
}

impl IndexRecord {
    /// The record of a line that is a message.
    pub(super) fn of_message(offset: u64, length: u64, message: &Message) -> Self {
        let kind = LineKind::Message {
            key: key_of(&message.id, message.signal),
            from: name_hash(&message.from),
            to: name_hash(&message.to),
            message_type: message.message_type,
            signal: message.effective_signal(),
        };
        IndexRecord { offset, length, kind }
    }

    /// The record of any line; `None` for a line that is too long to be parsed.
    pub(super) fn of_line(offset: u64, length: u64, line: Option<&[u8]>, run_id: u64) -> Self {
        let kind = match line.map(<[u8]>::trim_ascii) {
            Some([]) => LineKind::Blank,
            None => LineKind::Unreadable,
            Some(text) => match parse_line(text, run_id) {
                Ok(message) => return IndexRecord::of_message(offset, length, &message),
                Err(_) => LineKind::Unreadable,
            },
        };
        IndexRecord { offset, length, kind }
    }

    /// Offset of the next line.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.length).saturating_add(1)
    }

    /// The bytes of the record.
    pub(super) fn encode(&self) -> [u8; RECORD_SIZE] {
        let mut writer = FieldWriter::<RECORD_SIZE>::new();
        writer.put(&self.offset.to_le_bytes());
        writer.put(&self.length.to_le_bytes());
        match self.kind {
            LineKind::Message { key, from, to, message_type, signal } => {
                writer.put(&key);
                writer.put(&from.to_le_bytes());
                writer.put(&to.to_le_bytes());
                writer.put(&[
                    0,
                    code_of(&MessageType::ALL, message_type),
                    signal.map_or(0, |signal| code_of(&Signal::ALL, signal)),
                    0,
                ]);
            }
            LineKind::Unreadable => writer.put(&padded_code(1)),
            LineKind::Blank => writer.put(&padded_code(2)),
        }
        let check = checksum(&writer.bytes);
        writer.put(&check.to_le_bytes());
        writer.bytes
    }

    /// The record in `bytes`; `None` if they are no valid record.
    pub(super) fn decode(bytes: &[u8; RECORD_SIZE]) -> Option<Self> {
        let mut rest = bytes.as_slice();
        let (offset, length) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
        let key: Key = take(&mut rest)?;
        let (from, to) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
        let codes: [u8; 4] = take(&mut rest)?;
        let kind = match codes {
            [0, message_type, signal, 0] => LineKind::Message {
                key,
                from,
                to,
                message_type: *MessageType::ALL.get(usize::from(message_type).checked_sub(1)?)?,
                signal: match usize::from(signal).checked_sub(1) {
                    None => None,
                    Some(at) => Some(*Signal::ALL.get(at)?),
                },
            },
            [1, 0, 0, 0] => LineKind::Unreadable,
            [2, 0, 0, 0] => LineKind::Blank,
            _ => return None,
        };
        let record = IndexRecord { offset, length, kind };
        (record.encode() == *bytes).then_some(record)
    }
}

/// The number of a value in a list, from 1.
fn code_of<T: PartialEq>(all: &[T], value: T) -> u8 {
    all.iter().zip(1u8..).find_map(|(known, code)| (*known == value).then_some(code)).unwrap_or(0)
}

/// The fields after the length of a line that is no message.
fn padded_code(code: u8) -> [u8; 36] {
    let mut fields = [0; 36];
    if let Some(field) = fields.get_mut(32) {
        *field = code;
    }
    fields
}

/// FNV-1a over words of 32 bits. Each step is a bijection of the hash, so that a change in one word is always detected.
/// The checksum itself is 0 while it is computed.
fn checksum(bytes: &[u8; RECORD_SIZE]) -> u32 {
    let (words, _) = bytes.as_chunks::<4>();
    let mix = |hash: u32, word: &[u8; 4]| (hash ^ u32::from_le_bytes(*word)).wrapping_mul(0x0100_0193);
    words.iter().fold(0x811c_9dc5, mix)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (field, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*field)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

/// Writes fields one after the other. Fields beyond the end are left out, which the round trip of the tests would show.
struct FieldWriter<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> FieldWriter<N> {
    fn new() -> Self {
        FieldWriter { bytes: [0; N], used: 0 }
    }

    fn put(&mut self, field: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.used..self.used + field.len()) {
            place.copy_from_slice(field);
        }
        self.used += field.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_kind() -> impl Strategy<Value = LineKind> {
        prop_oneof![
            Just(LineKind::Unreadable),
            Just(LineKind::Blank),
            (any::<Key>(), any::<u64>(), any::<u64>(), 0usize..5, proptest::option::of(0usize..3)).prop_map(
                |(key, from, to, message_type, signal)| LineKind::Message {
                    key,
                    from,
                    to,
                    message_type: MessageType::ALL[message_type],
                    signal: signal.map(|at| Signal::ALL[at]),
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn record_round_trips_and_every_changed_bit_is_detected(
            offset in any::<u64>(), length in any::<u64>(), kind in any_kind(), bit in 0..RECORD_SIZE * 8,
        ) {
            let record = IndexRecord { offset, length, kind };
            let mut bytes = record.encode();
            prop_assert_eq!(IndexRecord::decode(&bytes), Some(record));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(IndexRecord::decode(&bytes), None);
        }
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(IndexRecord::decode(&[0; RECORD_SIZE]), None);
    }
}
