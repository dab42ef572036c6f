//! Whatever a client says first, cut wherever: the cuts make no difference to what is made of it, and a name is one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::egress::dns::{Kind, query};
use saggar::egress::sniff::{Sniffed, sniff};
use std::net::IpAddr;

fuzz_target!(|data: &[u8]| {
    let said = sniff(data);
    let ends = (0..=data.len()).step_by(1 + data.len() / 256).chain([data.len()]);
    let first = ends.map(|end| sniff(&data[..end])).find(|said| *said != Sniffed::More);
    assert_eq!(first.unwrap_or(Sniffed::More), said, "a cut changes what is seen");
    if let Sniffed::Name { name, .. } = said {
        assert!(name.parse::<IpAddr>().is_ok() || query(0, &name, Kind::A).is_some(), "{name:?} is no name");
        assert_eq!(name, name.to_ascii_lowercase());
    }
});
