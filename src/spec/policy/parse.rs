//! Bytes to a [`Document`]. Pure, and total: any bytes give a document or an error that names the line
//! and the key, in time proportional to their number.

use super::document::Document;
use super::schema;
use super::suggest;
use crate::error::{Code, Error, Result};
use std::ops::Range;
use std::path::Path;

/// The largest policy file, in bytes. The longest sensible one is a hundredth of this.
pub const MAX_BYTES: usize = 1 << 20;

/// The longest message that may quote a file.
const MAX_MESSAGE: usize = 400;

/// How a policy file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0
    Toml,
    /// JSON
    Json,
}

impl Format {
    /// The format of this file: JSON when its name ends in `.json` or its first visible byte is `{`, which
    /// no TOML begins with.
    pub fn of(path: &Path, bytes: &[u8]) -> Format {
        let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        if named || bytes.trim_ascii_start().first() == Some(&b'{') { Format::Json } else { Format::Toml }
    }
}

/// Where in a file something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// The line, from 1.
    pub(super) line: Option<usize>,
    /// What is wrong, with the key.
    pub(super) what: String,
}

/// Reads one document.
///
/// # Errors
/// [`Code::Invalid`], naming `source`, the line, the key, and for an unknown key the nearest known one.
pub fn parse(source: &str, format: Format, bytes: &[u8]) -> Result<Document> {
    text(bytes).and_then(|text| document(format, text)).map_err(|fault| error(source, fault))
}

/// The error for a fault in this file.
pub(super) fn error(source: &str, fault: Fault) -> Error {
    let what = printable(&fault.what);
    let message = match fault.line {
        Some(line) => format!("{source}:{line}: {what}"),
        None => format!("{source}: {what}"),
    };
    Error::new(Code::Invalid, message).hint("`saggar policy schema` lists every key and what it takes")
}

/// The bytes as text, if they can be a policy at all.
fn text(bytes: &[u8]) -> Result<&str, Fault> {
    let fault = |what: &str| Fault { line: None, what: what.to_owned() };
    if bytes.len() > MAX_BYTES {
        return Err(fault("is larger than 1 MiB"));
    }
    // An empty file is what a failed write leaves behind: to read it as "no restrictions" would be a trap.
    if bytes.trim_ascii().is_empty() {
        return Err(fault("is empty"));
    }
    std::str::from_utf8(bytes).map_err(|at| {
        let line = line_at(bytes, at.valid_up_to());
        Fault { line: Some(line), what: "is not UTF-8".into() }
    })
}

fn document(format: Format, text: &str) -> Result<Document, Fault> {
    match format {
        Format::Toml => {
            let fault = |key: &str, error: &toml::de::Error| Fault {
                line: error.span().map(|span: Range<usize>| line_at(text.as_bytes(), span.start)),
                what: describe(key, error.message()),
            };
            let reader = toml::Deserializer::parse(text).map_err(|error| fault(".", &error))?;
            serde_path_to_error::deserialize(reader)
                .map_err(|error| fault(&error.path().to_string(), error.inner()))
        }
        Format::Json => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let document = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
                let (key, inner) = (error.path().to_string(), error.inner());
                Fault { line: Some(inner.line()), what: describe(&key, without_place(&inner.to_string())) }
            })?;
            reader.end().map_err(|error| Fault {
                line: Some(error.line()),
                what: "has more text after its end".into(),
            })?;
            Ok(document)
        }
    }
}

/// The message of a parser, said of a key.
fn describe(key: &str, message: &str) -> String {
    // What stands beside no key is a fault of the syntax.
    if key == "." {
        return message.to_owned();
    }
    let keys = schema::keys();
    let is_unknown = message.starts_with("unknown field") && !keys.iter().any(|known| known == key);
    if !is_unknown {
        return format!("{key}: {message}");
    }
    match nearest_key(key, &keys) {
        Some(near) => format!("unknown key {key}, did you mean {near}"),
        None => format!("unknown key {key}"),
    }
}

/// The known key that this one was meant to be: a slip of the pen, or the right name in the wrong table.
fn nearest_key<'a>(key: &str, keys: &'a [String]) -> Option<&'a str> {
    fn last(key: &str) -> &str {
        key.rsplit('.').next().unwrap_or(key)
    }
    suggest::nearest(key, keys.iter().map(String::as_str)).or_else(|| {
        let name = suggest::nearest(last(key), keys.iter().map(|known| last(known)))?;
        keys.iter().map(String::as_str).find(|known| last(known) == name)
    })
}

/// The message of serde_json without the line and column at its end, which stand at the front of ours.
fn without_place(message: &str) -> &str {
    message.rfind(" at line ").map_or(message, |end| &message[..end])
}

/// The line of a key in a TOML text, from 1; the line of its table when the key itself is not found.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let table = toml::de::DeTable::parse(text).ok()?;
    let mut table = Some(table.get_ref());
    let mut found = None;
    for part in key.split('.') {
        let (name, value) = table?.iter().find(|(name, _)| name.get_ref() == part)?;
        found = Some(line_at(text.as_bytes(), name.span().start));
        table = value.get_ref().as_table();
    }
    found
}

/// The line, from 1, of the byte at `offset`.
fn line_at(bytes: &[u8], offset: usize) -> usize {
    1 + bytes.iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// The message on one line, of bounded length, without control characters: a file may quote anything, and
/// a terminal obeys what it is shown.
pub(super) fn printable(message: &str) -> String {
    let mut result = String::new();
    for (count, c) in message.chars().enumerate() {
        if count == MAX_MESSAGE {
            result.push('…');
            break;
        }
        match c {
            '\n' => result.push_str("; "),
            c if c.is_control() || is_reordering(c) => result.extend(c.escape_default()),
            c => result.push(c),
        }
    }
    result
}

/// Characters that make a terminal show a text in another order than it has (CVE-2021-42574).
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
