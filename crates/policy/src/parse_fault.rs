//! A fault of a policy file: its line, and a message with its key.

use super::schema;
use super::suggest;
use super::value_message::plain_message;

/// A fault in a policy file, and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParseFault {
    /// The line, counted from 1.
    pub(super) line: Option<usize>,
    /// The fault, with the key.
    pub(super) message: String,
}

/// Formats the message of a parser for a key.
pub(super) fn describe(key: &str, message: &str) -> String {
    let message = &plain_message(message);
    // A fault without a key is a syntax error.
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

/// The known key that an unknown one most likely means: the right name in the wrong table, or a
/// misspelling, in its own table first.
fn nearest_key<'a>(key: &str, keys: &'a [String]) -> Option<&'a str> {
    fn split(key: &str) -> (&str, &str) {
        key.rsplit_once('.').unwrap_or(("", key))
    }
    let (table, name) = split(key);
    let known = || keys.iter().map(|known| (known.as_str(), split(known)));
    let full = |near: &str| known().find(|(_, (_, name))| *name == near).map(|(known, _)| known);
    let near_in = |table: &str| {
        let near = suggest::nearest(name, known().filter(|(_, at)| at.0 == table).map(|(_, at)| at.1))?;
        known().find(|(_, at)| *at == (table, near)).map(|(known, _)| known)
    };
    full(name)
        .or_else(|| near_in(table))
        .or_else(|| {
            suggest::nearest(key, known().map(|(_, (table, _))| table).filter(|table| !table.is_empty()))
        })
        .or_else(|| full(suggest::nearest(name, known().map(|(_, (_, name))| name))?))
}

/// The message of serde_json without the line and column at its end; our messages begin with the line.
pub(super) fn strip_position(message: &str) -> &str {
    message.rfind(" at line ").map_or(message, |end| &message[..end])
}

/// The line, counted from 1, of the byte at `offset`.
pub(super) fn line_at(bytes: &[u8], offset: usize) -> usize {
    1 + bytes.iter().take(offset).filter(|byte| **byte == b'\n').count()
}
