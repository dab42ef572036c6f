//! The agent's command and the range of host ids.

use super::value::{BadValue, text_value, value_schema};
use std::fmt;
use std::str::FromStr;

/// `FIRST-LAST`: the host ids from which a sandbox that root starts gets its own block of 65536.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The first id.
    pub first: u32,
    /// The last id, inclusive.
    pub last: u32,
}

impl IdRange {
    /// Above the ids that people, services, systemd and /etc/subuid use; below the maximum of a signed
    /// 32-bit integer.
    pub const DEFAULT: IdRange = IdRange { first: 1_879_048_192, last: 2_147_418_111 };
    /// The number of ids of one sandbox.
    pub const BLOCK_SIZE: u32 = 65536;
}

impl FromStr for IdRange {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue(format!("id range {text:?} {why}; write FIRST-LAST"));
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse::<u32>().ok()).flatten()
        };
        let ends = text.split_once('-').and_then(|(first, last)| Some((number(first)?, number(last)?)));
        let (first, last) = ends.ok_or_else(|| bad("is not two numbers"))?;
        if first < Self::BLOCK_SIZE {
            return Err(bad("reaches into the ids of people and services"));
        }
        // The kernel treats the highest id as "no id" (chown(2)).
        if last == u32::MAX {
            return Err(bad("ends in the id that means none"));
        }
        if last < first || last - first < Self::BLOCK_SIZE - 1 {
            return Err(bad("has no room for one block of 65536"));
        }
        Ok(IdRange { first, last })
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

text_value!(IdRange, { "type": "string", "description": "FIRST-LAST, host ids", "pattern": "^[0-9]+-[0-9]+$" });

/// A program and its arguments: a list, or one string that is split into words as by a shell, but never
/// passed to a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand(Vec<String>);

impl AgentCommand {
    /// The program and its arguments; never empty.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl TryFrom<Vec<String>> for AgentCommand {
    type Error = BadValue;

    fn try_from(words: Vec<String>) -> Result<Self, BadValue> {
        if words.first().is_none_or(String::is_empty) {
            return Err(BadValue("a command needs a program".into()));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(BadValue("a command cannot have a NUL".into()));
        }
        Ok(AgentCommand(words))
    }
}

impl FromStr for AgentCommand {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        shlex::split(text).ok_or_else(|| BadValue(format!("command {text:?} has an open quote")))?.try_into()
    }
}

impl fmt::Display for AgentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.iter().map(String::as_str);
        f.write_str(&shlex::Quoter::new().allow_nul(true).join(words).unwrap_or_default())
    }
}

impl<'de> serde::Deserialize<'de> for AgentCommand {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = AgentCommand;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command, as one text or as a list of words")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AgentCommand, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<AgentCommand, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                AgentCommand::try_from(words).map_err(serde::de::Error::custom)
            }
        }
        from.deserialize_any(Visitor)
    }
}

value_schema!(AgentCommand, {
    "anyOf": [{ "type": "string", "minLength": 1 }, { "type": "array", "items": { "type": "string" }, "minItems": 1 }]
});

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn refused<T: FromStr<Err = BadValue> + Debug>(texts: &[&str]) {
        for text in texts {
            assert!(text.parse::<T>().is_err(), "{text:?} is taken");
        }
    }

    #[test]
    fn id_ranges() {
        assert_eq!("65536-131071".parse::<IdRange>().unwrap().to_string(), "65536-131071");
        assert_eq!("1879048192-2147418111".parse(), Ok(IdRange::DEFAULT));
        refused::<IdRange>(&[
            "",
            "-",
            "1",
            "0-65535",
            "65535-200000",
            "65536-131070",
            "131071-65536",
            "65536-4294967295",
            "65536-4294967296",
            "65536--1",
            "+65536-200000",
            "65536 - 200000",
            "65536-200000-300000",
        ]);
    }

    #[test]
    fn commands_are_words_and_never_given_to_a_shell() {
        let words = |text: &str| text.parse::<AgentCommand>().unwrap().words().to_vec();
        assert_eq!(words("claude --x 'a b' \"c d\" e\\ f"), ["claude", "--x", "a b", "c d", "e f"]);
        assert_eq!(words("echo $HOME; rm *"), ["echo", "$HOME;", "rm", "*"]);
        refused::<AgentCommand>(&["", "  ", "''", "'open", "\"open", "a\0b"]);
    }
}
