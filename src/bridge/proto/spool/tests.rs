use super::*;
use proptest::prelude::*;

#[test]
fn the_number_stands_beside_data_that_stays_as_it_is() {
    let line = b"{\"ev\":\"message\",\"data\":{ \"a\":1e400,\"a\":2.50 },\"id\":\"x\"}\n";
    let with = numbered(line, u64::MAX).unwrap();
    let text = String::from_utf8(with).unwrap();
    assert_eq!(
        text,
        "{\"ev\":\"message\",\"data\":{ \"a\":1e400,\"a\":2.50 },\"id\":\"x\",\"seq\":18446744073709551615}\n"
    );
    for bad in [&b""[..], b"}", b"{}", b"\n", b"x\n"] {
        assert_eq!(numbered(bad, 1), None);
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Event), Just(Kind::Last), Just(Kind::Begun), Just(Kind::Ended), Just(Kind::Closed)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_is_read_as_it_was_written(
        kind in kind(), number: u64, command: u64, body in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let header = Record { kind, number, command, body: &body }.header().unwrap();
        let read = Header::read(&header).unwrap();
        prop_assert_eq!((read.kind, read.number, read.command), (kind, number, command));
        prop_assert_eq!(read.size(), (RECORD_HEADER + body.len()) as u64);
        prop_assert!(read.fits(&body));
    }

    /// Half a sector of zeros, a byte of another file: nothing of it is taken for what was written.
    #[test]
    fn what_is_not_as_it_was_written_is_seen(
        body in proptest::collection::vec(any::<u8>(), 1..100), at in 0usize..132, change in 1u8..,
    ) {
        let record = Record { kind: Kind::Event, number: 7, command: 0, body: &body };
        let mut bytes = record.header().unwrap().to_vec();
        bytes.extend_from_slice(&body);
        let at = at % bytes.len();
        bytes[at] ^= change;
        let (header, body) = bytes.split_first_chunk::<RECORD_HEADER>().unwrap();
        let seen = Header::read(header).is_none_or(|header| !header.fits(body));
        prop_assert!(seen);
    }

    #[test]
    fn a_segment_is_read_as_it_was_written_whatever_was_lost(first: u64, boot: [u8; 16], lost: u64) {
        let mut bytes = Segment { first, lost: 0, boot }.encode();
        let at = usize::try_from(NUMBERS_LOST).unwrap();
        bytes[at..at + 12].copy_from_slice(&Segment::encode_lost(lost));
        prop_assert_eq!(Segment::read(&bytes), Some(Segment { first, lost, boot }));
        bytes[0] ^= 1;
        prop_assert_eq!(Segment::read(&bytes), None);
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes: [u8; RECORD_HEADER], more: [u8; SEGMENT_HEADER]) {
        let _ = (Header::read(&bytes), Segment::read(&more), numbered(&more, 1));
    }
}
