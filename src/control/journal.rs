//! The last log entries of a sandbox, numbered, so that a reader can ask for those after the last that it has (KC-32).

use crate::bridge::proto::LogLevel;
use serde::Serialize;
use std::collections::VecDeque;

/// How many entries are kept, and how many bytes of text together.
const ENTRIES: usize = 10_000;
const BYTES: usize = 4 << 20;
/// How much of one text is kept.
const TEXT: usize = 16 << 10;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Counts from 1, without a gap.
    pub index: u64,
    /// Milliseconds since 1970.
    pub ts: u64,
    /// How loud.
    pub level: LogLevel,
    /// What was said.
    pub text: String,
}

/// The entries.
#[derive(Debug, Default)]
pub struct Journal {
    entries: VecDeque<Entry>,
    bytes: usize,
    last: u64,
}

impl Journal {
    /// Adds an entry at the end; the oldest make room for it.
    pub fn add(&mut self, ts: u64, level: LogLevel, text: &str) {
        let text = match text.char_indices().take_while(|(at, char)| at + char.len_utf8() <= TEXT).last() {
            Some((at, char)) if text.len() > TEXT => &text[..at + char.len_utf8()],
            _ => text,
        };
        self.last += 1;
        self.bytes += text.len();
        self.entries.push_back(Entry { index: self.last, ts, level, text: text.to_owned() });
        while self.entries.len() > ENTRIES || self.bytes > BYTES {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    /// The entries after number `after`, the oldest first, at most `limit`.
    pub fn after(&self, after: u64, limit: usize) -> Vec<&Entry> {
        let begin = self.entries.partition_point(|entry| entry.index <= after);
        self.entries.range(begin..).take(limit).collect()
    }

    /// The number of the newest entry; 0 when there was none.
    pub fn last(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kc_32_the_oldest_go_and_a_cursor_finds_its_place() {
        let mut journal = Journal::default();
        assert!(journal.after(0, 10).is_empty());
        for count in 1..=20_000u64 {
            journal.add(count, LogLevel::Info, &count.to_string());
        }
        assert_eq!((journal.entries.len(), journal.last()), (ENTRIES, 20_000));
        let numbers = |after, limit| -> Vec<u64> {
            journal.after(after, limit).iter().map(|entry| entry.index).collect()
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
            journal.add(0, LogLevel::Info, &"é".repeat(TEXT));
        }
        assert!(journal.bytes <= BYTES && journal.entries.len() == BYTES / TEXT);
        assert_eq!((journal.entries[0].text.len(), journal.last()), (TEXT, 1000));
    }
}
