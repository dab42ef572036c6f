//! Whatever is in the files of a spool: it is opened and read without harm, no event is found that has no checksum,
//! and what is kept afterwards is found again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::bridge::proto::spool::{SpoolPosition, SpoolReadResult, SpoolRecord, SpoolRecordKind, SpoolSegmentHeader, SpoolStore};
use saggar::session::spool::SessionSpool;
use std::fs;
use std::os::unix::fs::DirBuilderExt;

fuzz_target!(|data: &[u8]| {
    let session = std::env::temp_dir().join(format!("saggar-fuzz-spool-{}", std::process::id()));
    let _ = fs::remove_dir_all(&session);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(session.join("spool")).expect("a directory");
    let (is_whole, data) = data.split_first().map_or((false, data), |(first, rest)| (first & 1 == 1, rest));
    // Half of them with a header as it should be, so that the records behind it are looked at.
    let mut file = SpoolSegmentHeader { first_number: 1, lost_up_to: 0, boot_id: [0; 16] }.encode().to_vec();
    if !is_whole {
        file.clear();
    }
    file.extend_from_slice(data);
    fs::write(session.join("spool/00000000000000000001.seg"), file).expect("a file");
    let (mut spool, left) = SessionSpool::open(&session, 1 << 20, 10).expect("it opens");
    let (mut place, mut next) = (SpoolPosition::default(), 0);
    while let SpoolReadResult::Event { number, .. } = spool.read(&mut place, next, 1 << 20) {
        assert!(number >= next && number < left.next_event, "out of order, or never given");
        next = number + 1;
    }
    let number = left.next_event;
    if number < u64::MAX {
        spool.append(&[SpoolRecord { kind: SpoolRecordKind::Event, number, command: 0, body: b"goes on" }]);
        spool.flush().expect("it is kept");
        let mut place = spool.find(number);
        assert!(matches!(spool.read(&mut place, number, 100), SpoolReadResult::Event { number: found, .. } if found == number));
    }
    let _ = fs::remove_dir_all(&session);
});
