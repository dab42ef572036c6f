//! Whatever a program asks and a resolver answers: it is read or refused, and what is answered is an answer to it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::egress::dns::{DnsAnswer, DnsQuestion, ResolverReply, encode_answer, encode_query, parse_question, parse_reply};
use std::net::IpAddr;
use std::time::Duration;

fuzz_target!(|data: &[u8]| {
    let address = [IpAddr::from([198, 18, 0, 1])];
    let told = encode_answer(data, &DnsAnswer::Addresses(&address, Duration::from_secs(60)));
    assert_eq!(told.len() >= 12, data.len() >= 12, "a header is answered with one");
    if let Ok(DnsQuestion { id, name, record_type }) = parse_question(data) {
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "a name that no report can show");
        if encode_query(id, &name, record_type).is_some() {
            assert!(matches!(parse_reply(&told, id, &name, record_type), Some(ResolverReply::Addresses(_) | ResolverReply::NoAddress)));
        }
    }
    // As the answer to the question that it has.
    let Some(id) = data.first_chunk::<2>() else { return };
    let mut query = data.to_vec();
    query[2..].iter_mut().take(1).for_each(|flags| *flags &= 0x7f);
    if let Ok(DnsQuestion { name, record_type, .. }) = parse_question(&query) {
        let _ = parse_reply(data, u16::from_be_bytes(*id), &name, record_type);
    }
});
