use super::*;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use proptest::prelude::*;

const A: &[u8] = &[0, 1, 0, 1];
const AAAA: &[u8] = &[0, 28, 0, 1];
const MINUTE: Duration = Duration::from_secs(60);
/// The query of `dig api.Example.com`: with an OPT record that contains a cookie.
const DIG: &[u8] =
    b"\x8e\x2a\x01\x20\x00\x01\x00\x00\x00\x00\x00\x01\x03api\x07Example\x03com\x00\x00\x01\x00\x01\
    \x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x08\x19\x5c\x7e\x01\x4d\x9b\x3f\x60";

fn header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    [[id, flags].as_slice(), &counts].concat().iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn name(text: &str) -> Vec<u8> {
    let labels = text.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> =
        labels.flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

fn asks(labels: &[u8], tail: &[u8]) -> Vec<u8> {
    [header(7, 0x0100, [1, 0, 0, 0]).as_slice(), labels, tail].concat()
}

fn record(owner: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
    [owner, &kind.to_be_bytes(), &[0, 1], &ttl.to_be_bytes(), &length, data].concat()
}

fn address(owner: &str, last: u8) -> Vec<u8> {
    record(&name(owner), 1, 60, &[192, 0, 2, last])
}

fn alias(owner: &str, of: &str) -> Vec<u8> {
    record(&name(owner), 5, 30, &name(of))
}

/// The reply to query 7 for the A records of a.example, with these flags and records.
fn says(flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let count = u16::try_from(records.len()).unwrap();
    [header(7, flags, [1, count, 0, 0]), name("a.example"), A.to_vec(), records.concat()].concat()
}

fn read(message: &[u8]) -> Option<ResolverReply> {
    parse_reply(message, 7, "a.example", RecordType::A)
}

fn found(addresses: &[(u8, u64)]) -> Option<ResolverReply> {
    let one = |(last, ttl): &(u8, u64)| (IpAddr::from([192, 0, 2, *last]), Duration::from_secs(*ttl));
    Some(ResolverReply::Addresses(addresses.iter().map(one).collect()))
}

#[test]
fn a_question_is_read() {
    let of = |id, name: &str, kind| Ok(DnsQuestion { id, name: name.into(), record_type: kind });
    assert_eq!(parse_question(DIG), of(0x8e2a, "api.example.com", RecordType::A));
    assert_eq!(parse_question(&asks(&name("A.Example"), AAAA)), of(7, "a.example", RecordType::Aaaa));
    assert_eq!(parse_question(&asks(&name(""), &[0, 2, 0, 1])), of(7, "", RecordType::Other(2)));
    // Types that the codec knows, and types that it does not know.
    for kind in [0u16, 5, 12, 65, 251, 255, 999, 65535] {
        let tail = [&kind.to_be_bytes()[..], &[0, 1]].concat();
        assert_eq!(parse_question(&asks(&name("a"), &tail)), of(7, "a", RecordType::Other(kind)));
    }
    // The following bytes are not parsed.
    let more = [asks(&name("a"), A), vec![0xff; 50]].concat();
    assert_eq!(parse_question(&more), of(7, "a", RecordType::A));
}

#[test]
fn bytes_that_are_in_no_name_of_a_host_are_written_as_numbers() {
    for (labels, text) in [
        (&b"\x0bapi.example\x03com\0"[..], "api\\046example.com"),
        (b"\x03a\0b\x01c\0", "a\\000b.c"),
        (b"\x03a b\0", "a\\032b"),
        (b"\x01*\x01c\0", "\\042.c"),
        (b"\x02\\.\0", "\\092\\046"),
        (b"\x02\xc3\xa4\0", "\\195\\164"),
        (b"\x04_A-1\0", "_a-1"),
    ] {
        let message = asks(labels, A);
        assert_eq!(parse_question(&message).unwrap().name, text);
        let told = encode_answer(&message, &DnsAnswer::Addresses(&[[192, 0, 2, 1].into()], MINUTE));
        assert_eq!(told[12..12 + labels.len()], *labels);
    }
}

#[test]
fn what_is_no_question_is_malformed() {
    let long = [[3, b'a', b'b', b'c'].repeat(63), vec![2, b'a', b'b', 0]].concat();
    let longest = [[3, b'a', b'b', b'c'].repeat(63), vec![1, b'a', 0]].concat();
    assert_eq!(parse_question(&asks(&longest, A)).unwrap().name.len(), 253);
    let two = [header(7, 0, [2, 0, 0, 0]), name("a"), A.to_vec(), name("b"), A.to_vec()].concat();
    for (message, id) in [
        (Vec::new(), None),
        (vec![0, 7], None),
        (header(7, 0, [0, 0, 0, 0]), Some(7)),
        (header(7, 0, [1, 0, 0, 0]), Some(7)),
        (header(7, 0, [u16::MAX; 4]), Some(7)),
        (two, Some(7)),
        (asks(&name("a"), &A[..3]), Some(7)),
        (asks(&long, A), Some(7)),
        (asks(&[&[64][..], &[b'a'; 64], &[0]].concat(), A), Some(7)),
        // A pointer to itself, to the header, and to later bytes.
        (asks(b"\xc0\x0c", A), Some(7)),
        (asks(b"\x01a\xc0\x0c", A), Some(7)),
        (asks(b"\xc0\x00", A), Some(7)),
        (asks(b"\xc0\x20", A), Some(7)),
        (asks(b"\x01a", b""), Some(7)),
        // Another class, a multicast question, another operation.
        (asks(&name("a"), &[0, 1, 0, 3]), Some(7)),
        (asks(&name("a"), &[0, 1, 0, 255]), Some(7)),
        (asks(&name("a"), &[0, 1, 0x80, 1]), Some(7)),
        ([header(7, 0x2800, [1, 0, 0, 0]), name("a"), A.to_vec()].concat(), Some(7)),
        // A response is never answered.
        (says(0x8000, &[]), None),
        ([asks(&name("a"), A), vec![0; MAX_MESSAGE_LENGTH]].concat(), Some(7)),
    ] {
        assert_eq!(parse_question(&message), Err(MalformedQuestion { id }), "{message:?}");
    }
}

#[test]
fn an_answer_has_the_question_as_it_was_asked() {
    let addresses = [IpAddr::from([198, 18, 0, 1]), Ipv6Addr::LOCALHOST.into(), [198, 18, 0, 2].into()];
    let told = encode_answer(DIG, &DnsAnswer::Addresses(&addresses, MINUTE));
    // RD is copied, RA is set, AA and AD are clear; one question, two answers, one OPT.
    let expected = [
        &b"\x8e\x2a\x81\x80\x00\x01\x00\x02\x00\x00\x00\x01\x03api\x07Example\x03com\x00\x00\x01\x00\x01"[..],
        b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x12\x00\x01",
        b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x12\x00\x02",
        b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00",
    ];
    assert_eq!(told, expected.concat());
    let six = encode_answer(&asks(&name("a"), AAAA), &DnsAnswer::Addresses(&addresses, Duration::MAX));
    let data =
        [&[0xc0, 12][..], AAAA, &[0x7f, 0xff, 0xff, 0xff, 0, 16], &Ipv6Addr::LOCALHOST.octets()].concat();
    assert!(six.ends_with(&data) && six[..12] == header(7, 0x8180, [1, 1, 0, 0]));
    for (said, code) in [(DnsAnswer::NoData, 0), (DnsAnswer::FormErr, 1), (DnsAnswer::NxDomain, 3)] {
        let query = [header(9, 0, [1, 0, 0, 0]), name("A.b"), vec![0xff, 0, 0, 1]].concat();
        let told = encode_answer(&query, &said);
        assert_eq!(told, [header(9, 0x8080 | code, [1, 0, 0, 0]), name("A.b"), vec![0xff, 0, 0, 1]].concat());
    }
}

#[test]
fn what_is_malformed_is_answered_as_far_as_it_was_read() {
    assert_eq!(encode_answer(&asks(b"\xc0\x0c", A), &DnsAnswer::FormErr), header(7, 0x8181, [0; 4]));
    assert_eq!(encode_answer(&header(7, 0, [u16::MAX; 4]), &DnsAnswer::FormErr), header(7, 0x8081, [0; 4]));
    assert!(encode_answer(&[0, 7, 0], &DnsAnswer::FormErr).is_empty());
}

#[test]
fn our_query_asks_for_one_name() {
    let expected = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01a\x07example\x00\x00\x01\x00\x01\
        \x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
    assert_eq!(encode_query(7, "A.Example.", RecordType::A).unwrap(), expected);
    for text in ["", ".", "a..b", "a b", "a\0", "a\\046b", "192.0.2.1", &"a.".repeat(128), &"x".repeat(64)] {
        assert_eq!(encode_query(7, text, RecordType::A), None, "{text:?}");
    }
}

#[test]
fn addresses_of_a_name_and_of_its_aliases_are_found() {
    assert_eq!(
        read(&says(0x8180, &[address("A.EXAMPLE", 1), address("a.example", 2)])),
        found(&[(1, 60), (2, 60)])
    );
    let chain = [alias("b.example", "c.example"), address("c.example", 3), alias("a.example", "B.example")];
    assert_eq!(read(&says(0x8180, &chain)), found(&[(3, 30)]));
    // With compression pointers, as servers write it.
    let pointed =
        [record(&[0xc0, 12], 5, 9, b"\x01c\xc0\x0e"), record(&[0xc0, 39], 1, 0x8000_0000, &[192, 0, 2, 4])];
    assert_eq!(read(&says(0x8180, &pointed)), found(&[(4, 0)]));
    // Unneeded sections are not parsed.
    let mut more = says(0x8180, &[address("a.example", 1)]);
    more[9] = 9;
    assert_eq!(read(&more), found(&[(1, 60)]));
}

#[test]
fn what_is_said_of_other_names_does_not_count() {
    let other_class = {
        let mut record = address("a.example", 1);
        record[14] = 3;
        record
    };
    for records in [
        vec![],
        vec![address("b.example", 1)],
        vec![alias("a.example", "b.example"), address("c.example", 1)],
        vec![alias("b.example", "a.example"), address("b.example", 1)],
        vec![record(&name("a.example"), 28, 60, &[0; 16])],
        vec![record(&name("a.example"), 1, 60, &[])],
        vec![record(b"\x09a.example\0", 1, 60, &[192, 0, 2, 1])],
        vec![other_class],
    ] {
        assert_eq!(read(&says(0x8180, &records)), Some(ResolverReply::NoAddress), "{records:?}");
    }
}

#[test]
fn a_chain_of_aliases_ends() {
    const ENDLESS: Option<ResolverReply> = Some(ResolverReply::Failed("the aliases of the name have no end"));
    assert_eq!(read(&says(0x8180, &[alias("a.example", "a.example")])), ENDLESS);
    assert_eq!(
        read(&says(0x8180, &[alias("a.example", "b"), alias("b", "a.example"), address("c", 1)])),
        ENDLESS
    );
    let chain = |length: usize| {
        let link = |n: usize| if n == 0 { "a.example".to_owned() } else { format!("n{n}") };
        let mut records: Vec<_> = (0..length).map(|n| alias(&link(n), &link(n + 1))).collect();
        records.push(address(&link(length), 1));
        read(&says(0x8180, &records))
    };
    assert_eq!(chain(16), found(&[(1, 30)]));
    assert_eq!(chain(17), ENDLESS);
}

#[test]
fn what_a_resolver_cannot_say_is_told_apart() {
    let address = [address("a.example", 1)];
    assert_eq!(read(&says(0x8380, &[])), Some(ResolverReply::Truncated));
    assert_eq!(read(&says(0x8183, &[])), Some(ResolverReply::NoAddress));
    assert_eq!(read(&says(0x8182, &address)), Some(ResolverReply::Failed("the resolver failed")));
    assert_eq!(read(&says(0x8185, &[])), Some(ResolverReply::Failed("the resolver refuses to answer")));
    assert_eq!(
        read(&says(0x8181, &[])),
        Some(ResolverReply::Failed("the resolver does not take the question"))
    );
    let mut cut = says(0x8180, &address);
    cut.pop();
    assert_eq!(read(&cut), Some(ResolverReply::Failed("the answer is malformed")));
    // A pointer to itself, and a count without records.
    let pointer = says(0x8180, &[record(&[0xc0, 27], 1, 60, &[192, 0, 2, 1])]);
    assert_eq!(read(&pointer), Some(ResolverReply::Failed("the answer is malformed")));
    let mut many = says(0x8180, &address);
    many[6..8].fill(0xff);
    assert_eq!(read(&many), Some(ResolverReply::Failed("the answer is malformed")));
}

#[test]
fn an_answer_to_another_question_is_none() {
    let right = says(0x8180, &[address("a.example", 1)]);
    assert!(read(&right).is_some());
    assert_eq!(parse_reply(&right, 8, "a.example", RecordType::A), None);
    assert_eq!(parse_reply(&right, 7, "b.example", RecordType::A), None);
    assert_eq!(parse_reply(&right, 7, "a.example", RecordType::Aaaa), None);
    assert_eq!(read(&says(0x0100, &[])), None);
    assert_eq!(read(&says(0xa980, &[])), None);
    assert_eq!(read(&header(7, 0x8182, [0; 4])), None);
    assert_eq!(read(&right[..20]), None);
    assert_eq!(read(&[]), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_we_ask_is_what_is_read(id: u16, text in "[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,18}[a-zA-Z0-9_])?(\\.[a-zA-Z]{1,20}){1,4}", number: u16) {
        let kind = RecordType::from(number);
        let message = encode_query(id, &text, kind).unwrap();
        let name = text.to_ascii_lowercase();
        prop_assert_eq!(parse_question(&message), Ok(DnsQuestion { id, name: name.clone(), record_type: kind }));
        let v4 = Ipv4Addr::from_bits(number.into());
        let addresses = [v4.into(), v4.to_ipv6_mapped().into()];
        let told = encode_answer(&message, &DnsAnswer::Addresses(&addresses, MINUTE));
        let expected = match kind {
            RecordType::A => ResolverReply::Addresses(vec![(addresses[0], MINUTE)]),
            RecordType::Aaaa => ResolverReply::Addresses(vec![(addresses[1], MINUTE)]),
            RecordType::Other(_) => ResolverReply::NoAddress,
        };
        prop_assert_eq!(parse_reply(&told, id, &name, kind), Some(expected));
        let none = encode_answer(&message, &DnsAnswer::NxDomain);
        prop_assert_eq!(parse_reply(&none, id, &text, kind), Some(ResolverReply::NoAddress));
    }

    #[test]
    fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), questions in 0u8..3, kind: u16) {
        let counts = [questions.into(), bytes.first().copied().unwrap_or(0).into(), 1, 1];
        for message in [bytes.clone(), [header(7, kind, counts), bytes].concat()] {
            let is_question = parse_question(&message);
            let told = encode_answer(&message, &DnsAnswer::Addresses(&[[192, 0, 2, 1].into()], MINUTE));
            if let Ok(DnsQuestion { id, name, .. }) = is_question {
                prop_assert!(told.starts_with(&id.to_be_bytes()) && name.bytes().all(|byte| byte.is_ascii_graphic()));
            }
            parse_reply(&message, 7, "a.example", RecordType::A);
        }
    }

    /// The codec parses records of every type that it knows.
    #[test]
    fn records_never_panic(kind: u16, data in proptest::collection::vec(any::<u8>(), 0..60), common in 0u16..70) {
        for kind in [kind, common] {
            let records = [record(&name("a.example"), kind, 60, &data), address("a.example", 1)];
            prop_assert!(read(&says(0x8180, &records)).is_some());
        }
    }
}
