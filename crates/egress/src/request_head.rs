//! Parses the head of an HTTP/1 request (RFC 9112) strictly: a head that two servers could parse differently is
//! rejected.

use super::authority::Authority;
use super::request_body::BodyLength;

/// Maximum number of headers, more than any client sends.
const MAX_HEADERS: usize = 128;

/// The result of parsing the first bytes of a request.
#[derive(Debug)]
pub(super) enum ParsedHead<'a> {
    /// The head is incomplete.
    Incomplete,
    /// The complete head.
    Complete(RequestHead<'a>),
    /// Not a valid head; the reason.
    Malformed(&'static str),
}

/// A request without its body.
#[derive(Debug)]
pub(super) struct RequestHead<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub(super) version: u8,
    /// The headers in order, each with its name as written.
    pub(super) headers: Vec<(&'a str, &'a [u8])>,
    /// Size of the head, in bytes.
    pub(super) length: usize,
}

/// Parses a head.
pub(super) fn parse_head(bytes: &[u8]) -> ParsedHead<'_> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return ParsedHead::Incomplete,
        Err(error) => return ParsedHead::Malformed(parse_error(error)),
    };
    // Some servers treat a bare LF as a line end, and some do not.
    let lines = bytes.get(..length).and_then(|head| head.strip_suffix(b"\n")).unwrap_or_default();
    if !lines.split(|byte| *byte == b'\n').all(|line| line.ends_with(b"\r")) {
        return ParsedHead::Malformed("a line that does not end as lines do");
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return ParsedHead::Malformed("an invalid request line");
    };
    let headers = request.headers.iter().map(|header| (header.name, header.value)).collect();
    ParsedHead::Complete(RequestHead { method, target, version, headers, length })
}

fn parse_error(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header with an invalid name",
        httparse::Error::HeaderValue => "a header with a byte that no header has",
        httparse::Error::NewLine => "a line that does not end as lines do",
        httparse::Error::TooManyHeaders => "more than 128 headers",
        httparse::Error::Version => "an invalid version of HTTP",
        httparse::Error::Status | httparse::Error::Token => "an invalid request line",
    }
}

impl<'a> RequestHead<'a> {
    /// Whether the request asks for a tunnel.
    pub(super) fn is_connect(&self) -> bool {
        self.method == "CONNECT"
    }

    /// The values of every header with that name.
    pub(super) fn header_values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |header| header.0.eq_ignore_ascii_case(name)).map(|header| header.1)
    }

    /// The value of its only Host header.
    pub(super) fn host_header(&self) -> Result<Option<Authority>, &'static str> {
        let mut values = self.header_values("host");
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err("two Host headers");
        }
        Authority::parse(value.trim_ascii()).map(Some).ok_or("a Host header that is no host")
    }

    /// The length of its body (RFC 9112 section 6.3).
    pub(super) fn body_length(&self) -> Result<BodyLength, &'static str> {
        let mut lengths = self.header_values("content-length");
        let mut codings = self.header_values("transfer-encoding");
        let length = match (lengths.next(), codings.next()) {
            (None, None) => BodyLength::Bytes(0),
            (Some(digits), None) => {
                BodyLength::Bytes(parse_length(digits).ok_or("a Content-Length that is no number")?)
            }
            (None, Some(coding)) if self.version > 0 && coding.eq_ignore_ascii_case(b"chunked") => {
                BodyLength::Chunked
            }
            (None, Some(_)) => return Err("a Transfer-Encoding other than chunked"),
            (Some(_), Some(_)) => return Err("a body with two lengths"),
        };
        let has_more = lengths.next().is_some() || codings.next().is_some();
        if has_more { Err("a body with two lengths") } else { Ok(length) }
    }

    /// The target with a host: the authority of a CONNECT, or an absolute URI. `None` if the target is a path.
    pub(super) fn absolute_target(&self) -> Result<Option<AbsoluteTarget<'a>>, &'static str> {
        const NONE: &str = "a target that names no host";
        if self.is_connect() {
            let authority = Authority::parse(self.target.as_bytes()).ok_or(NONE)?;
            return Ok(Some(AbsoluteTarget { scheme: "", authority, rest: "" }));
        }
        if self.target.starts_with('/') || self.target == "*" {
            return Ok(None);
        }
        let (scheme, rest) = self.target.split_once("://").ok_or(NONE)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).ok_or(NONE)?;
        let authority = Authority::parse(authority.as_bytes()).ok_or(NONE)?;
        Ok(Some(AbsoluteTarget { scheme, authority, rest }))
    }
}

/// Parses a number of bytes.
fn parse_length(digits: &[u8]) -> Option<u64> {
    // from_str_radix accepts a sign.
    let text =
        core::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

/// A target with a host.
#[derive(Debug)]
pub(super) struct AbsoluteTarget<'a> {
    /// The scheme; empty for CONNECT.
    pub(super) scheme: &'a str,
    pub(super) authority: Authority,
    /// Path and query.
    pub(super) rest: &'a str,
}
