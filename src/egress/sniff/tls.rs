//! The server name of a ClientHello (RFC 8446 section 4.1.2, RFC 6066 section 3).
//!
//! Written out, since it is little, and since the crates for it skip what they cannot read: a second server name in an
//! extension of a wrong length would be seen by a server alone. With encrypted ClientHello (RFC 9849) the name is the
//! outer one, which is that of the server that is dialled.

use super::{LIMIT, Protocol, Sniffed};
use crate::egress::authority;

/// The type of a record with handshake messages.
pub(super) const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const CLIENT_HELLO: u8 = 1;
/// Servers are known that take a record of any version below this one.
const MAJORS: u8 = 0x10;
/// RFC 8446 section 5.1.
const LONGEST_RECORD: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Whether these bytes begin as a record does that servers take before a ClientHello, and drop: of a change of the
/// cipher, or of an alert; `None` where they end before that is to be seen.
pub(super) fn is_dropped_record(bytes: &[u8]) -> Option<bool> {
    let (kind, rest) = bytes.split_first()?;
    let length = match *kind {
        CHANGE_CIPHER_SPEC => 1,
        ALERT => 2,
        _ => return Some(false),
    };
    let is_none = |at: usize, wrong: fn(u8) -> bool| rest.get(at).is_some_and(|byte| wrong(*byte));
    if is_none(0, |major| major >= MAJORS) || is_none(2, |high| high != 0) {
        return Some(false);
    }
    rest.get(3).map(|low| *low == length)
}

pub(super) fn sniff(bytes: &[u8]) -> Sniffed {
    match message(bytes) {
        Err(undecided) => undecided,
        Ok((hello, _)) => named(&hello),
    }
}

/// What a second ClientHello says, which follows when a server has asked for another key (RFC 8446 section 4.1.4).
/// [`Sniffed::Nameless`] when something else follows the first.
pub(super) fn sniff_second(bytes: &[u8]) -> Sniffed {
    let Ok((_, mut rest)) = message(bytes) else { return Sniffed::More };
    loop {
        match *rest {
            [CHANGE_CIPHER_SPEC, _, _, high, low, ref after @ ..] => {
                let length = usize::from(u16::from_be_bytes([high, low]));
                let Some(next) = after.get(length..) else { return Sniffed::More };
                rest = next;
            }
            [HANDSHAKE, _, _, _, _, CLIENT_HELLO, ..] => return sniff(rest),
            [HANDSHAKE, _, _, _, _] | [HANDSHAKE | CHANGE_CIPHER_SPEC, ..] | [] if rest.len() < 6 => {
                return Sniffed::More;
            }
            _ => return Sniffed::Nameless(Protocol::Tls),
        }
    }
}

fn named(hello: &[u8]) -> Sniffed {
    match server_name(hello) {
        Some(Ok(Some(name))) => Sniffed::Name { protocol: Protocol::Tls, name },
        Some(Ok(None)) => Sniffed::Nameless(Protocol::Tls),
        Some(Err(why)) => Sniffed::Wrong(why),
        None => Sniffed::Wrong("a malformed ClientHello"),
    }
}

/// The body of the first handshake message, out of the records that it is cut into; and what follows those.
fn message(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), Sniffed> {
    let (mut held, mut rest) = (Vec::new(), bytes);
    loop {
        let Some((header, after)) = rest.split_first_chunk::<5>() else { return Err(Sniffed::More) };
        let [kind, major, minor, high, low] = *header;
        // Some servers read a hello of whatever version its record says that it has.
        if major != 3 && held.is_empty() {
            return Err(match after.first() {
                None if major < MAJORS => Sniffed::More,
                Some(&CLIENT_HELLO) if major < MAJORS => Sniffed::Wrong("a ClientHello of no version of TLS"),
                _ => Sniffed::Nameless(Protocol::Other),
            });
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || major != 3 || minor > 4 || !(1..=LONGEST_RECORD).contains(&length) {
            return Err(Sniffed::Wrong("a TLS record that is none of a handshake"));
        }
        let is_whole = after.len() >= length;
        let (payload, after) = after.split_at_checked(length).unwrap_or((after, &[]));
        held.extend_from_slice(payload);
        match held.as_slice() {
            [CLIENT_HELLO, a, b, c, body @ ..] => {
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if length > LIMIT {
                    return Err(Sniffed::Wrong("a ClientHello of more than 64 KiB"));
                }
                match body.split_at_checked(length) {
                    Some((body, [])) if is_whole => return Ok((body.to_vec(), after)),
                    Some((_, [_, ..])) => return Err(Sniffed::Wrong("a ClientHello that is not alone")),
                    _ => {}
                }
            }
            [CLIENT_HELLO, ..] | [] => {}
            _ => return Err(Sniffed::Wrong("a handshake that begins without a ClientHello")),
        }
        rest = after;
    }
}

/// The name that a ClientHello asks for; nothing when it is malformed.
fn server_name(hello: &[u8]) -> Option<Result<Option<String>, &'static str>> {
    let mut hello = Fields(hello);
    let (_version, _random) = (hello.number()?, hello.take(32)?);
    let (_session, _suites, _compressions) = (hello.short()?, hello.long()?, hello.short()?);
    if hello.0.is_empty() {
        return Some(Ok(None));
    }
    let mut extensions = Fields(hello.long()?);
    hello.end()?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, data) = (extensions.number()?, extensions.long()?);
        if kind == SERVER_NAME && found.replace(data).is_some() {
            return Some(Err("two server names"));
        }
    }
    let Some(data) = found else { return Some(Ok(None)) };
    let mut data = Fields(data);
    let mut list = Fields(data.long()?);
    data.end()?;
    let (kind, name) = (list.byte()?, list.long()?);
    if !list.0.is_empty() {
        return Some(Err("two server names"));
    }
    let name = (kind == HOST_NAME).then(|| authority::name(name)).flatten();
    Some(name.map(Some).ok_or("a server name that is no name"))
}

/// What is left of a message, taken field by field.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
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

    /// Bytes with their count in one byte before them.
    fn short(&mut self) -> Option<&'a [u8]> {
        let count = self.byte()?;
        self.take(count.into())
    }

    /// Bytes with their count in two bytes before them.
    fn long(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(count.into())
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
