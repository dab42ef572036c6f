//! Whatever a program asks and a resolver answers: it is read or refused, and what is answered is an answer to it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::egress::dns::{Answer, Question, Reply, answer, query, question, reply};
use std::net::IpAddr;
use std::time::Duration;

fuzz_target!(|data: &[u8]| {
    let address = [IpAddr::from([198, 18, 0, 1])];
    let told = answer(data, &Answer::Addresses(&address, Duration::from_secs(60)));
    assert_eq!(told.len() >= 12, data.len() >= 12, "a header is answered with one");
    if let Ok(Question { id, name, kind }) = question(data) {
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "a name that no report can show");
        if query(id, &name, kind).is_some() {
            assert!(matches!(reply(&told, id, &name, kind), Some(Reply::Addresses(_) | Reply::None)));
        }
    }
    // As the answer to the question that it has.
    let Some(id) = data.first_chunk::<2>() else { return };
    let mut query = data.to_vec();
    query[2..].iter_mut().take(1).for_each(|flags| *flags &= 0x7f);
    if let Ok(Question { name, kind, .. }) = question(&query) {
        let _ = reply(data, u16::from_be_bytes(*id), &name, kind);
    }
});
