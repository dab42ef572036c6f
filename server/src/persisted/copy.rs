//! What the database has of a copy: the objects, and what else a server needs to resume from them.

use crate::cipher::SealedText;
use serde::{Deserialize, Serialize};

/// An object in the snapshot store. It never changes: a new copy has new objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredObject {
    /// The key, below the prefix of the store.
    pub key: String,
    /// In bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal digits.
    pub sha256: String,
}

/// The copy of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCopy {
    /// The snapshot of saggar.
    pub snapshot: StoredObject,
    /// The events of the bridge, compressed with gzip.
    pub events: StoredObject,
    /// The folder of the session: a tar archive, compressed with gzip.
    pub folder: StoredObject,
    /// Whether the folder is that of the session alone, and not that of its agent.
    pub has_own_folder: bool,
    /// The policy with the variables of the session, encrypted with the key of the server; `None` without variables.
    pub policy: Option<Sealed>,
    /// The hosts that clients have allowed for the session.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// The number of the last event.
    pub last_event: u64,
    /// The sequence number of the last message before the copy was begun.
    pub last_message: i64,
    /// Whether no turn was running.
    pub is_idle: bool,
    /// No event after the copy has a lower number: a restore has skipped those below.
    #[serde(default)]
    pub next_event: u64,
}

/// An encrypted text, as [`SealedText`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    ciphertext: String,
    nonce: String,
    tag: String,
    salt: String,
}

impl From<SealedText> for Sealed {
    fn from(text: SealedText) -> Self {
        Sealed { ciphertext: text.ciphertext, nonce: text.nonce, tag: text.tag, salt: text.salt }
    }
}

impl From<Sealed> for SealedText {
    fn from(text: Sealed) -> Self {
        SealedText { ciphertext: text.ciphertext, nonce: text.nonce, tag: text.tag, salt: text.salt }
    }
}

impl SessionCopy {
    /// The number of the first event after a restore, given what the database has recorded. If events can have been sent
    /// that neither the copy nor the database has, their numbers are skipped: no number is ever used twice.
    pub(super) fn next_event(&self, recorded: u64, last_message: i64) -> u64 {
        let last = recorded.max(self.last_event).max(self.next_event.saturating_sub(1));
        let is_complete = self.is_idle && recorded <= self.last_event && last_message == self.last_message;
        if is_complete { last + 1 } else { last.saturating_add(POSSIBLY_SENT) + 1 }
    }

    /// The keys of its objects.
    pub(super) fn keys(&self) -> [&str; 3] {
        [&self.snapshot.key, &self.events.key, &self.folder.key]
    }
}

/// More events than can have been sent and be in neither of them, as after a restart of the machine of a session.
const POSSIBLY_SENT: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_skipped_only_if_events_can_be_missing() {
        let object = |key: &str| StoredObject { key: key.into(), size: 1, sha256: String::new() };
        let copy = SessionCopy {
            snapshot: object("s"),
            events: object("e"),
            folder: object("f"),
            has_own_folder: false,
            policy: None,
            allowed_hosts: Vec::new(),
            last_event: 7,
            last_message: 2,
            is_idle: true,
            next_event: 0,
        };
        assert_eq!((copy.next_event(7, 2), copy.next_event(5, 2)), (8, 8));
        // A copy after a restore that has skipped numbers.
        let skipped = SessionCopy { next_event: 100, ..copy.clone() };
        assert_eq!((skipped.next_event(7, 2), skipped.next_event(120, 2)), (100, 120 + POSSIBLY_SENT + 1));
        for (copy, recorded, message) in
            [(copy.clone(), 9, 2), (copy.clone(), 7, 3), (SessionCopy { is_idle: false, ..copy }, 7, 2)]
        {
            assert_eq!(copy.next_event(recorded, message), recorded + POSSIBLY_SENT + 1);
        }
    }
}
