//! Encodes and decodes D-Bus messages (D-Bus Specification, "Type System" and "Message Protocol"), as far as systemd's
//! manager needs them. Pure; received messages are untrusted and limited in size.

use std::collections::VecDeque;

/// A value of a type that saggar sends or decodes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DbusValue {
    /// `y`
    Byte(u8),
    /// `b`
    Bool(bool),
    /// `i`
    I32(i32),
    /// `u`
    U32(u32),
    /// `x`
    I64(i64),
    /// `t`
    U64(u64),
    /// `d`
    Double(f64),
    /// `s`
    Text(String),
    /// `o`
    Path(String),
    /// `g`
    Signature(String),
    /// `a`: the signature of its elements, and the elements.
    Array(String, Vec<DbusValue>),
    /// `(…)`
    Struct(Vec<DbusValue>),
    /// `{…}`
    Entry(Box<(DbusValue, DbusValue)>),
    /// `v`
    Variant(Box<DbusValue>),
}

impl DbusValue {
    /// A string.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        DbusValue::Text(text.into())
    }

    /// An array of strings.
    pub(crate) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        DbusValue::Array("s".to_owned(), texts.into_iter().map(DbusValue::text).collect())
    }

    /// The signature of its type.
    pub(crate) fn signature(&self) -> String {
        let simple = match self {
            DbusValue::Byte(_) => "y",
            DbusValue::Bool(_) => "b",
            DbusValue::I32(_) => "i",
            DbusValue::U32(_) => "u",
            DbusValue::I64(_) => "x",
            DbusValue::U64(_) => "t",
            DbusValue::Double(_) => "d",
            DbusValue::Text(_) => "s",
            DbusValue::Path(_) => "o",
            DbusValue::Signature(_) => "g",
            DbusValue::Variant(_) => "v",
            DbusValue::Array(of, _) => return format!("a{of}"),
            DbusValue::Struct(fields) => return format!("({})", signature(fields)),
            DbusValue::Entry(pair) => return format!("{{{}{}}}", pair.0.signature(), pair.1.signature()),
        };
        simple.to_owned()
    }

    /// The text of a string, path or signature.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            DbusValue::Text(text) | DbusValue::Path(text) | DbusValue::Signature(text) => Some(text),
            DbusValue::Variant(inner) => inner.as_text(),
            _ => None,
        }
    }
}

/// The concatenated signatures of several values.
pub(crate) fn signature(values: &[DbusValue]) -> String {
    values.iter().map(DbusValue::signature).collect()
}

/// Message types of the D-Bus Specification.
pub(crate) const METHOD_CALL: u8 = 1;
pub(crate) const METHOD_RETURN: u8 = 2;
pub(crate) const ERROR: u8 = 3;
pub(crate) const SIGNAL: u8 = 4;

/// One D-Bus message.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct DbusMessage {
    /// The message type.
    pub kind: u8,
    /// The serial number, never 0.
    pub serial: u32,
    /// The serial number of the call that this message replies to.
    pub reply_to: Option<u32>,
    /// The object path.
    pub path: Option<String>,
    /// The interface.
    pub interface: Option<String>,
    /// The method or signal name.
    pub member: Option<String>,
    /// The error name.
    pub error: Option<String>,
    /// The bus name of the receiver.
    pub destination: Option<String>,
    /// Arguments.
    pub body: Vec<DbusValue>,
}

/// A writer that pads values by their position in the message.
#[derive(Default)]
struct DbusWriter(Vec<u8>);

impl DbusWriter {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.align(8);
        self.0.extend(number.to_le_bytes());
    }

    fn len(&mut self, len: usize) {
        // A message longer than the protocol allows is rejected by its receiver.
        self.u32(u32::try_from(len).unwrap_or(u32::MAX));
    }

    fn text(&mut self, text: &str) {
        self.len(text.len());
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn value(&mut self, value: &DbusValue) {
        match value {
            DbusValue::Byte(byte) => self.0.push(*byte),
            DbusValue::Bool(is) => self.u32(u32::from(*is)),
            DbusValue::I32(number) => self.u32(number.cast_unsigned()),
            DbusValue::U32(number) => self.u32(*number),
            DbusValue::I64(number) => self.u64(number.cast_unsigned()),
            DbusValue::U64(number) => self.u64(*number),
            DbusValue::Double(number) => self.u64(number.to_bits()),
            DbusValue::Text(text) | DbusValue::Path(text) => self.text(text),
            DbusValue::Signature(text) => self.signature(text),
            DbusValue::Variant(inner) => {
                self.signature(&inner.signature());
                self.value(inner);
            }
            DbusValue::Struct(fields) => {
                self.align(8);
                fields.iter().for_each(|field| self.value(field));
            }
            DbusValue::Entry(pair) => {
                self.align(8);
                self.value(&pair.0);
                self.value(&pair.1);
            }
            DbusValue::Array(of, elements) => {
                self.u32(0);
                let at = self.0.len();
                self.align(alignment(of.as_bytes().first().copied().unwrap_or(b'y')));
                let begin = self.0.len();
                elements.iter().for_each(|element| self.value(element));
                let len = u32::try_from(self.0.len() - begin).unwrap_or(u32::MAX);
                self.0[at - 4..at].copy_from_slice(&len.to_le_bytes());
            }
        }
    }
}

fn alignment(kind: u8) -> usize {
    match kind {
        b'y' | b'g' | b'v' => 1,
        b'x' | b't' | b'd' | b'(' | b'{' => 8,
        _ => 4,
    }
}

impl DbusMessage {
    /// The encoded message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = DbusWriter::default();
        self.body.iter().for_each(|value| body.value(value));
        let text = |code: u8, text: &Option<String>, path: bool| {
            let text = text.clone()?;
            Some((code, if path { DbusValue::Path(text) } else { DbusValue::Text(text) }))
        };
        let signature = signature(&self.body);
        let fields = [
            text(1, &self.path, true),
            text(2, &self.interface, false),
            text(3, &self.member, false),
            text(4, &self.error, false),
            self.reply_to.map(|serial| (5, DbusValue::U32(serial))),
            text(6, &self.destination, false),
            (!signature.is_empty()).then_some((8, DbusValue::Signature(signature))),
        ];
        let fields = fields.into_iter().flatten();
        let fields = fields.map(|(code, value)| {
            DbusValue::Struct(vec![DbusValue::Byte(code), DbusValue::Variant(Box::new(value))])
        });
        let mut message = DbusWriter(vec![b'l', self.kind, 0, 1]);
        message.len(body.0.len());
        message.u32(self.serial);
        message.value(&DbusValue::Array("(yv)".to_owned(), fields.collect()));
        message.align(8);
        message.0.extend(body.0);
        message.0
    }

    /// Parses the first message of `bytes`. Returns it and its length, or `None` if it is incomplete.
    ///
    /// # Errors
    /// The reason why the bytes are not a valid message.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        let Some(start) = bytes.get(..16) else { return Ok(None) };
        let big = match start[0] {
            b'l' => false,
            b'B' => true,
            _ => return Err("the byte order is neither l nor B"),
        };
        let number = |at: usize| number32(big, &start[at..at + 4]);
        let (body_len, serial, fields_len) = (number(4) as usize, number(8), number(12) as usize);
        if body_len > MAX_LENGTH || fields_len > MAX_LENGTH {
            return Err("it is longer than we take");
        }
        let head = (16 + fields_len).next_multiple_of(8);
        let Some(whole) = bytes.get(..head + body_len) else { return Ok(None) };
        let mut message = DbusMessage { kind: start[1], serial, ..DbusMessage::default() };
        let mut reader = DbusReader { bytes: &whole[..16 + fields_len], at: 12, big };
        let mut body_signature = String::new();
        let DbusValue::Array(_, fields) = reader.value(&mut b"a(yv)".iter().copied().collect(), 0)? else {
            return Err("its header is no array");
        };
        for field in fields {
            let DbusValue::Struct(pair) = field else { continue };
            let [DbusValue::Byte(code), DbusValue::Variant(value)] = &pair[..] else { continue };
            let text = || value.as_text().map(str::to_owned);
            match (code, &**value) {
                (1, _) => message.path = text(),
                (2, _) => message.interface = text(),
                (3, _) => message.member = text(),
                (4, _) => message.error = text(),
                (5, DbusValue::U32(serial)) => message.reply_to = Some(*serial),
                (6, _) => message.destination = text(),
                (8, DbusValue::Signature(text)) => body_signature.clone_from(text),
                _ => {}
            }
        }
        let mut kinds: VecDeque<u8> = body_signature.bytes().collect();
        let mut reader = DbusReader { bytes: &whole[head..], at: 0, big };
        while !kinds.is_empty() {
            message.body.push(reader.value(&mut kinds, 0)?);
        }
        Ok(Some((message, whole.len())))
    }
}

/// Maximum number of bytes of a header or a body; the manager's replies have a few hundred.
const MAX_LENGTH: usize = 1 << 20;

/// Maximum nesting of values.
const MAX_DEPTH: usize = 16;

fn number32(big: bool, bytes: &[u8]) -> u32 {
    let bytes = <[u8; 4]>::try_from(bytes).unwrap_or_default();
    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

struct DbusReader<'a> {
    bytes: &'a [u8],
    at: usize,
    big: bool,
}

const TRUNCATED: &str = "it ends in the middle of a value";

impl DbusReader<'_> {
    fn take(&mut self, len: usize) -> Result<&[u8], &'static str> {
        let taken = self.bytes.get(self.at..self.at.saturating_add(len)).ok_or(TRUNCATED)?;
        self.at += len;
        Ok(taken)
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.align(4);
        let big = self.big;
        Ok(number32(big, self.take(4)?))
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        self.align(8);
        let big = self.big;
        let bytes = <[u8; 8]>::try_from(self.take(8)?).unwrap_or_default();
        Ok(if big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    fn string(&mut self, len: usize) -> Result<String, &'static str> {
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| "a string is not UTF-8")?.to_owned();
        self.take(1)?;
        Ok(text)
    }

    fn signature(&mut self) -> Result<String, &'static str> {
        let len = self.take(1)?[0];
        self.string(usize::from(len))
    }

    /// Reads the next value. Its type is taken from the front of `kinds`.
    fn value(&mut self, kinds: &mut VecDeque<u8>, depth: usize) -> Result<DbusValue, &'static str> {
        if depth > MAX_DEPTH {
            return Err("it is nested too deep");
        }
        let kind = kinds.pop_front().ok_or("its signature ends too early")?;
        Ok(match kind {
            b'y' => DbusValue::Byte(self.take(1)?[0]),
            b'b' => DbusValue::Bool(self.u32()? != 0),
            b'i' => DbusValue::I32(self.u32()?.cast_signed()),
            b'u' | b'h' => DbusValue::U32(self.u32()?),
            b'n' | b'q' => {
                self.align(2);
                self.take(2)?;
                DbusValue::U32(0)
            }
            b'x' => DbusValue::I64(self.u64()?.cast_signed()),
            b't' => DbusValue::U64(self.u64()?),
            b'd' => DbusValue::Double(f64::from_bits(self.u64()?)),
            b's' => {
                let len = self.u32()? as usize;
                DbusValue::Text(self.string(len)?)
            }
            b'o' => {
                let len = self.u32()? as usize;
                DbusValue::Path(self.string(len)?)
            }
            b'g' => DbusValue::Signature(self.signature()?),
            b'v' => {
                let mut inner: VecDeque<u8> = self.signature()?.bytes().collect();
                DbusValue::Variant(Box::new(self.value(&mut inner, depth + 1)?))
            }
            b'(' => {
                self.align(8);
                let mut fields = Vec::new();
                while kinds.front().is_some_and(|kind| *kind != b')') {
                    fields.push(self.value(kinds, depth + 1)?);
                }
                kinds.pop_front().ok_or("its signature ends too early")?;
                DbusValue::Struct(fields)
            }
            b'{' => {
                self.align(8);
                let pair = (self.value(kinds, depth + 1)?, self.value(kinds, depth + 1)?);
                kinds.pop_front().ok_or("its signature ends too early")?;
                DbusValue::Entry(Box::new(pair))
            }
            b'a' => self.array(kinds, depth)?,
            _ => return Err("it has a type that we do not know"),
        })
    }

    fn array(&mut self, kinds: &mut VecDeque<u8>, depth: usize) -> Result<DbusValue, &'static str> {
        let of: VecDeque<u8> = kinds.drain(..one_type(kinds)?).collect();
        let len = self.u32()? as usize;
        self.align(alignment(of.front().copied().unwrap_or(b'y')));
        let end = self.at.saturating_add(len);
        if end > self.bytes.len() {
            return Err(TRUNCATED);
        }
        let mut elements = Vec::new();
        while self.at < end {
            elements.push(self.value(&mut of.clone(), depth + 1)?);
        }
        Ok(DbusValue::Array(String::from_utf8_lossy(&Vec::from(of)).into_owned(), elements))
    }
}

/// The length of the first complete type in a signature.
fn one_type(kinds: &VecDeque<u8>) -> Result<usize, &'static str> {
    let mut open = 0usize;
    for (at, kind) in kinds.iter().enumerate() {
        match kind {
            b'(' | b'{' => open += 1,
            b')' | b'}' => {
                open = open.checked_sub(1).ok_or("its signature has an unmatched closing bracket")?
            }
            b'a' => continue,
            _ => {}
        }
        if open == 0 {
            return Ok(at + 1);
        }
    }
    Err("its signature ends too early")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = DbusValue> {
        let leaf = prop_oneof![
            any::<u8>().prop_map(DbusValue::Byte),
            any::<bool>().prop_map(DbusValue::Bool),
            any::<i32>().prop_map(DbusValue::I32),
            any::<u64>().prop_map(DbusValue::U64),
            any::<i64>().prop_map(DbusValue::I64),
            "[a-z]{0,9}".prop_map(DbusValue::Text),
            Just(DbusValue::Path("/a/b".to_owned())),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                inner.clone().prop_map(|value| DbusValue::Variant(Box::new(value))),
                prop::collection::vec(inner.clone(), 1..4).prop_map(DbusValue::Struct),
                (inner, 0usize..4).prop_map(|(value, n)| DbusValue::Array(value.signature(), vec![value; n])),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(body in prop::collection::vec(any_value(), 0..4), serial in 1u32..) {
            let message = DbusMessage {
                kind: METHOD_CALL, serial, path: Some("/x".into()), member: Some("Do".into()), body, ..DbusMessage::default()
            };
            let bytes = message.encode();
            prop_assert_eq!(DbusMessage::parse(&bytes), Ok(Some((message, bytes.len()))));
            prop_assert_eq!(DbusMessage::parse(&bytes[..bytes.len() - 1]), Ok(None));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = DbusMessage::parse(&bytes);
            let mut like = b"l\x02\x00\x01\x20\x00\x00\x00\x01\x00\x00\x00\x20\x00\x00\x00".to_vec();
            like.extend(bytes);
            let _ = DbusMessage::parse(&like);
        }
    }
}
