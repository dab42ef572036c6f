//! What a call of a tool is about: the field of its input that a pattern is held against.

use serde_json::{Map, Value};
use std::borrow::Cow;

/// Longer texts are not read by rules: no allowance matches them, and every denial does.
const LONGEST: usize = 64 << 10;

/// Characters by which a shell does more than run one program with plain words.
const SHELL: [char; 16] =
    [';', '&', '|', '<', '>', '`', '$', '(', ')', '{', '}', '\n', '\r', '\\', '#', '\0'];

/// The input of a call.
#[derive(Debug)]
pub(super) struct Subject(Option<Map<String, Value>>);

/// One field of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Text(&'a str),
    Absent,
    /// It is there, and no rule can read it.
    Unreadable,
}

impl Subject {
    pub(super) fn of(input: &str) -> Self {
        Subject(serde_json::from_str(input).ok())
    }

    pub(super) fn field(&self, name: &str) -> Field<'_> {
        match self.0.as_ref().map(|fields| fields.get(name)) {
            Some(Some(Value::String(text))) if text.len() <= LONGEST => Field::Text(text),
            Some(None | Some(Value::Null)) => Field::Absent,
            _ => Field::Unreadable,
        }
    }
}

/// How a field of this name is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// A command line of a shell.
    Command,
    /// A path.
    Path,
    /// An address.
    Url,
    /// Plain text.
    Text,
}

impl Reading {
    pub(super) fn of(field: &str) -> Self {
        match field {
            "command" => Reading::Command,
            "url" => Reading::Url,
            "path" | "file_path" | "notebook_path" => Reading::Path,
            _ => Reading::Text,
        }
    }

    /// Whether the text means no more than it says, so that a pattern can permit it.
    pub(super) fn is_plain(self, text: &str) -> bool {
        match self {
            Reading::Command => !text.contains(SHELL),
            Reading::Path => !text.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")),
            Reading::Url => !text.contains(char::is_control),
            Reading::Text => true,
        }
    }

    /// Everything that the text might mean, beside itself: for a denial.
    pub(super) fn meanings(self, text: &str) -> Vec<Cow<'_, str>> {
        match self {
            Reading::Command => {
                let parts = text.split([';', '&', '|', '\n', '\r', '(', ')', '{', '}', '`']);
                parts.map(|part| Cow::Borrowed(part.trim())).collect()
            }
            Reading::Path => vec![Cow::Owned(straight(text))],
            Reading::Url | Reading::Text => Vec::new(),
        }
    }

    /// Which characters a star in the middle of a pattern takes, when the pattern permits.
    pub(super) fn star(self, c: char) -> bool {
        // Else `https://*.example.org/` would be any host at all.
        self != Reading::Url || !"/\\?#@".contains(c)
    }
}

/// The path without `.`, `..` and doubled slashes, as far as its text alone says.
fn straight(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}
