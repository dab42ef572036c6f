//! Whatever a client says first, cut wherever: the cuts make no difference to what is made of it, and a name is one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::egress::dns::{RecordType, encode_query};
use saggar::egress::request_body::RequestBody;
use saggar::egress::sniff::{ClientProtocol, SniffResult, request_end, sniff};
use std::net::IpAddr;

fuzz_target!(|data: &[u8]| {
    let said = sniff(data);
    let ends = (0..=data.len()).step_by(1 + data.len() / 256).chain([data.len()]);
    let first = ends.map(|end| sniff(&data[..end])).find(|said| *said != SniffResult::NeedMore);
    assert_eq!(first.unwrap_or(SniffResult::NeedMore), said, "a cut changes what is seen");
    if let SniffResult::Name { protocol: ClientProtocol::Http, .. } = said {
        ends_in_one_place(data);
    }
    if let SniffResult::Name { name, .. } = said {
        assert!(name.parse::<IpAddr>().is_ok() || encode_query(0, &name, RecordType::A).is_some(), "{name:?} is no name");
        assert_eq!(name, name.to_ascii_lowercase());
    }
});

/// The body of a request ends where it ends, however it comes.
fn ends_in_one_place(data: &[u8]) {
    let Ok((head, length)) = request_end(data) else { return };
    let data = &data[head..];
    let whole = RequestBody::new(length).pass(data);
    let mut body = RequestBody::new(length);
    let mut passed = 0;
    for byte in data {
        match body.pass(&[*byte]) {
            Ok(count) => passed += count,
            Err(why) => return assert_eq!(whole, Err(why), "a cut changes what is seen"),
        }
    }
    assert_eq!(whole, Ok(passed), "a cut changes where a body ends");
}
