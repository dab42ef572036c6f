//! The input of a tool call, and the field that a pattern is matched with.

use serde_json::{Map, Value};
use std::borrow::Cow;

/// Longer texts, in bytes, are not matched: no allowance matches them, and every denial does.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Characters with which a shell command does more than run one program with literal arguments.
const SHELL_METACHARACTERS: [char; 16] =
    [';', '&', '|', '<', '>', '`', '$', '(', ')', '{', '}', '\n', '\r', '\\', '#', '\0'];

/// The input of a tool call; `None` if it is not a JSON object.
#[derive(Debug)]
pub(super) struct ToolInput(Option<Map<String, Value>>);

/// One field of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputField<'a> {
    Text(&'a str),
    Absent,
    /// The field exists, but rules cannot match it.
    Unreadable,
}

impl ToolInput {
    pub(super) fn parse(input: &str) -> Self {
        ToolInput(serde_json::from_str(input).ok())
    }

    pub(super) fn field(&self, name: &str) -> InputField<'_> {
        match self.0.as_ref().map(|fields| fields.get(name)) {
            Some(Some(Value::String(text))) if text.len() <= MAX_TEXT_BYTES => InputField::Text(text),
            Some(None | Some(Value::Null)) => InputField::Absent,
            _ => InputField::Unreadable,
        }
    }
}

/// The syntax of a field, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldSyntax {
    /// A shell command line.
    Command,
    /// A file path.
    Path,
    /// A URL.
    Url,
    /// Plain text, without further meaning.
    Text,
}

impl FieldSyntax {
    pub(super) fn for_field(field: &str) -> Self {
        match field {
            "command" => FieldSyntax::Command,
            "url" => FieldSyntax::Url,
            "path" | "file_path" | "notebook_path" => FieldSyntax::Path,
            _ => FieldSyntax::Text,
        }
    }

    /// Whether the text has only its literal meaning, so that a pattern can allow it.
    pub(super) fn is_plain(self, text: &str) -> bool {
        match self {
            FieldSyntax::Command => !text.contains(SHELL_METACHARACTERS),
            FieldSyntax::Path => !text.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")),
            FieldSyntax::Url => !text.contains(char::is_control),
            FieldSyntax::Text => true,
        }
    }

    /// Other meanings that the text might have, for denials.
    pub(super) fn interpretations(self, text: &str) -> Vec<Cow<'_, str>> {
        match self {
            FieldSyntax::Command => {
                let parts = text.split([';', '&', '|', '\n', '\r', '(', ')', '{', '}', '`']);
                parts.map(|part| Cow::Borrowed(part.trim())).collect()
            }
            FieldSyntax::Path => vec![Cow::Owned(normalize_path(text))],
            FieldSyntax::Url | FieldSyntax::Text => Vec::new(),
        }
    }

    /// Whether a star in the middle of a pattern of an allowance matches the character.
    pub(super) fn star_matches(self, c: char) -> bool {
        // Otherwise `https://*.example.org/` would match any host.
        self != FieldSyntax::Url || !"/\\?#@".contains(c)
    }
}

/// The path without `.`, `..` and doubled slashes. Symbolic links are not resolved.
fn normalize_path(path: &str) -> String {
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
