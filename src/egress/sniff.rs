//! The name in the first bytes of a connection: the server name of TLS, or the host of an HTTP request.
//!
//! A client can say one name to the resolver and another one to the server. Where the bytes can be read in two ways,
//! nothing is made of them: [`Sniffed::Wrong`].

mod http;
#[cfg(test)]
mod tests;
mod tls;

/// The most that is looked at.
pub const LIMIT: usize = 64 << 10;

/// What the first bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sniffed {
    /// Not decided: more bytes are needed.
    More,
    /// The client names its server.
    Name {
        /// In which protocol.
        protocol: Protocol,
        /// A name in lower case and without a dot at its end, or in HTTP also an address without brackets; no port.
        name: String,
    },
    /// The client names no server: TLS or HTTP/1.0 without a name, or another protocol.
    Nameless(Protocol),
    /// Malformed or ambiguous; what is wrong.
    Wrong(&'static str),
}

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TLS.
    Tls,
    /// HTTP/1.
    Http,
    /// Anything else, HTTP/2 without TLS too.
    Other,
}

/// Looks at `bytes`, all that came since the start of the stream. What is decided stays so, whatever follows; until then
/// every call looks at all of them again.
pub fn sniff(bytes: &[u8]) -> Sniffed {
    let is_full = bytes.len() >= LIMIT;
    let bytes = bytes.get(..LIMIT).unwrap_or(bytes);
    let sniffed = match bytes.first() {
        None => Sniffed::More,
        Some(&tls::HANDSHAKE) => tls::sniff(bytes),
        Some(_) => match tls::is_dropped_record(bytes) {
            None => Sniffed::More,
            Some(true) => Sniffed::Wrong("a TLS record before the ClientHello"),
            Some(false) => http::sniff(bytes),
        },
    };
    match sniffed {
        // No method is that long.
        Sniffed::More if is_full && bytes.iter().all(u8::is_ascii_graphic) => {
            Sniffed::Nameless(Protocol::Other)
        }
        Sniffed::More if is_full => Sniffed::Wrong("more than 64 KiB before a name"),
        sniffed => sniffed,
    }
}

/// What is still to be found behind what was sniffed, in `bytes` as [`sniff`] had them: the second hello of a TLS client,
/// or a host that a server may find in what is no request to us. `None` when there is nothing any more.
pub fn sniff_on(bytes: &[u8], protocol: Protocol) -> Option<Sniffed> {
    if bytes.len() >= LIMIT {
        return None;
    }
    let further = match protocol {
        Protocol::Http => return None,
        Protocol::Tls => tls::sniff_second(bytes),
        Protocol::Other => http::stray_host(bytes),
    };
    (!matches!(further, Sniffed::Nameless(_))).then_some(further)
}
