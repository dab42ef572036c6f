//! The host of a request of an HTTP/1 connection.

use super::{ClientProtocol, SniffResult};
use crate::request_head::{ParsedHead, RequestHead, parse_head};

/// The first bytes of HTTP/2 without TLS (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

pub(super) fn sniff(bytes: &[u8]) -> SniffResult {
    match is_http(bytes) {
        None => SniffResult::NeedMore,
        Some(false) => SniffResult::NoName(ClientProtocol::Other),
        Some(true) => match parse_head(bytes) {
            ParsedHead::Incomplete => SniffResult::NeedMore,
            ParsedHead::Malformed(why) => SniffResult::Malformed(why),
            ParsedHead::Complete(head) => sniff_head(&head),
        },
    }
}

/// Whether the first line is a request line. Similar lines count, so that no server finds a request in bytes that were
/// passed as another protocol. HTTP/0.9 names no host in any case.
fn is_http(bytes: &[u8]) -> Option<bool> {
    // Servers skip empty lines before a request (RFC 9112 section 2.2), and some skip more.
    let start = bytes.iter().position(|byte| !is_space(*byte))?;
    let bytes = bytes.get(start..)?;
    let line = bytes.iter().position(|byte| *byte == b'\n').and_then(|end| bytes.get(..=end));
    let method = bytes.iter().position(|byte| !is_token(*byte)).unwrap_or(bytes.len());
    if method == 0 || bytes.get(method).is_some_and(|byte| !is_space(*byte)) {
        return Some(false);
    }
    let line = line?;
    Some(line != HTTP2_PREFACE && line.windows(5).any(|part| part.eq_ignore_ascii_case(b"HTTP/")))
}

/// Checks bytes that are not a valid request. A server that accepts any protocol or method may treat them as one, but
/// only with a Host line before the first empty line.
pub(super) fn stray_host(bytes: &[u8]) -> SniffResult {
    let mut seen = false;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii();
        let names_host = text.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"host"))
            && text.get(4..).is_some_and(|rest| rest.trim_ascii_start().first() == Some(&b':'));
        if names_host {
            return SniffResult::Malformed("a Host header outside of an HTTP request");
        }
        if text.is_empty() && seen && line.ends_with(b"\n") {
            return SniffResult::NoName(ClientProtocol::Other);
        }
        seen |= !text.is_empty();
    }
    SniffResult::NeedMore
}

/// White space in a request line for lenient servers (RFC 9112 section 3) and their languages.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 9..=13 | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// A token character, RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn sniff_head(head: &RequestHead<'_>) -> SniffResult {
    let (host, named) = match (head.host_header(), head.absolute_target()) {
        (Ok(host), Ok(named)) => (host, named),
        (Err(why), _) | (_, Err(why)) => return SniffResult::Malformed(why),
    };
    let name = |name| SniffResult::Name { protocol: ClientProtocol::Http, name };
    match (host, named) {
        (Some(host), Some(named)) if host.host != named.authority.host => {
            SniffResult::Malformed("a Host header that differs from the target")
        }
        (Some(host), _) => name(host.host),
        (None, _) if head.version > 0 => SniffResult::Malformed("HTTP/1.1 without a Host header"),
        (None, Some(named)) => name(named.authority.host),
        (None, None) => SniffResult::NoName(ClientProtocol::Http),
    }
}
