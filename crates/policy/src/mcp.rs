//! The sessions that an MCP client outside can use (saggar-mcp(1)).

use super::value::{BadValue, text_value};
use saggar_sys::id::SandboxId;
use std::fmt;
use std::str::FromStr;

/// Names of sessions: one name, or a beginning with a final `*`, which stands for any rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPattern {
    text: String,
    is_prefix: bool,
}

impl SessionPattern {
    /// Whether this is the name of a session that it stands for.
    pub fn matches(&self, session: &str) -> bool {
        if self.is_prefix { session.starts_with(&self.text) } else { session == self.text }
    }

    /// Whether it stands for every session that `other` stands for.
    pub fn covers(&self, other: &SessionPattern) -> bool {
        self == other || self.is_prefix && other.text.starts_with(&self.text)
    }
}

impl FromStr for SessionPattern {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let prefix = text.strip_suffix('*');
        let name = prefix.unwrap_or(text);
        if !(name.is_empty() && prefix.is_some()) {
            SandboxId::parse(name).map_err(|error| BadValue(format!("session {text:?}: {error}")))?;
        }
        Ok(SessionPattern { text: name.to_owned(), is_prefix: prefix.is_some() })
    }
}

impl fmt::Display for SessionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_prefix { "*" } else { "" })
    }
}

text_value!(SessionPattern, { "type": "string", "pattern": "^([A-Za-z0-9_+][A-Za-z0-9_+.-]{0,127}[*]?|[*])$" });

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> SessionPattern {
        text.parse().unwrap()
    }

    #[test]
    fn a_pattern_is_a_name_or_its_beginning() {
        for (text, right, wrong) in [
            ("dev", &["dev"][..], &["dev2", "de", "Dev", "*"][..]),
            ("ci-*", &["ci-", "ci-7"][..], &["ci", "xci-7"][..]),
            ("*", &["dev", "ci-7"][..], &[][..]),
        ] {
            assert!(right.iter().all(|session| pattern(text).matches(session)), "{text}");
            assert!(!wrong.iter().any(|session| pattern(text).matches(session)), "{text}");
            assert_eq!(pattern(text).to_string(), text);
        }
        for text in ["", "a*b", "**", "../x", "-a", "a b", "a/*", ".*"] {
            let refusal = text.parse::<SessionPattern>().unwrap_err().to_string();
            assert!(refusal.contains("session"), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_pattern_covers_what_it_stands_for() {
        for (wide, narrow) in [("*", "a"), ("*", "*"), ("a*", "a"), ("a*", "ab*"), ("a", "a")] {
            assert!(pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
        for (wide, narrow) in [("a", "a*"), ("a", "b"), ("ab*", "a*"), ("ab*", "a")] {
            assert!(!pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
    }
}
