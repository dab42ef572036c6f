//! Sandbox ids: checked once, then safe to use as a file name.

use crate::error::{Code, Error, Result};
use std::fmt;

/// Maximum length of an id in bytes, which leaves space for a suffix in a file name.
const MAX_LEN: usize = 128;

/// The id of a sandbox: 1 to 128 of `A-Z a-z 0-9 _ + - .`, not starting with `-` or `.`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SandboxId(String);

impl SandboxId {
    /// Checks `text` and creates an id from it.
    ///
    /// # Errors
    /// [`Code::Invalid`], with the reason.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Err(Error::new(Code::Invalid, format!("id {text:?}: {why}"))
                .hint("an id is 1 to 128 of A-Z a-z 0-9 _ + - . and starts with a letter, a digit, _ or +"))
        };
        if text.is_empty() {
            return bad("is empty");
        }
        if text.len() > MAX_LEN {
            return bad("is too long");
        }
        if text.starts_with(['-', '.']) {
            return bad("starts with - or .");
        }
        match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "_+-.".contains(*c))) {
            Some(c) => bad(&format!("has the character {c:?}")),
            None => Ok(SandboxId(text.to_owned())),
        }
    }

    /// A new random id: 32 hexadecimal digits.
    ///
    /// # Errors
    /// [`Code::System`] if the kernel returns no random bytes.
    pub fn random() -> Result<Self> {
        let mut bytes = [0u8; 16];
        crate::random::fill(&mut bytes).map_err(|e| Error::system("get random bytes for an id", e))?;
        Ok(SandboxId(crate::text::hex(&bytes)))
    }

    /// Whether [`SandboxId::random`] could have generated this id: the user gave the sandbox no name.
    pub fn is_random(&self) -> bool {
        self.0.len() == 32 && self.0.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first eight characters, as in `/tmp/ash-<short-id>.sock` (BP-02).
    pub fn short(&self) -> &str {
        &self.0[..self.0.len().min(8)]
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_ids_are_refused() {
        for id in ["", ".", "..", "../x", "a/b", "/abs", "-x", "a\n", "a b", "a\0", "ä", &"x".repeat(129)] {
            assert!(SandboxId::parse(id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn a_random_id_is_known_by_its_form() {
        assert!(SandboxId::random().unwrap().is_random());
        for named in
            ["web", "0123456789abcdef0123456789abcde", "0123456789ABCDEF0123456789abcdef", &"a".repeat(64)]
        {
            assert!(!SandboxId::parse(named).unwrap().is_random(), "{named}");
        }
    }

    #[test]
    fn ordinary_ids_pass_and_are_short() {
        for id in ["a", "A_b+c-d.e", "0123456789abcdef", &"x".repeat(128)] {
            assert_eq!(SandboxId::parse(id).unwrap().as_str(), id);
        }
        assert_eq!(SandboxId::parse("0123456789").unwrap().short(), "01234567");
        assert_ne!(SandboxId::random().unwrap(), SandboxId::random().unwrap());
    }
}
