//! The host of the first request of an HTTP/1 connection.

use super::{Protocol, Sniffed};
use crate::egress::head::{Head, Read, read};

/// How HTTP/2 begins without TLS (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

pub(super) fn sniff(bytes: &[u8]) -> Sniffed {
    match is_http(bytes) {
        None => Sniffed::More,
        Some(false) => Sniffed::Nameless(Protocol::Other),
        Some(true) => match read(bytes) {
            Read::More => Sniffed::More,
            Read::Wrong(why) => Sniffed::Wrong(why),
            Read::Whole(head) => host(&head),
        },
    }
}

/// Whether the first line is that of a request. A line that is nearly one counts, so that no server finds a request in
/// what was let pass for something else; HTTP/0.9 names no host in any case.
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
    Some(line != PREFACE && line.windows(5).any(|part| part.eq_ignore_ascii_case(b"HTTP/")))
}

/// What is no request of HTTP to us may be one to a server that takes any protocol or method: not without a line that
/// names a host, before the first empty line.
pub(super) fn stray_host(bytes: &[u8]) -> Sniffed {
    let mut seen = false;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii();
        let names_host = text.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"host"))
            && text.get(4..).is_some_and(|rest| rest.trim_ascii_start().first() == Some(&b':'));
        if names_host {
            return Sniffed::Wrong("a Host header in what is no request of HTTP");
        }
        if text.is_empty() && seen && line.ends_with(b"\n") {
            return Sniffed::Nameless(Protocol::Other);
        }
        seen |= !text.is_empty();
    }
    Sniffed::More
}

/// What lenient servers take for white space in a request line (RFC 9112 section 3), and what their languages do.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 9..=13 | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn host(head: &Head<'_>) -> Sniffed {
    let (host, named) = match (head.host(), head.named()) {
        (Ok(host), Ok(named)) => (host, named),
        (Err(why), _) | (_, Err(why)) => return Sniffed::Wrong(why),
    };
    let name = |name| Sniffed::Name { protocol: Protocol::Http, name };
    match (host, named) {
        (Some(host), Some(named)) if host.host != named.authority.host => {
            Sniffed::Wrong("a Host header that differs from the target")
        }
        (Some(host), _) => name(host.host),
        (None, _) if head.version > 0 => Sniffed::Wrong("HTTP/1.1 without a Host header"),
        (None, Some(named)) => name(named.authority.host),
        (None, None) => Sniffed::Nameless(Protocol::Http),
    }
}
