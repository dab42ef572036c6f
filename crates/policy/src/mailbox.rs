//! The mailbox of a run (saggar-mailbox(7)): which run it is, and the name that the sandbox has in it.

use super::value::{BadValue, number_value, text_value};
use saggar_mailbox::message::check_agent_name;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// The number of a run; the first one is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunNumber(NonZeroU64);

impl RunNumber {
    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl FromStr for RunNumber {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain
            .then(|| text.parse().ok())
            .flatten()
            .map(RunNumber)
            .ok_or_else(|| BadValue(format!("run {text:?} is not a number; the first run is 1")))
    }
}

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

number_value!(RunNumber, "a number", { "type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+$" });

/// The name of an agent in a run: 1 to 64 letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxName(String);

impl MailboxName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MailboxName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match check_agent_name(text) {
            Ok(()) => Ok(MailboxName(text.to_owned())),
            Err(error) => Err(BadValue(match error.hint() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            })),
        }
    }
}

impl fmt::Display for MailboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(MailboxName, { "type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_number_from_1() {
        assert_eq!("12".parse::<RunNumber>().unwrap().get(), 12);
        for text in ["", "0", "-1", "+1", "1.0", "one", "18446744073709551616"] {
            let refusal = text.parse::<RunNumber>().unwrap_err().to_string();
            assert!(refusal.contains("the first run is 1"), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_name_is_that_of_an_agent() {
        assert_eq!("claude-2".parse::<MailboxName>().unwrap().as_str(), "claude-2");
        for text in ["", "a b", "../x", "-a", "a/b", ".a"] {
            assert!(
                text.parse::<MailboxName>().unwrap_err().to_string().contains("invalid agent name"),
                "{text}"
            );
        }
    }
}
