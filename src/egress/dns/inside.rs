//! What programs inside ask, and what they are told.

use super::start::{Sections, Start, is_answer, is_internet};
use super::{Kind, opt};
use core::fmt::Write;
use core::net::IpAddr;
use core::time::Duration;
use simple_dns::rdata::RData;
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE, header_buffer,
};

/// A question of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The number of the message.
    pub id: u16,
    /// The name, in lower case and without the dot at its end; empty for the root. Letters, digits, `-` and `_` stand for
    /// themselves, every other byte of a label is `\DDD`: the name of no host has one.
    pub name: String,
    /// What is asked for.
    pub kind: Kind,
}

/// What is no question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// The number of the message, if it may be answered: an answer never is.
    pub id: Option<u16>,
}

/// What a program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// These addresses, as far as they are of the kind that was asked for, for so long.
    Addresses(&'a [IpAddr], Duration),
    /// The name has nothing of that kind.
    NoData,
    /// There is no such name, or the policy does not allow it.
    NxDomain,
    /// The message is malformed.
    FormErr,
}

/// Reads a message with one question of class IN.
///
/// # Errors
/// [`Malformed`] for anything else.
pub fn question(message: &[u8]) -> Result<Question, Malformed> {
    // Two that answer each other's answers would never end.
    let id = header_buffer::id(message).ok().filter(|_| !is_answer(message));
    id.and_then(|id| read(message, id)).ok_or(Malformed { id })
}

fn read(message: &[u8], id: u16) -> Option<Question> {
    let start = Start::of(message, Sections::Question)?;
    let packet = start.packet()?;
    let [asked] = packet.questions.as_slice() else { return None };
    let is_ours = packet.opcode() == OPCODE::StandardQuery && is_internet(asked);
    is_ours.then(|| Question { id, name: text(&asked.qname), kind: start.kind })
}

fn text(name: &Name<'_>) -> String {
    let mut text = String::new();
    for label in name.as_bytes() {
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label.iter().map(u8::to_ascii_lowercase) {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(byte)),
                // Writing to a string does not fail.
                _ => drop(write!(text, "\\{byte:03}")),
            }
        }
    }
    text
}

/// The answer to the query `message`, with its number and its question as it was asked. Without a header there is no
/// answer: no bytes.
pub fn answer(message: &[u8], answer: &Answer<'_>) -> Vec<u8> {
    let (Ok(id), Ok(opcode)) = (header_buffer::id(message), header_buffer::opcode(message)) else {
        return Vec::new();
    };
    let mut reply = Packet::new_reply(id);
    *reply.opcode_mut() = opcode;
    *reply.rcode_mut() = match answer {
        Answer::Addresses(..) | Answer::NoData => RCODE::NoError,
        Answer::NxDomain => RCODE::NameError,
        Answer::FormErr => RCODE::FormatError,
    };
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if header_buffer::has_flags(message, PacketFlag::RECURSION_DESIRED) == Ok(true) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let start = Start::of(message, Sections::Question);
    if let Some(start) = &start
        && let Some(query) = start.packet()
        && let Some(mut asked) = query.questions.into_iter().next()
    {
        asked.qtype = QTYPE::TYPE(TYPE::from(u16::from(start.kind)));
        reply.answers = records(&asked.qname, start.kind, answer);
        reply.questions.push(asked);
        *reply.opt_mut() = start.has_opt.then(opt);
    }
    reply.build_bytes_vec_compressed().unwrap_or_default()
}

fn records<'a>(name: &Name<'a>, kind: Kind, answer: &Answer<'_>) -> Vec<ResourceRecord<'a>> {
    let Answer::Addresses(addresses, ttl) = answer else { return Vec::new() };
    let ttl = i32::try_from(ttl.as_secs()).unwrap_or(i32::MAX).unsigned_abs();
    let data = |address: &IpAddr| match (address, kind) {
        (IpAddr::V4(address), Kind::A) => Some(RData::A((*address).into())),
        (IpAddr::V6(address), Kind::Aaaa) => Some(RData::AAAA((*address).into())),
        _ => None,
    };
    let record = |data| ResourceRecord::new(name.clone(), CLASS::IN, ttl, data);
    addresses.iter().filter_map(data).map(record).collect()
}
