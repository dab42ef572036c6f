//! The query of one name to one resolver, for both address types at once, and its result.

use super::{RecordType, ResolverReply, encode_query, parse_reply};
use core::net::IpAddr;
use core::time::Duration;

/// The queries to one resolver, and its replies.
#[derive(Debug)]
pub struct ResolverQuery {
    name: String,
    /// Unanswered queries, each with the id of its message.
    unanswered: Vec<(u16, RecordType)>,
    /// The addresses found, with their times to live.
    pub addresses: Vec<(IpAddr, Duration)>,
    /// The reason why addresses may be missing.
    pub failure: Option<&'static str>,
}

/// The classification of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceivedResponse {
    /// A reply to a query.
    Answer,
    /// A truncated reply. Unanswered queries must be repeated over TCP.
    Truncated,
    /// Not a reply to an open query.
    Unrelated,
}

impl ResolverQuery {
    /// Creates the queries for this name; nothing is sent yet.
    pub(crate) fn for_name(name: &str) -> Self {
        let open = vec![(0, RecordType::A), (0, RecordType::Aaaa)];
        ResolverQuery { name: name.to_owned(), unanswered: open, addresses: Vec::new(), failure: None }
    }

    /// Encodes the unanswered queries, each with a new id from `random`. Empty if the name is not a host name.
    ///
    /// # Errors
    /// Those of `random`.
    pub(crate) fn encode_questions<E>(
        &mut self,
        mut random: impl FnMut() -> Result<u16, E>,
    ) -> Result<Vec<Vec<u8>>, E> {
        let mut messages = Vec::new();
        for (number, kind) in &mut self.unanswered {
            *number = random()?;
            messages.extend(encode_query(*number, &self.name, *kind));
        }
        Ok(messages)
    }

    /// Processes a received message.
    pub fn receive(&mut self, message: &[u8]) -> ReceivedResponse {
        let answered =
            self.unanswered.iter().enumerate().find_map(|(at, (number, kind))| {
                Some((at, parse_reply(message, *number, &self.name, *kind)?))
            });
        let Some((at, reply)) = answered else { return ReceivedResponse::Unrelated };
        match reply {
            ResolverReply::Truncated => return ReceivedResponse::Truncated,
            ResolverReply::Addresses(addresses) => self.addresses.extend(addresses),
            ResolverReply::Failed(why) => self.failure = Some(why),
            ResolverReply::NoAddress => {}
        }
        self.unanswered.remove(at);
        ReceivedResponse::Answer
    }

    /// Whether all queries are answered.
    pub fn is_complete(&self) -> bool {
        self.unanswered.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::{DnsAnswer, encode_answer};

    #[test]
    fn what_is_cut_off_is_asked_again_and_the_rest_is_not() {
        let mut asking = ResolverQuery::for_name("a.example");
        let mut number = 0;
        let mut random = || {
            number += 1;
            Ok::<u16, ()>(number)
        };
        let asked = asking.encode_questions(&mut random).unwrap();
        let address = [IpAddr::from([192, 0, 2, 1])];
        let told =
            |query: &[u8]| encode_answer(query, &DnsAnswer::Addresses(&address, Duration::from_secs(9)));
        let mut cut = encode_answer(&asked[0], &DnsAnswer::NoData);
        cut[2] |= 2;
        assert_eq!(asking.receive(&cut), ReceivedResponse::Truncated);
        assert_eq!(asking.receive(&told(&asked[1])), ReceivedResponse::Answer);
        assert_eq!(asking.receive(&told(&asked[1])), ReceivedResponse::Unrelated);
        let again = asking.encode_questions(&mut random).unwrap();
        assert_eq!(again.len(), 1);
        assert_eq!(
            asking.receive(&told(&asked[0])),
            ReceivedResponse::Unrelated,
            "it has another number now"
        );
        assert_eq!(asking.receive(&told(&again[0])), ReceivedResponse::Answer);
        assert!(asking.is_complete() && asking.failure.is_none());
        assert_eq!(asking.addresses, [(address[0], Duration::from_secs(9))]);
        assert_eq!(ResolverQuery::for_name("a..b").encode_questions(random), Ok(Vec::new()));
    }
}
