//! One permission rule: `TOOL`, `TOOL(PATTERN)` or `TOOL(FIELD=PATTERN)`.

use super::glob;
use super::tool_input::{FieldSyntax, InputField, ToolInput};
use crate::value::{BadValue, text_value};
use saggar_sys::text::one_line;
use std::fmt;
use std::str::FromStr;

/// The longest rule, in bytes.
const MAX_RULE_BYTES: usize = 1024;

/// The tools with a default field, to which a pattern without a field name applies.
const DEFAULT_FIELDS: [(&str, &str); 10] = [
    ("Bash", "command"),
    ("Edit", "file_path"),
    ("Glob", "path"),
    ("Grep", "path"),
    ("MultiEdit", "file_path"),
    ("NotebookEdit", "notebook_path"),
    ("Read", "file_path"),
    ("WebFetch", "url"),
    ("WebSearch", "query"),
    ("Write", "file_path"),
];

/// A pattern for tool calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    /// The name of the tool, in which a `*` matches any characters.
    tool: String,
    /// The field and its pattern; `None` matches every call of the tool.
    field_pattern: Option<(String, String)>,
}

impl PermissionRule {
    /// Whether the rule might match this call: used for denials and rules to ask.
    pub(super) fn may_match(&self, tool: &str, input: &ToolInput) -> bool {
        self.names_tool(tool)
            && self.field_pattern.as_ref().is_none_or(|(field, pattern)| match input.field(field) {
                InputField::Absent => false,
                InputField::Unreadable => true,
                InputField::Text(text) => {
                    let matches = |text: &str| glob::matches(pattern, text, |_| true);
                    matches(text)
                        || FieldSyntax::for_field(field)
                            .interpretations(text)
                            .iter()
                            .any(|text| matches(text))
                }
            })
    }

    /// Whether the rule definitely matches this call: used for allowances.
    pub(super) fn definitely_matches(&self, tool: &str, input: &ToolInput) -> bool {
        self.names_tool(tool)
            && self.field_pattern.as_ref().is_none_or(|(field, pattern)| {
                let InputField::Text(text) = input.field(field) else { return false };
                let reading = FieldSyntax::for_field(field);
                // An operator who wrote the exact text has read it.
                let is_exact = !pattern.contains('*') && pattern == text;
                is_exact
                    || reading.is_plain(text) && glob::matches(pattern, text, |c| reading.star_matches(c))
            })
    }

    /// Whether the rule matches every call of its tool.
    pub(crate) fn covers_whole_tool(&self) -> bool {
        self.field_pattern.is_none()
    }

    fn names_tool(&self, tool: &str) -> bool {
        glob::matches(&self.tool, tool, |_| true)
    }
}

impl FromStr for PermissionRule {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| {
            let text: String = text.chars().take(64).collect();
            BadValue(format!(
                "rule {text:?} {why}; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text"
            ))
        };
        if text.len() > MAX_RULE_BYTES {
            return Err(bad("is longer than 1024 bytes"));
        }
        // Rules are displayed, and some come from the agent's own folder.
        if one_line(text) != text {
            return Err(bad("has a character that cannot be shown"));
        }
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                (tool, Some(rest.strip_suffix(')').ok_or_else(|| bad("does not end in a bracket"))?))
            }
        };
        if tool.is_empty() {
            return Err(bad("names no tool"));
        }
        if tool.contains(|c: char| !c.is_ascii_graphic() || ")=,".contains(c)) {
            return Err(bad("has a character that no tool's name has"));
        }
        let tool = tool.to_owned();
        let Some(pattern) = pattern else { return Ok(PermissionRule { tool, field_pattern: None }) };
        if pattern.is_empty() {
            return Err(bad("has an empty pattern"));
        }
        let known = DEFAULT_FIELDS.iter().find(|(name, _)| *name == tool);
        let (field, pattern) = match known {
            Some((_, field)) => (*field, pattern),
            None => pattern
                .split_once('=')
                .filter(|(field, pattern)| is_field(field) && !pattern.is_empty())
                .ok_or_else(|| bad("does not name the field of this tool that its pattern matches"))?,
        };
        Ok(PermissionRule { tool, field_pattern: Some((field.to_owned(), pattern.to_owned())) })
    }
}

fn is_field(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

impl fmt::Display for PermissionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PermissionRule { tool, field_pattern: about } = self;
        let known = DEFAULT_FIELDS.iter().any(|(name, _)| name == tool);
        match about {
            None => f.write_str(tool),
            Some((_, pattern)) if known => write!(f, "{tool}({pattern})"),
            Some((field, pattern)) => write!(f, "{tool}({field}={pattern})"),
        }
    }
}

text_value!(PermissionRule, {
    "type": "string",
    "description": "a rule on the agent's questions: TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text",
    "maxLength": 1024,
    "pattern": "^[!-'*+\\--<>-~]+(\\(.+\\))?$"
});
