//! Queries to the resolvers of the host, and their replies.

use super::message_start::{MessageSections, MessageStart, is_internet_question, is_response};
use super::{RecordType, opt_record};
use crate::authority;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use simple_dns::rdata::RData;
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QTYPE, Question, RCODE, ResourceRecord, TYPE, header_buffer,
};

/// Maximum number of aliases to follow, one after the other.
const MAX_ALIASES: usize = 16;
/// Maximum number of addresses per type. Each returned address costs a route lookup.
const MAX_ADDRESSES: usize = 64;

/// The reply of a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolverReply {
    /// Addresses, each with its time to live.
    Addresses(Vec<(IpAddr, Duration)>),
    /// The name does not exist, or has no address of this type.
    NoAddress,
    /// The resolver failed; the reason.
    Failed(&'static str),
    /// The reply was truncated. The query must be repeated over TCP.
    Truncated,
}

/// Encodes a query for `name`; `None` if it is not a host name.
pub fn encode_query(id: u16, name: &str, kind: RecordType) -> Option<Vec<u8>> {
    let name = authority::parse_name(name.as_bytes())?;
    let mut query = Packet::new_query(id);
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    let asked = QTYPE::TYPE(TYPE::from(u16::from(kind)));
    query.questions.push(Question::new(Name::new(&name).ok()?, asked, CLASS::IN.into(), false));
    *query.opt_mut() = Some(opt_record());
    query.build_bytes_vec().ok()
}

/// Parses the reply to the query with this id, name and type. `None` for any other message, because anyone who guesses
/// the port can send one.
pub fn parse_reply(message: &[u8], id: u16, name: &str, kind: RecordType) -> Option<ResolverReply> {
    let start = MessageStart::parse(message, MessageSections::Question)?;
    let packet = start.packet()?;
    let [asked] = packet.questions.as_slice() else { return None };
    let name = authority::parse_name(name.as_bytes())?;
    let name = Name::new(&name).ok()?;
    let is_ours = packet.id() == id
        && is_response(message)
        && packet.opcode() == OPCODE::StandardQuery
        && start.record_type == kind
        && is_internet_question(asked)
        && asked.qname == name;
    is_ours.then(|| read_answers(message, &packet, &name, kind))
}

fn read_answers(message: &[u8], header: &Packet<'_>, name: &Name<'_>, kind: RecordType) -> ResolverReply {
    if header.has_flags(PacketFlag::TRUNCATION) {
        return ResolverReply::Truncated;
    }
    match header_buffer::rcode(message) {
        Ok(RCODE::NoError) => {}
        Ok(RCODE::NameError) => return ResolverReply::NoAddress,
        Ok(RCODE::ServerFailure) => return ResolverReply::Failed("the resolver failed"),
        Ok(RCODE::Refused) => return ResolverReply::Failed("the resolver refuses to answer"),
        _ => return ResolverReply::Failed("the resolver does not take the question"),
    }
    let whole = MessageStart::parse(message, MessageSections::Answers);
    match whole.as_ref().and_then(MessageStart::packet) {
        Some(packet) => follow_aliases(&packet.answers, name, kind),
        None => ResolverReply::Failed("the answer is malformed"),
    }
}

/// The addresses of `name`, or of the name that it is an alias of. Records of other names are ignored.
fn follow_aliases(answers: &[ResourceRecord<'_>], name: &Name<'_>, kind: RecordType) -> ResolverReply {
    let (mut name, mut longest) = (name, u32::MAX);
    for _ in 0..=MAX_ALIASES {
        let of_name = || {
            answers
                .iter()
                .filter(|record| record.name == *name && record.class == CLASS::IN && !record.cache_flush)
        };
        let address = |record: &ResourceRecord<'_>| {
            let seconds = record_ttl(record).min(longest);
            Some((record_address(&record.rdata, kind)?, Duration::from_secs(seconds.into())))
        };
        let found: Vec<_> = of_name().filter_map(address).take(MAX_ADDRESSES).collect();
        if !found.is_empty() {
            return ResolverReply::Addresses(found);
        }
        let alias = of_name().find_map(|record| match &record.rdata {
            RData::CNAME(alias) => Some((&alias.0, record_ttl(record))),
            _ => None,
        });
        let Some((next, seconds)) = alias else { return ResolverReply::NoAddress };
        (name, longest) = (next, seconds.min(longest));
    }
    ResolverReply::Failed("the aliases of the name have no end")
}

fn record_address(data: &RData<'_>, kind: RecordType) -> Option<IpAddr> {
    match (data, kind) {
        (RData::A(found), RecordType::A) => Some(Ipv4Addr::from_bits(found.address).into()),
        (RData::AAAA(found), RecordType::Aaaa) => Some(Ipv6Addr::from_bits(found.address).into()),
        _ => None,
    }
}

/// The time to live of a record, in seconds; 0 if the sign bit is set (RFC 2181 section 8).
fn record_ttl(record: &ResourceRecord<'_>) -> u32 {
    if i32::try_from(record.ttl).is_ok() { record.ttl } else { 0 }
}
