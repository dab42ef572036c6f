//! The part of a message that is parsed.

use super::{MAX_MESSAGE_LENGTH, RecordType};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, Question, header_buffer};

const HEADER_SIZE: usize = 12;
/// Size of type and class, in bytes.
const QUESTION_TAIL_SIZE: usize = 4;
/// The first bytes of an OPT record: the root name, type 41.
const OPT_START: [u8; 3] = [0, 0, 41];

/// The sections of a message to parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageSections {
    /// The header and the question.
    Question,
    /// The header, the question and the answers.
    Answers,
}

/// The start of a message with one question, truncated after the parsed sections.
#[derive(Debug)]
pub(super) struct MessageStart {
    bytes: Vec<u8>,
    /// The type of the question. The stored bytes contain type A, because the codec rejects unknown types.
    pub(super) record_type: RecordType,
    /// Whether an OPT record follows the question.
    pub(super) has_opt: bool,
}

impl MessageStart {
    /// Parses the start of a message. `None` if it is too short or too long, or does not have exactly one question.
    pub(super) fn parse(message: &[u8], sections: MessageSections) -> Option<MessageStart> {
        if message.len() > MAX_MESSAGE_LENGTH || header_buffer::questions(message) != Ok(1) {
            return None;
        }
        let end = end_of_question(message)?;
        let rest = message.get(end..)?;
        let mut bytes = match sections {
            MessageSections::Question => message.get(..end)?.to_vec(),
            MessageSections::Answers => message.to_vec(),
        };
        let kind = bytes.get_mut(end.checked_sub(QUESTION_TAIL_SIZE)?..)?.first_chunk_mut::<2>()?;
        let asked = u16::from_be_bytes(*kind);
        *kind = u16::from(RecordType::A).to_be_bytes();
        // Clears the counts of the sections that are not parsed: authority and additional records, and possibly
        // answers.
        bytes.get_mut(8..HEADER_SIZE)?.fill(0);
        let of_answers = bytes.get_mut(6..8)?;
        let has_records = of_answers.iter().any(|byte| *byte != 0);
        if sections == MessageSections::Question {
            of_answers.fill(0);
        }
        let has_opt = !has_records
            && header_buffer::name_servers(message) == Ok(0)
            && header_buffer::additional_records(message).is_ok_and(|count| count > 0)
            && rest.starts_with(&OPT_START);
        Some(MessageStart { bytes, record_type: asked.into(), has_opt })
    }

    /// The parsed message.
    pub(super) fn packet(&self) -> Option<Packet<'_>> {
        Packet::parse(&self.bytes).ok()
    }
}

/// Whether a message is a response.
pub(super) fn is_response(message: &[u8]) -> bool {
    header_buffer::has_flags(message, PacketFlag::RESPONSE) == Ok(true)
}

/// Whether a question is of class IN and not a multicast question.
pub(super) fn is_internet_question(question: &Question<'_>) -> bool {
    question.qclass == QCLASS::CLASS(CLASS::IN) && !question.unicast_response
}

/// The end of the question. Its name is never compressed, because no name precedes it.
fn end_of_question(message: &[u8]) -> Option<usize> {
    let mut at = HEADER_SIZE;
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1 + QUESTION_TAIL_SIZE),
            length @ 1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}
