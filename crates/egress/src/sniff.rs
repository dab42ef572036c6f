//! Finds the name in the first bytes of a connection: the server name of TLS, or the host of an HTTP request. What follows
//! a request is inspected as the start of a connection is.
//!
//! A client can send one name to the resolver and another one to the server. Ambiguous bytes are rejected:
//! [`SniffResult::Malformed`].

mod http;
#[cfg(test)]
mod tests;
mod tls;

use super::request_body::BodyLength;
use super::request_head::{ParsedHead, parse_head};

/// Maximum number of bytes that are inspected.
pub(crate) const MAX_SNIFFED: usize = 64 << 10;

/// The result of the inspection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SniffResult {
    /// More bytes are needed.
    NeedMore,
    /// The client names its server.
    Name {
        /// The protocol of the client.
        protocol: ClientProtocol,
        /// A name in lower case and without a final dot, or in HTTP also an address without brackets; no port.
        name: String,
    },
    /// The client names no server: TLS or HTTP/1.0 without a name, or another protocol.
    NoName(ClientProtocol),
    /// Malformed or ambiguous bytes; the reason.
    Malformed(&'static str),
}

/// The protocol of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    /// TLS.
    Tls,
    /// HTTP/1.
    Http,
    /// Any other protocol, including HTTP/2 without TLS.
    Other,
}

/// Inspects `bytes`, all bytes since the start of the stream. A decision is final, whatever bytes follow. Until then
/// every call inspects all bytes again.
pub(crate) fn sniff(bytes: &[u8]) -> SniffResult {
    let is_full = bytes.len() >= MAX_SNIFFED;
    let bytes = bytes.get(..MAX_SNIFFED).unwrap_or(bytes);
    let sniffed = match bytes.first() {
        None => SniffResult::NeedMore,
        Some(&tls::HANDSHAKE) => tls::sniff(bytes),
        Some(_) => match tls::is_dropped_record(bytes) {
            None => SniffResult::NeedMore,
            Some(true) => SniffResult::Malformed("a TLS record before the ClientHello"),
            Some(false) => http::sniff(bytes),
        },
    };
    match sniffed {
        // No HTTP method is that long.
        SniffResult::NeedMore if is_full && bytes.iter().all(u8::is_ascii_graphic) => {
            SniffResult::NoName(ClientProtocol::Other)
        }
        SniffResult::NeedMore if is_full => SniffResult::Malformed("more than 64 KiB before a name"),
        sniffed => sniffed,
    }
}

/// Inspects the bytes after a decision of [`sniff`], in the same `bytes`: for the second ClientHello of a TLS client,
/// or for a host in bytes that only a lenient server treats as a request. `None` if nothing remains to be found.
pub(crate) fn sniff_further(bytes: &[u8], protocol: ClientProtocol) -> Option<SniffResult> {
    if bytes.len() >= MAX_SNIFFED {
        return None;
    }
    let further = match protocol {
        ClientProtocol::Http => return None,
        ClientProtocol::Tls => tls::sniff_second(bytes),
        ClientProtocol::Other => http::stray_host(bytes),
    };
    (!matches!(further, SniffResult::NoName(_))).then_some(further)
}

/// The end of the HTTP request at the start of `bytes`, whose host [`sniff`] has found: the size of its head, in bytes, and
/// the length of its body.
///
/// # Errors
/// The reason why servers may disagree about the end.
pub(crate) fn request_end(bytes: &[u8]) -> Result<(usize, BodyLength), &'static str> {
    match parse_head(bytes) {
        ParsedHead::Complete(head) => Ok((head.length, head.body_length()?)),
        ParsedHead::Incomplete => Err("an incomplete request"),
        ParsedHead::Malformed(why) => Err(why),
    }
}
