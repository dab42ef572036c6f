//! One rule: `TOOL`, `TOOL(PATTERN)` or `TOOL(FIELD=PATTERN)`.

use super::glob;
use super::subject::{Field, Reading, Subject};
use crate::spec::policy::value::{BadValue, text_value};
use crate::text::line;
use std::fmt;
use std::str::FromStr;

/// The longest rule, in bytes.
const LONGEST: usize = 1024;

/// Tools whose calls are about one field, so that a pattern needs no name of it.
const FIELDS: [(&str, &str); 10] = [
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

/// Which calls a rule speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name of the tool, in which a `*` stands for any characters.
    tool: String,
    /// The field and its pattern, when the rule speaks of some calls only.
    about: Option<(String, String)>,
}

impl Rule {
    /// Whether this call might be one of those: for what takes away.
    pub(super) fn may_match(&self, tool: &str, subject: &Subject) -> bool {
        self.is_of(tool)
            && self.about.as_ref().is_none_or(|(field, pattern)| match subject.field(field) {
                Field::Absent => false,
                Field::Unreadable => true,
                Field::Text(text) => {
                    let matches = |text: &str| glob::matches(pattern, text, |_| true);
                    matches(text) || Reading::of(field).meanings(text).iter().any(|text| matches(text))
                }
            })
    }

    /// Whether this call is plainly one of those: for what gives.
    pub(super) fn surely_matches(&self, tool: &str, subject: &Subject) -> bool {
        self.is_of(tool)
            && self.about.as_ref().is_none_or(|(field, pattern)| {
                let Field::Text(text) = subject.field(field) else { return false };
                let reading = Reading::of(field);
                // What stands there word for word is what the operator has read.
                let is_exact = !pattern.contains('*') && pattern == text;
                is_exact || reading.is_plain(text) && glob::matches(pattern, text, |c| reading.star(c))
            })
    }

    /// Whether it speaks of every call of its tool.
    pub(in crate::spec::policy) fn is_whole(&self) -> bool {
        self.about.is_none()
    }

    fn is_of(&self, tool: &str) -> bool {
        glob::matches(&self.tool, tool, |_| true)
    }
}

impl FromStr for Rule {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| {
            let text: String = text.chars().take(64).collect();
            BadValue(format!(
                "rule {text:?} {why}; write TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text"
            ))
        };
        if text.len() > LONGEST {
            return Err(bad("is longer than 1024 bytes"));
        }
        // Rules are shown, and some come from the agent's own folder.
        if line(text) != text {
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
        let Some(pattern) = pattern else { return Ok(Rule { tool, about: None }) };
        if pattern.is_empty() {
            return Err(bad("has an empty pattern"));
        }
        let known = FIELDS.iter().find(|(name, _)| *name == tool);
        let (field, pattern) = match known {
            Some((_, field)) => (*field, pattern),
            None => pattern
                .split_once('=')
                .filter(|(field, pattern)| is_field(field) && !pattern.is_empty())
                .ok_or_else(|| bad("does not say which field of this tool its pattern is for"))?,
        };
        Ok(Rule { tool, about: Some((field.to_owned(), pattern.to_owned())) })
    }
}

fn is_field(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { tool, about } = self;
        let known = FIELDS.iter().any(|(name, _)| name == tool);
        match about {
            None => f.write_str(tool),
            Some((_, pattern)) if known => write!(f, "{tool}({pattern})"),
            Some((field, pattern)) => write!(f, "{tool}({field}={pattern})"),
        }
    }
}

text_value!(Rule, {
    "type": "string",
    "description": "a rule on the agent's questions: TOOL, Bash(PATTERN) or TOOL(FIELD=PATTERN), where * is any text",
    "maxLength": 1024,
    "pattern": "^[!-'*+\\--<>-~]+(\\(.+\\))?$"
});
