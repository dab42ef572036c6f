//! What the mailbox needs of its storage. [`crate::FileStore`] is the implementation on disk.

use crate::error::Result;
use crate::message::{Message, MessageType, Signal};
use std::collections::BTreeMap;

/// Most messages of a page.
pub const PAGE_MESSAGES: usize = 100;
/// About the most bytes of a page, as JSON. A page has at least one message, which may be larger.
pub const PAGE_BYTES: u64 = 1 << 20;
/// Most unreadable lines that a page describes; it counts the others.
pub const PAGE_UNREADABLE: usize = 100;

/// The place of a message in the order of the mailbox. It does not change while the message is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Number of the segment, from 1.
    pub segment: u32,
    /// Number of the line in the segment, from 0.
    pub line: u32,
}

/// The result of [`Store::append`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// The message is stored durably: it survives a crash of the machine.
    Stored {
        /// Id of the message.
        id: String,
    },
    /// The mailbox has a message with this id and signal already (AM-03); nothing was stored.
    Duplicate {
        /// Id of the message.
        id: String,
    },
}

/// A line of the file that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableLine {
    /// Name of the file.
    pub file: String,
    /// Number of the line, from 1.
    pub line: u64,
    /// Why it is no message.
    pub reason: String,
}

/// Consecutive messages of the mailbox, oldest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// At most [`PAGE_MESSAGES`], and about [`PAGE_BYTES`].
    pub messages: Vec<Message>,
    /// Position of the last message; `None` if the page is empty.
    pub last: Option<Position>,
    /// Whether another page follows.
    pub more: bool,
    /// Messages were removed before the agent received them: the page begins with the oldest retained message.
    pub gap: bool,
    /// The first [`PAGE_UNREADABLE`] lines that are no messages.
    pub unreadable: Vec<UnreadableLine>,
    /// The number of lines that are no messages.
    pub unreadable_count: u64,
}

/// Counts of the retained messages (AM-17). The maps are sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of messages.
    pub total: u64,
    /// Whether any message signals DONE.
    pub done: bool,
    /// Number of PASS signals.
    pub pass: u64,
    /// Number of FAIL signals.
    pub fail: u64,
    /// Number of messages by sender.
    pub by_agent: BTreeMap<String, u64>,
    /// Number of messages by the name of their type.
    pub by_type: BTreeMap<&'static str, u64>,
    /// Number of lines that are no messages.
    pub unreadable: u64,
}

impl Statistics {
    /// Counts a message.
    pub fn add(&mut self, from: &str, message_type: MessageType, signal: Option<Signal>) {
        self.total += 1;
        match signal {
            Some(Signal::Done) => self.done = true,
            Some(Signal::Pass) => self.pass += 1,
            Some(Signal::Fail) => self.fail += 1,
            None => {}
        }
        match self.by_agent.get_mut(from) {
            Some(count) => *count += 1,
            None => {
                self.by_agent.insert(from.to_owned(), 1);
            }
        }
        *self.by_type.entry(message_type.as_str()).or_default() += 1;
    }
}

/// The storage of the mailbox of one run.
pub trait Store {
    /// Stores a message, unless the mailbox has one with its id and signal (AM-03, AM-04).
    ///
    /// # Errors
    /// The message could not be stored. The mailbox is as it was before.
    fn append(&mut self, message: &Message) -> Result<Appended>;

    /// The next messages for an agent: those addressed to it or to all that it did not send itself.
    ///
    /// Without `since` they begin after the agent's stored cursor; with it, after the message with this id. The stored
    /// cursor moves forward to the last message of the page. If PASS, FAIL or DONE messages share the id, the last that
    /// the agent received is meant, otherwise the first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::UnknownCursor`] if no retained message has the id `since` (AM-16).
    fn receive(&mut self, agent: &str, since: Option<&str>) -> Result<Page>;

    /// The messages of all senders after a position, or from the first. No cursor moves.
    ///
    /// # Errors
    /// The storage cannot be read.
    fn read(&mut self, after: Option<Position>) -> Result<Page>;

    /// Counts all messages.
    ///
    /// # Errors
    /// The storage cannot be read.
    fn statistics(&mut self) -> Result<Statistics>;
}
