use super::*;
use crate::authority;
use proptest::prelude::*;

/// The ClientHello of OpenSSL 3 for `API.example.com`.
fn openssl() -> Vec<u8> {
    let digits: Vec<u8> = include_str!("client_hello.hex").bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), long(data).as_slice()].concat()
}

fn names(entries: &[(u8, &[u8])]) -> Vec<u8> {
    let list: Vec<u8> =
        entries.iter().flat_map(|(kind, name)| [&[*kind], long(name).as_slice()].concat()).collect();
    extension(0, &long(&list))
}

/// A ClientHello with these extensions, split into records of `size` bytes.
fn hello(extensions: &[u8], size: usize) -> Vec<u8> {
    let body = [&[3, 3], &[7; 32][..], &[0, 0, 2, 0x13, 1, 1, 0], &long(extensions)].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    records(&[&[1], &length[1..], &body].concat(), size)
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1], long(part).as_slice()].concat()).collect()
}

fn tls(name: &str) -> SniffResult {
    SniffResult::Name { protocol: ClientProtocol::Tls, name: name.into() }
}

fn http(name: &str) -> SniffResult {
    SniffResult::Name { protocol: ClientProtocol::Http, name: name.into() }
}

/// The first decision when the bytes arrive one by one.
fn by_prefixes(bytes: &[u8]) -> SniffResult {
    let mut said = (0..=bytes.len()).map(|end| sniff(&bytes[..end]));
    said.find(|said| *said != SniffResult::NeedMore).unwrap_or(SniffResult::NeedMore)
}

#[test]
fn a_client_hello_names_its_server() {
    assert_eq!(sniff(&openssl()), tls("api.example.com"));
    assert_eq!(by_prefixes(&openssl()), tls("api.example.com"));
    let body = &openssl()[5..];
    for size in [1, 2, 3, 100, 511] {
        assert_eq!(sniff(&records(body, size)), tls("api.example.com"), "records of {size}");
    }
    // The following bytes are not inspected.
    assert_eq!(sniff(&[openssl().as_slice(), b"\0\0\0\0\0\0"].concat()), tls("api.example.com"));
}

#[test]
fn the_outer_name_of_an_encrypted_hello_counts() {
    let ech = extension(0xfe0d, &[0, 0, 1, 0, 1, 9, 0, 0, 0, 4, 1, 2, 3, 4]);
    let both = [ech, names(&[(0, b"public.example")])].concat();
    assert_eq!(sniff(&hello(&both, 999)), tls("public.example"));
}

#[test]
fn a_hello_without_a_name_is_nameless() {
    assert_eq!(sniff(&hello(&extension(43, &[2, 3, 4]), 999)), SniffResult::NoName(ClientProtocol::Tls));
    // A ClientHello without extensions, as in old versions.
    let body = [&[1, 0, 0, 41, 3, 1], &[7; 32][..], &[0, 0, 2, 0, 10, 1, 0]].concat();
    assert_eq!(sniff(&records(&body, 999)), SniffResult::NoName(ClientProtocol::Tls));
}

#[test]
fn a_hello_that_two_could_read_differently_is_wrong() {
    let one = names(&[(0, b"a.example")]);
    for (extensions, why) in [
        ([one.clone(), one.clone()].concat(), "two server names"),
        (names(&[(0, b"a.example"), (0, b"b.example")]), "two server names"),
        (names(&[(0, b"a.example"), (1, b"b")]), "two server names"),
        (names(&[(1, b"a.example")]), "a server name that is no name"),
        (names(&[]), "a malformed ClientHello"),
        (extension(0, &[]), "a malformed ClientHello"),
        ([one.as_slice(), &[0]].concat(), "a malformed ClientHello"),
        (
            extension(0, &[&long(&[&[0], long(b"a.example").as_slice()].concat()), &[0][..]].concat()),
            "a malformed ClientHello",
        ),
    ] {
        assert_eq!(sniff(&hello(&extensions, 999)), SniffResult::Malformed(why), "{extensions:?}");
    }
    let long_name = "a.".repeat(127) + "example";
    for name in [
        &b"192.0.2.1"[..],
        b"2001:db8::1",
        b"[2001:db8::1]",
        b"",
        b".",
        b"a..example",
        b"a.example\0.b.example",
        b"a b",
        b"u@a.example",
        b"a.example:443",
        b"\xc3\xa4.example",
        b"127.1",
        b"*.example",
        long_name.as_bytes(),
    ] {
        let said = sniff(&hello(&names(&[(0, name)]), 999));
        assert_eq!(said, SniffResult::Malformed("a server name that is no name"), "{name:?}");
    }
    assert_eq!(sniff(&hello(&names(&[(0, b"A.Example.")]), 999)), tls("a.example"));
}

#[test]
fn records_that_are_none_are_wrong() {
    const NONE: SniffResult = SniffResult::Malformed("a TLS record that is not a handshake");
    let mut other = hello(&names(&[(0, b"a.example")]), 20);
    other[25] = 23;
    assert_eq!(sniff(&other), NONE);
    assert_eq!(sniff(&[22, 3, 1, 0, 0]), NONE);
    assert_eq!(sniff(&[22, 3, 1, 0x40, 1]), NONE);
    assert_eq!(sniff(&[22, 3, 9, 0, 1]), NONE);
    assert_eq!(
        sniff(&[22, 3, 1, 0, 1, 2]),
        SniffResult::Malformed("a handshake that begins without a ClientHello")
    );
    assert_eq!(
        sniff(&[22, 3, 1, 0, 4, 1, 1, 0, 1]),
        SniffResult::Malformed("a ClientHello of more than 64 KiB")
    );
    assert_eq!(sniff(&[22, 0x10, 2, 3, 4]), SniffResult::NoName(ClientProtocol::Other));
    assert_eq!(sniff(&[22, 1, 2, 3, 4, 5]), SniffResult::NoName(ClientProtocol::Other));
    assert!(matches!(sniff(&[22, 4, 1, 0, 9, 1]), SniffResult::Malformed(_)));
    assert!(matches!(sniff(&[21, 3, 1, 0, 2, 1, 90]), SniffResult::Malformed(_)));
    // Of the maximum length, and never complete.
    let endless =
        records(&[&[1, 0xff, 0xff, 0xff - 1][..], &[0; MAX_SNIFFED]].concat()[..MAX_SNIFFED], 1 << 14);
    assert!(matches!(sniff(&endless), SniffResult::Malformed(_)));
    let endless = records(&[&[1, 0, 0xff, 0xff][..], &[0; MAX_SNIFFED]].concat()[..MAX_SNIFFED], 1 << 14);
    assert_eq!(sniff(&endless), SniffResult::Malformed("more than 64 KiB before a name"));
    assert_eq!(sniff(&endless[..MAX_SNIFFED - 1]), SniffResult::NeedMore);
}

#[test]
fn a_request_names_its_host() {
    for (text, name) in [
        ("GET / HTTP/1.1\r\nHost: API.example.com\r\n\r\n", "api.example.com"),
        ("GET / HTTP/1.1\r\nhOST:\tapi.example.com.:8080 \r\n\r\nbody", "api.example.com"),
        ("\r\n\r\nPOST /x HTTP/1.0\r\nHost: 192.0.2.1:80\r\n\r\n", "192.0.2.1"),
        ("GET / HTTP/1.1\r\nHost: [2001:DB8::1]:80\r\n\r\n", "2001:db8::1"),
        ("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example"),
        ("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example"),
        ("GET http://A.example:80?x HTTP/1.0\r\n\r\n", "a.example"),
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", "a.example"),
        ("CONNECT a.example:443 HTTP/1.0\r\n\r\n", "a.example"),
    ] {
        assert_eq!(sniff(text.as_bytes()), http(name), "{text:?}");
        assert_eq!(by_prefixes(text.as_bytes()), http(name), "{text:?}");
        let head = &text[..text.len() - "\n\nbody".len()];
        assert_eq!(sniff(head.as_bytes()), SniffResult::NeedMore, "{head:?}");
    }
    assert_eq!(sniff(b"GET / HTTP/1.0\r\n\r\n"), SniffResult::NoName(ClientProtocol::Http));
}

#[test]
fn what_is_no_request_is_of_another_protocol() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"PING\r\n",
        b"EHLO a.example\r\n",
        b"GET /\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"\x05\x01\0",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x80\x2e\x01\x03\x01",
        b"<stream>\n",
        b"\xff\xfe",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        assert_eq!(sniff(bytes), SniffResult::NoName(ClientProtocol::Other), "{bytes:?}");
    }
    for bytes in [
        &b""[..],
        b"\r\n",
        b"SSH-2.0",
        b"GET",
        b"GET / HTTP/1.1",
        b"PRI * HTTP/2.0\r",
        b"\x16",
        b"\x16\x03\x01\x02",
    ] {
        assert_eq!(sniff(bytes), SniffResult::NeedMore, "{bytes:?}");
    }
}

#[test]
fn a_request_that_two_could_read_differently_is_wrong() {
    for text in [
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nhost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\nHost: b.example\r\n\r\n",
        "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://u:p@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: u@a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example/\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n .b.example\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\rHost: b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n",
        "GET\t/\tHTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET\x0b/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / http/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a.example\r\n\r\n",
        "PRI * HTTP/2.0 \r\n\r\n",
        "GET / HTTP/1.1\nHost: a.example\n\n",
        "GET / HTTP/1.1\nHost: a.example\n\nfoo\r\nHost: b.example\r\n\r\n",
        "\rGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        assert!(
            matches!(sniff(text.as_bytes()), SniffResult::Malformed(_)),
            "{text:?}: {:?}",
            sniff(text.as_bytes())
        );
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: a.example\r\n\r\n", "x".repeat(MAX_SNIFFED));
    assert_eq!(sniff(long.as_bytes()), SniffResult::Malformed("more than 64 KiB before a name"));
    let text = "x".repeat(MAX_SNIFFED);
    assert_eq!(sniff(text.as_bytes()), SniffResult::NoName(ClientProtocol::Other));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn pieces_of_requests_are_decided_alike(
        text in "(GET|CONNECT|PRI \\*| |/|\\*|http://|a\\.example|B\\.example|:443| HTTP/1\\.[01]|\r\n|\n|\r|Host: |\\[::1\\]|@|\0|é){0,16}",
    ) {
        let said = sniff(text.as_bytes());
        prop_assert_eq!(&by_prefixes(text.as_bytes()), &said);
        if let SniffResult::Name { name, .. } = said {
            let is_address = name.parse::<core::net::IpAddr>().is_ok();
            prop_assert!(is_address || authority::parse_name(name.as_bytes()) == Some(name));
        }
    }

    #[test]
    fn a_hello_with_any_byte_changed_is_decided_alike(at in 0usize..517, byte: u8, cut in 0usize..518, more: Vec<u8>) {
        let mut bytes = openssl();
        bytes[at] = byte;
        bytes.truncate(cut);
        bytes.extend(more);
        let said = sniff(&bytes);
        prop_assert_eq!(&by_prefixes(&bytes), &said);
        if let SniffResult::Name { name, protocol } = said {
            prop_assert_eq!(protocol, ClientProtocol::Tls);
            prop_assert_eq!(authority::parse_name(name.as_bytes()), Some(name));
        }
    }

    #[test]
    fn any_name_in_any_records_is_found(name in "[a-z0-9_]([a-z0-9_-]{0,28}[a-z0-9_])?\\.[a-z]{1,30}", size in 1usize..300) {
        let bytes = hello(&names(&[(0, name.as_bytes())]), size);
        prop_assert_eq!(sniff(&bytes), tls(&name));
        prop_assert_eq!(sniff(&bytes[..bytes.len() - 1]), SniffResult::NeedMore);
    }

    #[test]
    fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), first in prop_oneof![Just(22u8), any::<u8>()]) {
        let bytes = [&[first, 3, 1], bytes.as_slice()].concat();
        prop_assert_eq!(by_prefixes(&bytes), sniff(&bytes));
    }
}

#[test]
fn a_second_hello_counts_as_the_first() {
    let first = hello(&names(&[(0, b"a.example")]), 999);
    let second = hello(&names(&[(0, b"b.example")]), 999);
    let on = |rest: &[u8]| sniff_further(&[&first, rest].concat(), ClientProtocol::Tls);
    let change: &[u8] = &[20, 3, 3, 0, 1, 1];
    assert_eq!(on(&second), Some(tls("b.example")));
    assert_eq!(on(&[change, &second].concat()), Some(tls("b.example")));
    for cut in 0..change.len() + second.len() {
        assert_eq!(on(&[change, &second].concat()[..cut]), Some(SniffResult::NeedMore), "{cut}");
    }
    // Encrypted data, or the key of a client.
    assert_eq!(on(&[23, 3, 3, 0, 1, 9]), None);
    assert_eq!(on(&[22, 3, 3, 0, 1, 16]), None);
    assert_eq!(on(&[change, &[23, 3, 3, 0, 1, 9]].concat()), None);
}

#[test]
fn a_host_in_what_is_no_request_is_wrong() {
    for text in [
        "GET / FOO/1.0\r\nHost: a.example\r\n\r\n",
        "G\x01T / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "SOURCE / ICE/1.0\r\nx: y\r\n hOST : a.example\r\n\r\n",
        "\r\n\x02\r\nHost:a.example\n",
    ] {
        let (all, half) = (text.as_bytes(), &text.as_bytes()[..5]);
        assert_eq!(sniff(all), SniffResult::NoName(ClientProtocol::Other), "{text:?}");
        assert!(
            matches!(sniff_further(all, ClientProtocol::Other), Some(SniffResult::Malformed(_))),
            "{text:?}"
        );
        assert_eq!(sniff_further(half, ClientProtocol::Other), Some(SniffResult::NeedMore), "{text:?}");
    }
    assert_eq!(sniff_further(b"EHLO a\r\n\r\nHost: a.example\r\n", ClientProtocol::Other), None);
    assert_eq!(sniff_further(&[0; MAX_SNIFFED], ClientProtocol::Other), None);
}

/// Servers drop such a record and find another name after it. It must be recognised however few bytes arrive first.
#[test]
fn a_record_before_the_hello_is_seen_however_it_comes() {
    for record in [&[20, 3, 3, 0, 1, 1][..], &[21, 3, 3, 0, 2, 1, 0]] {
        let bytes = [record, &openssl()].concat();
        for end in 0..bytes.len() {
            let expected = match end {
                0..5 => SniffResult::NeedMore,
                _ => SniffResult::Malformed("a TLS record before the ClientHello"),
            };
            assert_eq!(sniff(&bytes[..end]), expected, "{end} bytes");
        }
    }
    // Bytes that cannot become such a record are decided at once.
    for other in [&[20, 16][..], &[20, 3, 3, 1], &[21, 3, 3, 0, 1], &[20, 3, 3, 0, 2]] {
        assert_eq!(sniff(other), SniffResult::NoName(ClientProtocol::Other), "{other:?}");
    }
}
