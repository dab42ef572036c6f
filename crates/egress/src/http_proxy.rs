//! Parses requests to an HTTP proxy (RFC 9110 section 9.3.6, RFC 9112 section 3.2.2): tunnels, and single requests
//! over plain HTTP.

use super::authority::Authority;
use super::request_body::BodyLength;
use super::request_head::{AbsoluteTarget, ParsedHead, RequestHead, parse_head};
use super::sniff::MAX_SNIFFED;
use saggar_sys::text::summary;

/// The next step of the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpProxyStep {
    /// Wait for more bytes.
    NeedMore,
    /// Connect to this host, and send [`ESTABLISHED`] to the client.
    Connect {
        /// Number of consumed bytes; the following bytes are for the server.
        consumed: usize,
        /// A name in lower case, or an address.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// Connect to this host and send `head`. The body follows it, and the connection ends after the response.
    Request {
        /// Number of consumed bytes.
        consumed: usize,
        /// As in [`HttpProxyStep::Connect`].
        host: String,
        /// As in [`HttpProxyStep::Connect`].
        port: u16,
        /// The rewritten head of the request.
        head: Vec<u8>,
        /// The length of its body.
        body: BodyLength,
    },
    /// Respond with [`HttpProxyStatus::BadRequest`]; the reason.
    Malformed(&'static str),
}

/// The response for an established tunnel.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The status of an error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpProxyStatus {
    /// The request is malformed.
    BadRequest,
    /// The policy does not allow it.
    Forbidden,
    /// The server cannot be reached.
    BadGateway,
    /// A limit is reached.
    Unavailable,
}

impl HttpProxyStatus {
    /// Status code and reason phrase.
    fn status_line(self) -> &'static str {
        match self {
            HttpProxyStatus::BadRequest => "400 Bad Request",
            HttpProxyStatus::Forbidden => "403 Forbidden",
            HttpProxyStatus::BadGateway => "502 Bad Gateway",
            HttpProxyStatus::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Headers for the proxy itself, which are not forwarded.
const HOP_HEADERS: [&str; 5] = ["connection", "keep-alive", "te", "upgrade", "host"];

/// An error response with this status, and a body that gives the reason: the denied host and the rule.
pub fn error_response(status: HttpProxyStatus, why: &str) -> Vec<u8> {
    let body = format!("saggar: {}\n", summary(why));
    format!(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        status.status_line(),
        body.len(),
    )
    .into_bytes()
}

/// The next step, from all `bytes` since the start of the connection.
pub fn next_step(bytes: &[u8]) -> HttpProxyStep {
    let is_full = bytes.len() >= MAX_SNIFFED;
    match parse_head(bytes.get(..MAX_SNIFFED).unwrap_or(bytes)) {
        ParsedHead::Incomplete if is_full => HttpProxyStep::Malformed("more than 64 KiB of headers"),
        ParsedHead::Incomplete => HttpProxyStep::NeedMore,
        ParsedHead::Malformed(why) => HttpProxyStep::Malformed(why),
        ParsedHead::Complete(head) => step_for_head(&head).unwrap_or_else(HttpProxyStep::Malformed),
    }
}

fn step_for_head(head: &RequestHead<'_>) -> Result<HttpProxyStep, &'static str> {
    let consumed = head.length;
    let Some(AbsoluteTarget { scheme, authority, rest }) = head.absolute_target()? else {
        return Err("a request for a proxy names its server");
    };
    let port = match authority.port {
        Some(port) => port,
        None if head.is_connect() => return Err("CONNECT without a port"),
        None => 80,
    };
    let of_header = head.host_header()?;
    if of_header.is_some_and(|host| host.host != authority.host || port_differs(&host, port, head)) {
        return Err("a Host header that differs from the target");
    }
    if head.is_connect() {
        let has_body = ["content-length", "transfer-encoding"]
            .iter()
            .any(|name| head.header_values(name).next().is_some());
        return if has_body {
            Err("CONNECT with a body")
        } else {
            Ok(HttpProxyStep::Connect { consumed, host: authority.host, port })
        };
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err("a URI that is no http:// one; CONNECT is for the others");
    }
    let body = head.body_length()?;
    let head = rewrite_request(head, &authority, rest)?;
    Ok(HttpProxyStep::Request { consumed, host: authority.host, port, head, body })
}

/// Whether a Host header names another port. Clients may leave the port out, even for a tunnel.
fn port_differs(host: &Authority, port: u16, head: &RequestHead<'_>) -> bool {
    host.port.map_or(!head.is_connect() && port != 80, |of_header| of_header != port)
}

/// The request for the server: a path as target, a Host header of its own, and no headers for a proxy.
fn rewrite_request(
    head: &RequestHead<'_>,
    authority: &Authority,
    rest: &str,
) -> Result<Vec<u8>, &'static str> {
    if rest.contains('#') {
        return Err("a URI with a fragment");
    }
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let line = format!("{} {slash}{rest} HTTP/1.{}\r\nHost: {authority}\r\n", head.method, head.version);
    let mut bytes = line.into_bytes();
    let is_kept = |name: &str| {
        let name = name.to_ascii_lowercase();
        !HOP_HEADERS.contains(&name.as_str()) && !name.starts_with("proxy-")
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
        match next_step(text.as_bytes()) {
            HttpProxyStep::Malformed(why) => why,
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
                next_step(text.as_bytes()),
                HttpProxyStep::Connect { consumed: head.len(), host: host.into(), port }
            );
        }
    }

    #[test]
    fn a_request_is_made_one_for_the_server() {
        let text = "POST http://Example.com:8080/a?b=c HTTP/1.1\r\nhost: example.com:8080\r\nUser-Agent: x\r\n\
                    Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive, X\r\n\
                    Keep-Alive: 5\r\nContent-Length: 3\r\n\r\nabc";
        let HttpProxyStep::Request { consumed, host, port, head, body } = next_step(text.as_bytes()) else {
            panic!()
        };
        assert_eq!((&text[consumed..], host.as_str(), port), ("abc", "example.com", 8080));
        assert_eq!(body, BodyLength::Bytes(3));
        let expected = "POST /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: x\r\nContent-Length: 3\r\n\
                        Connection: close\r\n\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), expected);
        for (target, line) in [
            ("http://example.com", "GET / HTTP/1.0\r\nHost: example.com\r\n"),
            ("HTTP://example.com?x", "GET /?x HTTP/1.0\r\nHost: example.com\r\n"),
            ("http://[::1]:81/", "GET / HTTP/1.0\r\nHost: [::1]:81\r\n"),
        ] {
            let text = format!("GET {target} HTTP/1.0\r\n\r\n");
            let HttpProxyStep::Request { head, .. } = next_step(text.as_bytes()) else { panic!("{target}") };
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
            (connect, "Host: a.example\r\n b.example", "a header with an invalid name"),
            (connect, "Host : a.example", "a header with an invalid name"),
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
            ("GET http://a.example/ HTTP/2.0\r\n", "", "an invalid version of HTTP"),
            ("\x05\x01\x00", "", "an invalid request line"),
        ] {
            let end = if lines.is_empty() { "" } else { "\r\n" };
            assert_eq!(wrong(&format!("{head}{lines}{end}\r\n")), why, "{head:?} {lines:?}");
        }
        assert_eq!(wrong(&format!("{connect}{}", "X: y\r\n".repeat(MAX_SNIFFED))), "more than 128 headers");
        assert_eq!(wrong(&format!("{connect}X: {}", "y".repeat(MAX_SNIFFED))), "more than 64 KiB of headers");
    }

    #[test]
    fn an_answer_says_why_on_one_line() {
        let text = String::from_utf8(error_response(
            HttpProxyStatus::Forbidden,
            "a.example:443: denied by \"b\"\r\nX: y",
        ))
        .unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n") && head.ends_with("\r\nConnection: close"));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert!(body.starts_with("saggar: a.example:443: denied") && body.lines().count() == 1, "{body:?}");
        for (status, code) in [
            (HttpProxyStatus::BadRequest, "400"),
            (HttpProxyStatus::BadGateway, "502"),
            (HttpProxyStatus::Unavailable, "503"),
        ] {
            let text = String::from_utf8(error_response(status, "why")).unwrap();
            assert!(
                text.starts_with(&format!("HTTP/1.1 {code} ")) && text.ends_with("\r\n\r\nsaggar: why\n")
            );
        }
    }

    fn by_prefixes(bytes: &[u8]) -> HttpProxyStep {
        let mut steps = (0..=bytes.len()).map(|end| next_step(&bytes[..end]));
        steps.find(|step| *step != HttpProxyStep::NeedMore).unwrap_or(HttpProxyStep::NeedMore)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_cutting_gives_the_same(text in "(CONNECT|GET|http://|a\\.example|:443|/| HTTP/1\\.1| |\r\n|\n|\r|Host: |Content-Length: 1|\0){0,14}") {
            prop_assert_eq!(by_prefixes(text.as_bytes()), next_step(text.as_bytes()));
        }

        #[test]
        fn what_a_server_gets_is_one_request_of_its_own(
            method in "[A-Z]{1,7}", path in "(/[a-z?&=%]{0,9})?", name in "[A-Za-z-]{1,12}", value in "[ -~]{0,20}",
        ) {
            prop_assume!(method != "CONNECT");
            let text = format!("{method} http://a.example{path} HTTP/1.1\r\n{name}: {value}\r\n\r\n");
            if let HttpProxyStep::Request { head, host, .. } = next_step(text.as_bytes()) {
                let ParsedHead::Complete(found) = parse_head(&head) else { panic!() };
                prop_assert_eq!((found.length, host.as_str()), (head.len(), "a.example"));
                prop_assert!(found.target.starts_with('/') && found.absolute_target().unwrap().is_none());
                prop_assert_eq!(found.host_header().unwrap().unwrap().host, "a.example");
                prop_assert_eq!(found.header_values("connection").collect::<Vec<_>>(), [b"close"]);
            }
        }

        #[test]
        fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            next_step(&bytes);
        }
    }
}
