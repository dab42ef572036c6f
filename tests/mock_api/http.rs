//! As much of HTTP/1.1 as an API client needs: requests with a length or in chunks, answers likewise.

use std::io::{self, BufRead, Read, Write};

/// A request, whole.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// With the query.
    pub(super) target: String,
    /// The key of whoever asks.
    pub(super) key: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The target without its query.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// Reads the next request of a connection; `None` when the peer is done.
pub(super) fn read_request(from: &mut impl BufRead) -> io::Result<Option<Request>> {
    let first = read_line(from)?;
    if first.is_empty() {
        return Ok(None);
    }
    let mut words = first.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(bad("a request line without a target"));
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    let mut length = 0;
    let mut chunked = false;
    let mut key = None;
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header without a colon"))?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| bad("a length that is no number"))?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.trim().eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("x-api-key") {
            key = Some(value.trim().to_owned());
        }
    }
    let body = if chunked { read_chunks(from)? } else { read_exactly(from, length)? };
    Ok(Some(Request { method, target, key, body }))
}

/// Writes an answer of known length.
pub(super) fn respond(to: &mut impl Write, status: u16, kind: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        if status < 400 { "OK" } else { "Error" },
        body.len()
    );
    to.write_all(head.as_bytes())?;
    to.write_all(body)?;
    to.flush()
}

/// An answer whose length is not known when it starts: server-sent events.
#[derive(Debug)]
pub(super) struct EventStream<'a, W: Write>(&'a mut W);

impl<'a, W: Write> EventStream<'a, W> {
    /// Writes the head of the answer.
    pub(super) fn start(to: &'a mut W) -> io::Result<Self> {
        to.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
              transfer-encoding: chunked\r\n\r\n",
        )?;
        Ok(EventStream(to))
    }

    /// Writes one event, at once.
    pub(super) fn event(&mut self, name: &str, data: &serde_json::Value) -> io::Result<()> {
        let event = format!("event: {name}\ndata: {data}\n\n");
        write!(self.0, "{:x}\r\n{event}\r\n", event.len())?;
        self.0.flush()
    }

    /// Ends the answer; the connection can serve another request.
    pub(super) fn finish(self) -> io::Result<()> {
        self.0.write_all(b"0\r\n\r\n")?;
        self.0.flush()
    }
}

fn read_chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = read_line(from)?;
        let size = size.split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(size.trim(), 16).map_err(|_| bad("a chunk without a size"))?;
        body.extend(read_exactly(from, size)?);
        // Each chunk ends in an empty line; after the last one trailers may come before it.
        while !read_line(from)?.is_empty() {}
        if size == 0 {
            return Ok(body);
        }
    }
}

fn read_exactly(from: &mut impl BufRead, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if from.take(length).read_to_end(&mut bytes)? as u64 == length {
        Ok(bytes)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
