//! The part of a message that is read.

use super::{Kind, LONGEST};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, Question, header_buffer};

const HEADER: usize = 12;
/// Type and class.
const TAIL: usize = 4;
/// How an OPT record begins: the root's name, type 41.
const OPT: [u8; 3] = [0, 0, 41];

/// The sections that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sections {
    /// The header and the question.
    Question,
    /// And the answers.
    Answers,
}

/// The start of a message with one question, cut off behind the sections that are read.
#[derive(Debug)]
pub(super) struct Start {
    bytes: Vec<u8>,
    /// What is asked for. The bytes say A, since the codec refuses a type that it does not know.
    pub(super) kind: Kind,
    /// Whether an OPT record follows the question.
    pub(super) has_opt: bool,
}

impl Start {
    /// `None` for what is too short or too long, or has another number of questions than one.
    pub(super) fn of(message: &[u8], sections: Sections) -> Option<Start> {
        if message.len() > LONGEST || header_buffer::questions(message) != Ok(1) {
            return None;
        }
        let end = end_of_question(message)?;
        let rest = message.get(end..)?;
        let mut bytes = match sections {
            Sections::Question => message.get(..end)?.to_vec(),
            Sections::Answers => message.to_vec(),
        };
        let kind = bytes.get_mut(end.checked_sub(TAIL)?..)?.first_chunk_mut::<2>()?;
        let asked = u16::from_be_bytes(*kind);
        *kind = u16::from(Kind::A).to_be_bytes();
        // The counts of what is not read: authorities and additional records, and maybe answers.
        bytes.get_mut(8..HEADER)?.fill(0);
        let of_answers = bytes.get_mut(6..8)?;
        let has_records = of_answers.iter().any(|byte| *byte != 0);
        if sections == Sections::Question {
            of_answers.fill(0);
        }
        let has_opt = !has_records
            && header_buffer::name_servers(message) == Ok(0)
            && header_buffer::additional_records(message).is_ok_and(|count| count > 0)
            && rest.starts_with(&OPT);
        Some(Start { bytes, kind: asked.into(), has_opt })
    }

    /// What is left of the message.
    pub(super) fn packet(&self) -> Option<Packet<'_>> {
        Packet::parse(&self.bytes).ok()
    }
}

/// Whether a message is an answer.
pub(super) fn is_answer(message: &[u8]) -> bool {
    header_buffer::has_flags(message, PacketFlag::RESPONSE) == Ok(true)
}

/// Whether a question is about the internet, and no multicast one.
pub(super) fn is_internet(question: &Question<'_>) -> bool {
    question.qclass == QCLASS::CLASS(CLASS::IN) && !question.unicast_response
}

/// Where the question ends. Its name is never compressed: no name is before it.
fn end_of_question(message: &[u8]) -> Option<usize> {
    let mut at = HEADER;
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1 + TAIL),
            length @ 1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}
