//! Whatever a client says first, cut wherever: the cuts make no difference to what is made of it, and a name is one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::egress::dns::{RecordType, encode_query};
use saggar::egress::sniff::{SniffResult, sniff};
use std::net::IpAddr;

fuzz_target!(|data: &[u8]| {
    let said = sniff(data);
    let ends = (0..=data.len()).step_by(1 + data.len() / 256).chain([data.len()]);
    let first = ends.map(|end| sniff(&data[..end])).find(|said| *said != SniffResult::NeedMore);
    assert_eq!(first.unwrap_or(SniffResult::NeedMore), said, "a cut changes what is seen");
    if let SniffResult::Name { name, .. } = said {
        assert!(name.parse::<IpAddr>().is_ok() || encode_query(0, &name, RecordType::A).is_some(), "{name:?} is no name");
        assert_eq!(name, name.to_ascii_lowercase());
    }
});
