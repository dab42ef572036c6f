//! Questions of programs in the sandbox, and the answers to them.

use super::message_start::{MessageSections, MessageStart, is_internet_question, is_response};
use super::{RecordType, opt_record};
use core::fmt::Write;
use core::net::IpAddr;
use core::time::Duration;
use simple_dns::rdata::RData;
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE, header_buffer,
};

/// A question of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsQuestion {
    /// The id of the message.
    pub id: u16,
    /// The name, in lower case and without the final dot; empty for the root. Letters, digits, `-` and `_` are
    /// unchanged. Every other byte of a label becomes `\DDD`, which no host name contains.
    pub name: String,
    /// The record type.
    pub record_type: RecordType,
}

/// A message that is not a valid question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedQuestion {
    /// The id of the message, if it may be answered. A response is never answered.
    pub id: Option<u16>,
}

/// The answer to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsAnswer<'a> {
    /// These addresses, limited to the requested record type, with this time to live.
    Addresses(&'a [IpAddr], Duration),
    /// The name has no records of this type.
    NoData,
    /// The name does not exist, or the policy does not allow it.
    NxDomain,
    /// The message is malformed.
    FormErr,
}

/// Parses a message with one question of class IN.
///
/// # Errors
/// [`MalformedQuestion`] for any other message.
pub fn parse_question(message: &[u8]) -> Result<DnsQuestion, MalformedQuestion> {
    // Responses are not answered. Otherwise two servers could answer each other forever.
    let id = header_buffer::id(message).ok().filter(|_| !is_response(message));
    id.and_then(|id| parse_with_id(message, id)).ok_or(MalformedQuestion { id })
}

fn parse_with_id(message: &[u8], id: u16) -> Option<DnsQuestion> {
    let start = MessageStart::parse(message, MessageSections::Question)?;
    let packet = start.packet()?;
    let [asked] = packet.questions.as_slice() else { return None };
    let is_ours = packet.opcode() == OPCODE::StandardQuery && is_internet_question(asked);
    is_ours.then(|| DnsQuestion { id, name: name_text(&asked.qname), record_type: start.record_type })
}

fn name_text(name: &Name<'_>) -> String {
    let mut text = String::new();
    for label in name.as_bytes() {
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label.iter().map(u8::to_ascii_lowercase) {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(byte)),
                // A write to a string cannot fail.
                _ => drop(write!(text, "\\{byte:03}")),
            }
        }
    }
    text
}

/// Encodes the answer to the query `message`, with its id and its unchanged question. Empty if `message` has no
/// complete header.
pub fn encode_answer(message: &[u8], answer: &DnsAnswer<'_>) -> Vec<u8> {
    let (Ok(id), Ok(opcode)) = (header_buffer::id(message), header_buffer::opcode(message)) else {
        return Vec::new();
    };
    let mut reply = Packet::new_reply(id);
    *reply.opcode_mut() = opcode;
    *reply.rcode_mut() = match answer {
        DnsAnswer::Addresses(..) | DnsAnswer::NoData => RCODE::NoError,
        DnsAnswer::NxDomain => RCODE::NameError,
        DnsAnswer::FormErr => RCODE::FormatError,
    };
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if header_buffer::has_flags(message, PacketFlag::RECURSION_DESIRED) == Ok(true) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let start = MessageStart::parse(message, MessageSections::Question);
    if let Some(start) = &start
        && let Some(query) = start.packet()
        && let Some(mut asked) = query.questions.into_iter().next()
    {
        asked.qtype = QTYPE::TYPE(TYPE::from(u16::from(start.record_type)));
        reply.answers = address_records(&asked.qname, start.record_type, answer);
        reply.questions.push(asked);
        *reply.opt_mut() = start.has_opt.then(opt_record);
    }
    reply.build_bytes_vec_compressed().unwrap_or_default()
}

fn address_records<'a>(name: &Name<'a>, kind: RecordType, answer: &DnsAnswer<'_>) -> Vec<ResourceRecord<'a>> {
    let DnsAnswer::Addresses(addresses, ttl) = answer else { return Vec::new() };
    let ttl = i32::try_from(ttl.as_secs()).unwrap_or(i32::MAX).unsigned_abs();
    let data = |address: &IpAddr| match (address, kind) {
        (IpAddr::V4(address), RecordType::A) => Some(RData::A((*address).into())),
        (IpAddr::V6(address), RecordType::Aaaa) => Some(RData::AAAA((*address).into())),
        _ => None,
    };
    let record = |data| ResourceRecord::new(name.clone(), CLASS::IN, ttl, data);
    addresses.iter().filter_map(data).map(record).collect()
}
