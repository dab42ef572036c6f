//! Finds the server name in a ClientHello (RFC 8446 section 4.1.2, RFC 6066 section 3).
//!
//! The parser is written here because it is small, and because existing crates skip bytes that they cannot parse: only
//! the server would see a second server name in an extension of a wrong length. With encrypted ClientHello (RFC 9849)
//! the name is the outer one, which is that of the server that is connected to.

use super::{ClientProtocol, MAX_SNIFFED, SniffResult};
use crate::authority;

/// The type of a record with handshake messages.
pub(super) const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const CLIENT_HELLO: u8 = 1;
/// Some servers accept a record with any major version below this one.
const MAX_MAJOR_VERSION: u8 = 0x10;
/// Maximum length of a record (RFC 8446 section 5.1).
const MAX_RECORD_LENGTH: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Whether these bytes start a record that servers accept and drop before a ClientHello: a change of cipher, or an
/// alert. `None` if more bytes are needed.
pub(super) fn is_dropped_record(bytes: &[u8]) -> Option<bool> {
    let (kind, rest) = bytes.split_first()?;
    let length = match *kind {
        CHANGE_CIPHER_SPEC => 1,
        ALERT => 2,
        _ => return Some(false),
    };
    let is_none = |at: usize, wrong: fn(u8) -> bool| rest.get(at).is_some_and(|byte| wrong(*byte));
    if is_none(0, |major| major >= MAX_MAJOR_VERSION) || is_none(2, |high| high != 0) {
        return Some(false);
    }
    rest.get(3).map(|low| *low == length)
}

pub(super) fn sniff(bytes: &[u8]) -> SniffResult {
    match client_hello(bytes) {
        Err(undecided) => undecided,
        Ok((hello, _)) => sniff_hello(&hello),
    }
}

/// The name in a second ClientHello, which a client sends after the server requested another key (RFC 8446 section
/// 4.1.4). [`SniffResult::NoName`] if another message follows the first.
pub(super) fn sniff_second(bytes: &[u8]) -> SniffResult {
    let Ok((_, mut rest)) = client_hello(bytes) else { return SniffResult::NeedMore };
    loop {
        match *rest {
            [CHANGE_CIPHER_SPEC, _, _, high, low, ref after @ ..] => {
                let length = usize::from(u16::from_be_bytes([high, low]));
                let Some(next) = after.get(length..) else { return SniffResult::NeedMore };
                rest = next;
            }
            [HANDSHAKE, _, _, _, _, CLIENT_HELLO, ..] => return sniff(rest),
            [HANDSHAKE, _, _, _, _] | [HANDSHAKE | CHANGE_CIPHER_SPEC, ..] | [] if rest.len() < 6 => {
                return SniffResult::NeedMore;
            }
            _ => return SniffResult::NoName(ClientProtocol::Tls),
        }
    }
}

fn sniff_hello(hello: &[u8]) -> SniffResult {
    match server_name(hello) {
        Some(Ok(Some(name))) => SniffResult::Name { protocol: ClientProtocol::Tls, name },
        Some(Ok(None)) => SniffResult::NoName(ClientProtocol::Tls),
        Some(Err(why)) => SniffResult::Malformed(why),
        None => SniffResult::Malformed("a malformed ClientHello"),
    }
}

/// The body of the first handshake message, joined from its records, and the bytes after them.
fn client_hello(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), SniffResult> {
    let (mut held, mut rest) = (Vec::new(), bytes);
    loop {
        let Some((header, after)) = rest.split_first_chunk::<5>() else { return Err(SniffResult::NeedMore) };
        let [kind, major, minor, high, low] = *header;
        // Some servers accept a ClientHello with any version in its record.
        if major != 3 && held.is_empty() {
            return Err(match after.first() {
                None if major < MAX_MAJOR_VERSION => SniffResult::NeedMore,
                Some(&CLIENT_HELLO) if major < MAX_MAJOR_VERSION => {
                    SniffResult::Malformed("a ClientHello of no version of TLS")
                }
                _ => SniffResult::NoName(ClientProtocol::Other),
            });
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || major != 3 || minor > 4 || !(1..=MAX_RECORD_LENGTH).contains(&length) {
            return Err(SniffResult::Malformed("a TLS record that is not a handshake"));
        }
        let is_whole = after.len() >= length;
        let (payload, after) = after.split_at_checked(length).unwrap_or((after, &[]));
        held.extend_from_slice(payload);
        match held.as_slice() {
            [CLIENT_HELLO, a, b, c, body @ ..] => {
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if length > MAX_SNIFFED {
                    return Err(SniffResult::Malformed("a ClientHello of more than 64 KiB"));
                }
                match body.split_at_checked(length) {
                    Some((body, [])) if is_whole => return Ok((body.to_vec(), after)),
                    Some((_, [_, ..])) => {
                        return Err(SniffResult::Malformed("a ClientHello that is not alone"));
                    }
                    _ => {}
                }
            }
            [CLIENT_HELLO, ..] | [] => {}
            _ => return Err(SniffResult::Malformed("a handshake that begins without a ClientHello")),
        }
        rest = after;
    }
}

/// The server name in a ClientHello; `None` if it is malformed.
fn server_name(hello: &[u8]) -> Option<Result<Option<String>, &'static str>> {
    let mut hello = TlsReader(hello);
    let (_version, _random) = (hello.number()?, hello.take(32)?);
    let (_session, _suites, _compressions) = (hello.short()?, hello.long()?, hello.short()?);
    if hello.0.is_empty() {
        return Some(Ok(None));
    }
    let mut extensions = TlsReader(hello.long()?);
    hello.end()?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, data) = (extensions.number()?, extensions.long()?);
        if kind == SERVER_NAME && found.replace(data).is_some() {
            return Some(Err("two server names"));
        }
    }
    let Some(data) = found else { return Some(Ok(None)) };
    let mut data = TlsReader(data);
    let mut list = TlsReader(data.long()?);
    data.end()?;
    let (kind, name) = (list.byte()?, list.long()?);
    if !list.0.is_empty() {
        return Some(Err("two server names"));
    }
    let name = (kind == HOST_NAME).then(|| authority::parse_name(name)).flatten();
    Some(name.map(Some).ok_or("a server name that is no name"))
}

/// The unread rest of a message.
struct TlsReader<'a>(&'a [u8]);

impl<'a> TlsReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|two| u16::from_be_bytes(*two))
    }

    /// Takes bytes with a one-byte length.
    fn short(&mut self) -> Option<&'a [u8]> {
        let count = self.byte()?;
        self.take(count.into())
    }

    /// Takes bytes with a two-byte length.
    fn long(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(count.into())
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
