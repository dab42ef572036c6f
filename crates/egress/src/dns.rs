//! DNS messages (RFC 1035): questions of programs in the sandbox and the answers to them, and queries to the resolvers
//! of the host.
//!
//! | module | contents |
//! |---|---|
//! | `resolver_query` | the query of one name to one resolver, and its result |
//! | `questions` | questions of programs, and answers to them |
//! | `upstream` | queries to resolvers, and their replies |
//! | `message_start` | the part of a message that is parsed |
//!
//! The codec is `simple-dns`. It rejects a question of an unknown type, parses every record of a message first, and
//! (0.13) reads version and code of an OPT record from its flags. It therefore only gets the part that is needed, and
//! of an OPT record only the presence counts.

mod message_start;
mod questions;
mod resolver_query;
#[cfg(test)]
mod tests;
mod upstream;

pub use questions::{DnsAnswer, DnsQuestion, MalformedQuestion, encode_answer, parse_question};
pub use resolver_query::{ReceivedResponse, ResolverQuery};
pub use upstream::{ResolverReply, encode_query, parse_reply};

/// The UDP payload size announced to peers. It prevents fragmentation (DNS flag day 2020).
const UDP_PAYLOAD_SIZE: u16 = 1232;

/// Maximum length of a parsed message, in bytes. It is reached over TCP only and has space for a thousand addresses.
pub(crate) const MAX_MESSAGE_LENGTH: usize = 16 << 10;

/// The record type of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Any other type, by its number.
    Other(u16),
}

impl From<u16> for RecordType {
    fn from(number: u16) -> Self {
        match number {
            1 => RecordType::A,
            28 => RecordType::Aaaa,
            other => RecordType::Other(other),
        }
    }
}

impl From<RecordType> for u16 {
    fn from(kind: RecordType) -> Self {
        match kind {
            RecordType::A => 1,
            RecordType::Aaaa => 28,
            RecordType::Other(number) => number,
        }
    }
}

/// Encodes a message for TCP, with its length before it (RFC 1035, 4.2.2). `None` if it is longer than the length
/// field allows.
pub(crate) fn with_length_prefix(message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes(), message].concat())
}

/// The length field of the first message on a TCP connection, in bytes without the field itself.
pub(crate) fn first_frame_length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))
}

/// The first message on a TCP connection, once it is complete, and the bytes after it.
pub(crate) fn first_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.get(2..)?.split_at_checked(first_frame_length(bytes)?)
}

/// An OPT record without options.
fn opt_record() -> simple_dns::rdata::OPT<'static> {
    simple_dns::rdata::OPT { opt_codes: Vec::new(), udp_packet_size: UDP_PAYLOAD_SIZE, version: 0 }
}
