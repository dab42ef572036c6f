use super::*;
use proptest::prelude::*;

#[test]
fn the_number_stands_beside_data_that_stays_as_it_is() {
    let line = b"{\"ev\":\"message\",\"data\":{ \"a\":1e400,\"a\":2.50 },\"id\":\"x\"}\n";
    let with = with_sequence_number(line, u64::MAX).unwrap();
    let text = String::from_utf8(with).unwrap();
    assert_eq!(
        text,
        "{\"ev\":\"message\",\"data\":{ \"a\":1e400,\"a\":2.50 },\"id\":\"x\",\"seq\":18446744073709551615}\n"
    );
    assert_eq!(split_sequence_number(text.as_bytes()), Some((line.to_vec(), u64::MAX)));
    for bad in [&b""[..], b"}", b"{}", b"\n", b"x\n"] {
        assert_eq!(with_sequence_number(bad, 1), None);
        assert_eq!(split_sequence_number(bad), None);
    }
    for bad in [&b"{\"seq\":1}\n"[..], b"{\"a\":1,\"seq\":x}\n", b"{\"a\":1,\"seq\":1}"] {
        assert_eq!(split_sequence_number(bad), None);
    }
}

fn kind() -> impl Strategy<Value = SpoolRecordKind> {
    prop_oneof![
        Just(SpoolRecordKind::Event),
        Just(SpoolRecordKind::LastEvent),
        Just(SpoolRecordKind::CommandStarted),
        Just(SpoolRecordKind::CommandEnded),
        Just(SpoolRecordKind::RunClosed)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_is_read_as_it_was_written(
        kind in kind(), number: u64, command: u64, body in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let header = SpoolRecord { kind, number, command, body: &body }.header().unwrap();
        let read = SpoolRecordHeader::read(&header).unwrap();
        prop_assert_eq!((read.kind, read.number, read.command), (kind, number, command));
        prop_assert_eq!(read.size(), (RECORD_HEADER_SIZE + body.len()) as u64);
        prop_assert!(read.matches_body(&body));
    }

    /// Half a sector of zeros or a byte of another file is never read as valid data.
    #[test]
    fn what_is_not_as_it_was_written_is_seen(
        body in proptest::collection::vec(any::<u8>(), 1..100), at in 0usize..132, change in 1u8..,
    ) {
        let record = SpoolRecord { kind: SpoolRecordKind::Event, number: 7, command: 0, body: &body };
        let mut bytes = record.header().unwrap().to_vec();
        bytes.extend_from_slice(&body);
        let at = at % bytes.len();
        bytes[at] ^= change;
        let (header, body) = bytes.split_first_chunk::<RECORD_HEADER_SIZE>().unwrap();
        let seen = SpoolRecordHeader::read(header).is_none_or(|header| !header.matches_body(body));
        prop_assert!(seen);
    }

    #[test]
    fn a_segment_is_read_as_it_was_written_whatever_was_lost(first_number: u64, boot_id: [u8; 16], lost_up_to: u64) {
        let mut bytes = SpoolSegmentHeader { first_number, lost_up_to: 0, boot_id }.encode();
        let at = usize::try_from(LOST_NUMBERS_OFFSET).unwrap();
        bytes[at..at + 12].copy_from_slice(&SpoolSegmentHeader::encode_lost(lost_up_to));
        prop_assert_eq!(SpoolSegmentHeader::read(&bytes), Some(SpoolSegmentHeader { first_number, lost_up_to, boot_id }));
        bytes[0] ^= 1;
        prop_assert_eq!(SpoolSegmentHeader::read(&bytes), None);
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes: [u8; RECORD_HEADER_SIZE], more: [u8; SEGMENT_HEADER_SIZE]) {
        let _ = (SpoolRecordHeader::read(&bytes), SpoolSegmentHeader::read(&more), with_sequence_number(&more, 1));
    }
}

/// Files are read by other versions: the checksum is CRC-32 as in IEEE 802.3, with the check value of the catalogue.
#[test]
fn checksum_of_records_is_crc32_of_ieee_802_3() {
    assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    let record = SpoolRecord { kind: SpoolRecordKind::Event, number: 1, command: 0, body: b"123456789" };
    let header = record.header().unwrap();
    assert_eq!(header[24..28], 0xcbf4_3926u32.to_le_bytes());
}
