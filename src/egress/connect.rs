//! An HTTP proxy (RFC 9110 section 9.3.6, RFC 9112 section 3.2.2): tunnels, and single requests over plain HTTP.

use super::authority::Authority;
use super::head::{Head, Named, Read, read};
use super::sniff::LIMIT;
use crate::text::summary;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Wait for more bytes.
    More,
    /// Connect there, and send [`ESTABLISHED`].
    Connect {
        /// How many bytes are done with; what follows is for the server.
        consumed: usize,
        /// A name in lower case, or an address.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// Connect there, and send `head`; the body follows behind it, and the answer is the last.
    Request {
        /// How many bytes are done with.
        consumed: usize,
        /// As of [`Step::Connect`].
        host: String,
        /// As of [`Step::Connect`].
        port: u16,
        /// The request as the server gets it.
        head: Vec<u8>,
    },
    /// Answer with [`Status::BadRequest`]; what is wrong.
    Wrong(&'static str),
}

/// What a client is told when a tunnel is there.
pub const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// What a client is told when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The request is malformed.
    BadRequest,
    /// The policy does not allow it.
    Forbidden,
    /// The server cannot be reached.
    BadGateway,
    /// There is no room for it now.
    Unavailable,
}

impl Status {
    /// The rest of the status line.
    fn text(self) -> &'static str {
        match self {
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::BadGateway => "502 Bad Gateway",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Headers that are between a client and its proxy.
const OF_THE_HOP: [&str; 5] = ["connection", "keep-alive", "te", "upgrade", "host"];

/// The answer of that status, with a line that says why: what was refused, and by which rule.
pub fn answer(status: Status, why: &str) -> Vec<u8> {
    let body = format!("saggar: {}\n", summary(why));
    format!(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        status.text(),
        body.len(),
    )
    .into_bytes()
}

/// The next step, with all `bytes` since the start of the connection.
pub fn next(bytes: &[u8]) -> Step {
    let is_full = bytes.len() >= LIMIT;
    match read(bytes.get(..LIMIT).unwrap_or(bytes)) {
        Read::More if is_full => Step::Wrong("more than 64 KiB of headers"),
        Read::More => Step::More,
        Read::Wrong(why) => Step::Wrong(why),
        Read::Whole(head) => step(&head).unwrap_or_else(Step::Wrong),
    }
}

fn step(head: &Head<'_>) -> Result<Step, &'static str> {
    let consumed = head.length;
    let Some(Named { scheme, authority, rest }) = head.named()? else {
        return Err("a request for a proxy names its server");
    };
    let port = match authority.port {
        Some(port) => port,
        None if head.is_connect() => return Err("CONNECT without a port"),
        None => 80,
    };
    let of_header = head.host()?;
    if of_header.is_some_and(|host| host.host != authority.host || differs(&host, port, head)) {
        return Err("a Host header that differs from the target");
    }
    if head.is_connect() {
        let has_body =
            ["content-length", "transfer-encoding"].iter().any(|name| head.values(name).next().is_some());
        return if has_body {
            Err("CONNECT with a body")
        } else {
            Ok(Step::Connect { consumed, host: authority.host, port })
        };
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err("a URI that is no http:// one; CONNECT is for the others");
    }
    one_length(head)?;
    let head = rewritten(head, &authority, rest)?;
    Ok(Step::Request { consumed, host: authority.host, port, head })
}

/// Whether the port of a Host header is another one. Clients leave it out, of a tunnel's too.
fn differs(host: &Authority, port: u16, head: &Head<'_>) -> bool {
    host.port.map_or(!head.is_connect() && port != 80, |of_header| of_header != port)
}

/// There is one way to tell where the body ends (RFC 9112 section 6.3).
fn one_length(head: &Head<'_>) -> Result<(), &'static str> {
    let mut lengths = head.values("content-length");
    let mut codings = head.values("transfer-encoding");
    match (lengths.next(), codings.next()) {
        (Some(_), Some(_)) => return Err("a body with two lengths"),
        (Some(digits), _) if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) => {
            return Err("a Content-Length that is no number");
        }
        (_, Some(coding)) if head.version == 0 || !coding.eq_ignore_ascii_case(b"chunked") => {
            return Err("a Transfer-Encoding other than chunked");
        }
        _ => {}
    }
    let has_more = lengths.next().is_some() || codings.next().is_some();
    if has_more { Err("a body with two lengths") } else { Ok(()) }
}

/// The request for the server itself: a path, its own Host header, and nothing that was for a proxy.
fn rewritten(head: &Head<'_>, authority: &Authority, rest: &str) -> Result<Vec<u8>, &'static str> {
    if rest.contains('#') {
        return Err("a URI with a fragment");
    }
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let line = format!("{} {slash}{rest} HTTP/1.{}\r\nHost: {authority}\r\n", head.method, head.version);
    let mut bytes = line.into_bytes();
    let is_kept = |name: &str| {
        let name = name.to_ascii_lowercase();
        !OF_THE_HOP.contains(&name.as_str()) && !name.starts_with("proxy-")
    };
    for (name, value) in head.headers.iter().filter(|(name, _)| is_kept(name)) {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wrong(text: &str) -> &'static str {
        match next(text.as_bytes()) {
            Step::Wrong(why) => why,
            step => panic!("{text:?}: {step:?}"),
        }
    }

    #[test]
    fn a_tunnel_is_asked_for() {
        for (head, host, port) in [
            (
                "CONNECT API.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n",
                "api.example.com",
                443,
            ),
            (
                "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\nProxy-Connection: x\r\n\r\n",
                "api.example.com",
                443,
            ),
            ("CONNECT 192.0.2.1:22 HTTP/1.0\r\n\r\n", "192.0.2.1", 22),
            ("CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:DB8::1]:443\r\n\r\n", "2001:db8::1", 443),
        ] {
            let text = format!("{head}\x16\x03\x01");
            assert_eq!(
                next(text.as_bytes()),
                Step::Connect { consumed: head.len(), host: host.into(), port }
            );
        }
    }

    #[test]
    fn a_request_is_made_one_for_the_server() {
        let text = "POST http://Example.com:8080/a?b=c HTTP/1.1\r\nhost: example.com:8080\r\nUser-Agent: x\r\n\
                    Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive, X\r\n\
                    Keep-Alive: 5\r\nContent-Length: 3\r\n\r\nabc";
        let Step::Request { consumed, host, port, head } = next(text.as_bytes()) else { panic!() };
        assert_eq!((&text[consumed..], host.as_str(), port), ("abc", "example.com", 8080));
        let expected = "POST /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: x\r\nContent-Length: 3\r\n\
                        Connection: close\r\n\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), expected);
        for (target, line) in [
            ("http://example.com", "GET / HTTP/1.0\r\nHost: example.com\r\n"),
            ("HTTP://example.com?x", "GET /?x HTTP/1.0\r\nHost: example.com\r\n"),
            ("http://[::1]:81/", "GET / HTTP/1.0\r\nHost: [::1]:81\r\n"),
        ] {
            let text = format!("GET {target} HTTP/1.0\r\n\r\n");
            let Step::Request { head, .. } = next(text.as_bytes()) else { panic!("{target}") };
            assert!(head.starts_with(line.as_bytes()), "{target}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_wrong() {
        let connect = "CONNECT a.example:443 HTTP/1.1\r\n";
        let get = "GET http://a.example/ HTTP/1.1\r\n";
        for (head, lines, why) in [
            (connect, "Host: b.example", "a Host header that differs from the target"),
            (connect, "Host: a.example:80", "a Host header that differs from the target"),
            (connect, "Host: a.example\r\nHost: a.example", "two Host headers"),
            (connect, "Host: a.example\r\nContent-Length: 0", "CONNECT with a body"),
            (connect, "Transfer-Encoding: chunked", "CONNECT with a body"),
            (connect, "Host: a.example, b.example", "a Host header that is no host"),
            (connect, "Host: a.example\r\n b.example", "a header with a name that is none"),
            (connect, "Host : a.example", "a header with a name that is none"),
            (connect, "Host: a.example\0", "a header with a byte that no header has"),
            (connect, "X: a\rHost: b.example", "a header with a byte that no header has"),
            (get, "Host: b.example", "a Host header that differs from the target"),
            (get, "Host: a.example:81", "a Host header that differs from the target"),
            (get, "Content-Length: 1\r\nTransfer-Encoding: chunked", "a body with two lengths"),
            (get, "Content-Length: 1\r\nContent-Length: 2", "a body with two lengths"),
            (get, "Content-Length: +1", "a Content-Length that is no number"),
            (get, "Content-Length: 1, 1", "a Content-Length that is no number"),
            (get, "Transfer-Encoding: gzip, chunked", "a Transfer-Encoding other than chunked"),
            (get, "Transfer-Encoding: xchunked", "a Transfer-Encoding other than chunked"),
            ("CONNECT a.example HTTP/1.1\r\n", "", "CONNECT without a port"),
            ("CONNECT u@a.example:443 HTTP/1.1\r\n", "", "a target that names no host"),
            ("CONNECT http://a.example:443/ HTTP/1.1\r\n", "", "a target that names no host"),
            ("CONNECT a.example:0 HTTP/1.1\r\n", "", "a target that names no host"),
            ("GET / HTTP/1.1\r\n", "Host: a.example", "a request for a proxy names its server"),
            (
                "GET https://a.example/ HTTP/1.1\r\n",
                "",
                "a URI that is no http:// one; CONNECT is for the others",
            ),
            ("GET http://u:p@a.example/ HTTP/1.1\r\n", "", "a target that names no host"),
            ("GET http://a.example@b.example/ HTTP/1.1\r\n", "", "a target that names no host"),
            ("GET http://a.example\\@b.example/ HTTP/1.1\r\n", "", "a target that names no host"),
            ("GET http:///x HTTP/1.1\r\n", "", "a target that names no host"),
            ("GET http://a.example/#x HTTP/1.1\r\n", "", "a URI with a fragment"),
            ("GET http://a.example/ HTTP/2.0\r\n", "", "a version of HTTP that is none"),
            ("\x05\x01\x00", "", "a request line that is none"),
        ] {
            let end = if lines.is_empty() { "" } else { "\r\n" };
            assert_eq!(wrong(&format!("{head}{lines}{end}\r\n")), why, "{head:?} {lines:?}");
        }
        assert_eq!(wrong(&format!("{connect}{}", "X: y\r\n".repeat(LIMIT))), "more than 128 headers");
        assert_eq!(wrong(&format!("{connect}X: {}", "y".repeat(LIMIT))), "more than 64 KiB of headers");
    }

    #[test]
    fn an_answer_says_why_on_one_line() {
        let text =
            String::from_utf8(answer(Status::Forbidden, "a.example:443: denied by \"b\"\r\nX: y")).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n") && head.ends_with("\r\nConnection: close"));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert!(body.starts_with("saggar: a.example:443: denied") && body.lines().count() == 1, "{body:?}");
        for (status, code) in
            [(Status::BadRequest, "400"), (Status::BadGateway, "502"), (Status::Unavailable, "503")]
        {
            let text = String::from_utf8(answer(status, "why")).unwrap();
            assert!(
                text.starts_with(&format!("HTTP/1.1 {code} ")) && text.ends_with("\r\n\r\nsaggar: why\n")
            );
        }
    }

    fn by_prefixes(bytes: &[u8]) -> Step {
        let mut steps = (0..=bytes.len()).map(|end| next(&bytes[..end]));
        steps.find(|step| *step != Step::More).unwrap_or(Step::More)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_cutting_gives_the_same(text in "(CONNECT|GET|http://|a\\.example|:443|/| HTTP/1\\.1| |\r\n|\n|\r|Host: |Content-Length: 1|\0){0,14}") {
            prop_assert_eq!(by_prefixes(text.as_bytes()), next(text.as_bytes()));
        }

        #[test]
        fn what_a_server_gets_is_one_request_of_its_own(
            method in "[A-Z]{1,7}", path in "(/[a-z?&=%]{0,9})?", name in "[A-Za-z-]{1,12}", value in "[ -~]{0,20}",
        ) {
            prop_assume!(method != "CONNECT");
            let text = format!("{method} http://a.example{path} HTTP/1.1\r\n{name}: {value}\r\n\r\n");
            if let Step::Request { head, host, .. } = next(text.as_bytes()) {
                let Read::Whole(found) = read(&head) else { panic!() };
                prop_assert_eq!((found.length, host.as_str()), (head.len(), "a.example"));
                prop_assert!(found.target.starts_with('/') && found.named().unwrap().is_none());
                prop_assert_eq!(found.host().unwrap().unwrap().host, "a.example");
                prop_assert_eq!(found.values("connection").collect::<Vec<_>>(), [b"close"]);
            }
        }

        #[test]
        fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            next(&bytes);
        }
    }
}
