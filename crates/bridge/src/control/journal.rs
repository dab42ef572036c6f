//! The newest log entries of a sandbox. Entries are numbered, so that a client can ask for those after the last entry
//! that it has (KC-32).

use crate::proto::LogLevel;
use serde::Serialize;
use std::collections::VecDeque;

/// Most entries that are kept, and most bytes of text in all of them.
const MAX_ENTRIES: usize = 10_000;
const MAX_BYTES: usize = 4 << 20;
/// Longest text of one entry in bytes; the rest is cut off.
const MAX_TEXT: usize = 16 << 10;

/// One log entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JournalEntry {
    /// Number of the entry; counts from 1 without gaps.
    pub index: u64,
    /// Time of the entry in milliseconds since the Unix epoch.
    pub ts: u64,
    /// Severity.
    pub level: LogLevel,
    /// The message, at most 16 KiB.
    pub text: String,
}

/// The entries that are kept.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<JournalEntry>,
    bytes: usize,
    last_index: u64,
}

impl Journal {
    /// Appends an entry, and drops the oldest entries beyond the limits.
    pub fn append(&mut self, ts: u64, level: LogLevel, text: &str) {
        let text = match text.char_indices().take_while(|(at, char)| at + char.len_utf8() <= MAX_TEXT).last()
        {
            Some((at, char)) if text.len() > MAX_TEXT => &text[..at + char.len_utf8()],
            _ => text,
        };
        self.last_index += 1;
        self.bytes += text.len();
        self.entries.push_back(JournalEntry { index: self.last_index, ts, level, text: text.to_owned() });
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    /// The entries with a number above `after`, oldest first, at most `limit`.
    pub fn entries_after(&self, after: u64, limit: usize) -> Vec<&JournalEntry> {
        let begin = self.entries.partition_point(|entry| entry.index <= after);
        self.entries.range(begin..).take(limit).collect()
    }

    /// The number of the newest entry; 0 before the first entry.
    pub fn last_index(&self) -> u64 {
        self.last_index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kc_32_the_oldest_go_and_a_cursor_finds_its_place() {
        let mut journal = Journal::default();
        assert!(journal.entries_after(0, 10).is_empty());
        for count in 1..=20_000u64 {
            journal.append(count, LogLevel::Info, &count.to_string());
        }
        assert_eq!((journal.entries.len(), journal.last_index()), (MAX_ENTRIES, 20_000));
        let numbers = |after, limit| -> Vec<u64> {
            journal.entries_after(after, limit).iter().map(|entry| entry.index).collect()
        };
        assert_eq!(numbers(0, 2), [10_001, 10_002], "what is gone is skipped");
        assert_eq!(numbers(15_000, 3), [15_001, 15_002, 15_003]);
        assert_eq!(numbers(20_000, 3), [0; 0]);
        assert_eq!(numbers(u64::MAX, 3), [0; 0]);
    }

    #[test]
    fn memory_is_bounded_whatever_the_entries_are() {
        let mut journal = Journal::default();
        for _ in 0..1000 {
            journal.append(0, LogLevel::Info, &"é".repeat(MAX_TEXT));
        }
        assert!(journal.bytes <= MAX_BYTES && journal.entries.len() == MAX_BYTES / MAX_TEXT);
        assert_eq!((journal.entries[0].text.len(), journal.last_index()), (MAX_TEXT, 1000));
    }
}
