//! DNS messages (RFC 1035): what programs inside ask and are told, and what we ask the resolvers of the host.
//!
//! | module | what it is |
//! |---|---|
//! | `asking` | what one resolver is asked about a name, and has said |
//! | `inside` | questions of programs, and answers to them |
//! | `upstream` | our questions, and what a resolver answers |
//! | `start` | how much of a message is read at all |
//!
//! The codec is `simple-dns`. It refuses a question of a type that it does not know, reads every record of a message
//! before it answers, and (0.13) looks for version and code of an OPT record where its flags are. So it only sees what is
//! needed, and of an OPT record only the presence counts.

mod asking;
mod inside;
mod start;
#[cfg(test)]
mod tests;
mod upstream;

pub use asking::{Asking, Taken};
pub use inside::{Answer, Malformed, Question, answer, question};
pub use upstream::{Reply, query, reply};

/// What we say of the messages that we take, so that none is cut into fragments (DNS flag day 2020).
const PAYLOAD: u16 = 1232;

/// The longest message that is read, which a connection alone can bring: a thousand addresses, and no name needs so many.
pub const LONGEST: usize = 16 << 10;

/// The type of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Anything else, by its number.
    Other(u16),
}

impl From<u16> for Kind {
    fn from(number: u16) -> Self {
        match number {
            1 => Kind::A,
            28 => Kind::Aaaa,
            other => Kind::Other(other),
        }
    }
}

impl From<Kind> for u16 {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::A => 1,
            Kind::Aaaa => 28,
            Kind::Other(number) => number,
        }
    }
}

/// A message as it goes over TCP, with its length before it (RFC 1035, 4.2.2); none that is longer than the length can say.
pub fn framed(message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes(), message].concat())
}

/// The length that the first message from a connection says it has, without the two bytes that say so.
pub fn first_length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))
}

/// The first message from a connection, once it is whole, and what comes after it.
pub fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.get(2..)?.split_at_checked(first_length(bytes)?)
}

/// An OPT record without options.
fn opt() -> simple_dns::rdata::OPT<'static> {
    simple_dns::rdata::OPT { opt_codes: Vec::new(), udp_packet_size: PAYLOAD, version: 0 }
}
