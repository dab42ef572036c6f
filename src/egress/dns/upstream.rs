//! What we ask the resolvers of the host, and what they answer.

use super::start::{Sections, Start, is_answer, is_internet};
use super::{Kind, opt};
use crate::egress::authority;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use simple_dns::rdata::RData;
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QTYPE, Question, RCODE, ResourceRecord, TYPE, header_buffer,
};

/// How many aliases are followed, one after the other.
const ALIASES: usize = 16;
/// More addresses of one kind than anybody calls: each that is told costs a look at the routes.
const ADDRESSES: usize = 64;

/// What a resolver answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Addresses, each with the time for which it holds.
    Addresses(Vec<(IpAddr, Duration)>),
    /// The name does not exist, or has no address of that kind.
    None,
    /// The resolver could not say; why.
    Failed(&'static str),
    /// The answer did not fit: ask again over TCP.
    Truncated,
}

/// The message that asks for `name`; nothing for what is no name of a host.
pub fn query(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let name = authority::name(name.as_bytes())?;
    let mut query = Packet::new_query(id);
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    let asked = QTYPE::TYPE(TYPE::from(u16::from(kind)));
    query.questions.push(Question::new(Name::new(&name).ok()?, asked, CLASS::IN.into(), false));
    *query.opt_mut() = Some(opt());
    query.build_bytes_vec().ok()
}

/// What `message` says to the query of that number, name and kind; nothing when it is no answer to it, which anybody can
/// send who guesses a port.
pub fn reply(message: &[u8], id: u16, name: &str, kind: Kind) -> Option<Reply> {
    let start = Start::of(message, Sections::Question)?;
    let packet = start.packet()?;
    let [asked] = packet.questions.as_slice() else { return None };
    let name = authority::name(name.as_bytes())?;
    let name = Name::new(&name).ok()?;
    let is_ours = packet.id() == id
        && is_answer(message)
        && packet.opcode() == OPCODE::StandardQuery
        && start.kind == kind
        && is_internet(asked)
        && asked.qname == name;
    is_ours.then(|| said(message, &packet, &name, kind))
}

fn said(message: &[u8], header: &Packet<'_>, name: &Name<'_>, kind: Kind) -> Reply {
    if header.has_flags(PacketFlag::TRUNCATION) {
        return Reply::Truncated;
    }
    match header_buffer::rcode(message) {
        Ok(RCODE::NoError) => {}
        Ok(RCODE::NameError) => return Reply::None,
        Ok(RCODE::ServerFailure) => return Reply::Failed("the resolver failed"),
        Ok(RCODE::Refused) => return Reply::Failed("the resolver refuses to answer"),
        _ => return Reply::Failed("the resolver does not take the question"),
    }
    let whole = Start::of(message, Sections::Answers);
    match whole.as_ref().and_then(Start::packet) {
        Some(packet) => follow(&packet.answers, name, kind),
        None => Reply::Failed("the answer is malformed"),
    }
}

/// The addresses of `name`, or of what it is an alias of. What is said of other names does not count.
fn follow(answers: &[ResourceRecord<'_>], name: &Name<'_>, kind: Kind) -> Reply {
    let (mut name, mut longest) = (name, u32::MAX);
    for _ in 0..=ALIASES {
        let of_name = || {
            answers
                .iter()
                .filter(|record| record.name == *name && record.class == CLASS::IN && !record.cache_flush)
        };
        let address = |record: &ResourceRecord<'_>| {
            let seconds = ttl(record).min(longest);
            Some((address(&record.rdata, kind)?, Duration::from_secs(seconds.into())))
        };
        let found: Vec<_> = of_name().filter_map(address).take(ADDRESSES).collect();
        if !found.is_empty() {
            return Reply::Addresses(found);
        }
        let alias = of_name().find_map(|record| match &record.rdata {
            RData::CNAME(alias) => Some((&alias.0, ttl(record))),
            _ => None,
        });
        let Some((next, seconds)) = alias else { return Reply::None };
        (name, longest) = (next, seconds.min(longest));
    }
    Reply::Failed("the aliases of the name have no end")
}

fn address(data: &RData<'_>, kind: Kind) -> Option<IpAddr> {
    match (data, kind) {
        (RData::A(found), Kind::A) => Some(Ipv4Addr::from_bits(found.address).into()),
        (RData::AAAA(found), Kind::Aaaa) => Some(Ipv6Addr::from_bits(found.address).into()),
        _ => None,
    }
}

/// The seconds for which a record holds; none when the sign bit is set (RFC 2181 section 8).
fn ttl(record: &ResourceRecord<'_>) -> u32 {
    if i32::try_from(record.ttl).is_ok() { record.ttl } else { 0 }
}
