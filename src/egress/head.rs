//! The head of an HTTP/1 request (RFC 9112), read strictly: what two servers could read in two ways is refused.

use super::authority::Authority;

/// More headers than any client sends.
const HEADERS: usize = 128;

/// What the first bytes of a request are.
#[derive(Debug)]
pub(super) enum Read<'a> {
    /// The head has not ended.
    More,
    /// All of it.
    Whole(Head<'a>),
    /// It is none.
    Wrong(&'static str),
}

/// A request without its body.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub(super) version: u8,
    /// In their order, each with its name as it is written.
    pub(super) headers: Vec<(&'a str, &'a [u8])>,
    /// The bytes of the head.
    pub(super) length: usize,
}

/// Reads a head.
pub(super) fn read(bytes: &[u8]) -> Read<'_> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Read::More,
        Err(error) => return Read::Wrong(why(error)),
    };
    // Some servers end a line there, and some do not.
    let lines = bytes.get(..length).and_then(|head| head.strip_suffix(b"\n")).unwrap_or_default();
    if !lines.split(|byte| *byte == b'\n').all(|line| line.ends_with(b"\r")) {
        return Read::Wrong("a line that does not end as lines do");
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Read::Wrong("a request line that is none");
    };
    let headers = request.headers.iter().map(|header| (header.name, header.value)).collect();
    Read::Whole(Head { method, target, version, headers, length })
}

fn why(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header with a name that is none",
        httparse::Error::HeaderValue => "a header with a byte that no header has",
        httparse::Error::NewLine => "a line that does not end as lines do",
        httparse::Error::TooManyHeaders => "more than 128 headers",
        httparse::Error::Version => "a version of HTTP that is none",
        httparse::Error::Status | httparse::Error::Token => "a request line that is none",
    }
}

impl<'a> Head<'a> {
    /// Whether it asks for a tunnel.
    pub(super) fn is_connect(&self) -> bool {
        self.method == "CONNECT"
    }

    /// The values of every header of that name.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |header| header.0.eq_ignore_ascii_case(name)).map(|header| header.1)
    }

    /// What its one Host header says.
    pub(super) fn host(&self) -> Result<Option<Authority>, &'static str> {
        let mut values = self.values("host");
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err("two Host headers");
        }
        Authority::parse(value.trim_ascii()).map(Some).ok_or("a Host header that is no host")
    }

    /// What its target names: the authority of a CONNECT, or of an absolute URI. `None` for a target that is a path.
    pub(super) fn named(&self) -> Result<Option<Named<'a>>, &'static str> {
        const NONE: &str = "a target that names no host";
        if self.is_connect() {
            let authority = Authority::parse(self.target.as_bytes()).ok_or(NONE)?;
            return Ok(Some(Named { scheme: "", authority, rest: "" }));
        }
        if self.target.starts_with('/') || self.target == "*" {
            return Ok(None);
        }
        let (scheme, rest) = self.target.split_once("://").ok_or(NONE)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).ok_or(NONE)?;
        let authority = Authority::parse(authority.as_bytes()).ok_or(NONE)?;
        Ok(Some(Named { scheme, authority, rest }))
    }
}

/// A target with a host.
#[derive(Debug)]
pub(super) struct Named<'a> {
    /// Empty for CONNECT.
    pub(super) scheme: &'a str,
    pub(super) authority: Authority,
    /// Path and query.
    pub(super) rest: &'a str,
}
