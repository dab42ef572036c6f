//! A message, its vocabulary and its id (seed 001, "Message Structure"; AM-01 to AM-08).
//!
//! This module has neither a clock nor I/O: the time is an argument.

mod validate;
mod wire;

pub use validate::{MAX_AGENT_NAME, MAX_CONTENT, check_agent_name};
pub(crate) use wire::{MAX_LINE, format_time, parse_line};

use crate::error::Result;
use crate::hash::hex_digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of a message (AM-05).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageType {
    /// A request for work.
    Task,
    /// The output of work.
    Result,
    /// Feedback of a reviewer.
    Review,
    /// A control signal for the loop.
    Signal,
    /// A discussion or a question.
    Chat,
}

impl MessageType {
    /// All types, in the order of the seed.
    pub const ALL: [MessageType; 5] =
        [MessageType::Task, MessageType::Result, MessageType::Review, MessageType::Signal, MessageType::Chat];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageType::Task => "task",
            MessageType::Result => "result",
            MessageType::Review => "review",
            MessageType::Signal => "signal",
            MessageType::Chat => "chat",
        }
    }

    /// The type with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        MessageType::ALL.into_iter().find(|known| known.as_str() == name)
    }
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A control signal (AM-06).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// An agent has completed its work.
    Done,
    /// A reviewer approves the work.
    Pass,
    /// A reviewer rejects the work.
    Fail,
}

impl Signal {
    /// All signals, in the order of the seed.
    pub const ALL: [Signal; 3] = [Signal::Done, Signal::Pass, Signal::Fail];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Done => "DONE",
            Signal::Pass => "PASS",
            Signal::Fail => "FAIL",
        }
    }

    /// The signal with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Signal::ALL.into_iter().find(|known| known.as_str() == name)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The part of a message that its sender gives. The mailbox adds the sender, the run and the time, so that a sender
/// cannot forge them (AM-19).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The type of the message.
    pub message_type: MessageType,
    /// Name of the recipient; empty for a broadcast (AM-07).
    pub to: String,
    /// Any text; it may be empty in signals only.
    pub content: String,
    /// Present if and only if the type is [`MessageType::Signal`].
    pub signal: Option<Signal>,
}

impl Draft {
    /// A message to one recipient.
    pub fn to(recipient: &str, message_type: MessageType, content: impl Into<String>) -> Self {
        Draft { message_type, to: recipient.to_owned(), content: content.into(), signal: None }
    }

    /// A signal to all members.
    pub fn signal(signal: Signal, content: impl Into<String>) -> Self {
        Draft {
            message_type: MessageType::Signal,
            to: String::new(),
            content: content.into(),
            signal: Some(signal),
        }
    }
}

/// A message of a run, with the fields of the seed (AM-01).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// [`message_id`] of the message. An id that another program wrote is kept as it is.
    pub id: String,
    /// Number of the run.
    pub run_id: u64,
    /// `type` on the wire.
    pub message_type: MessageType,
    /// Name of the sender.
    pub from: String,
    /// Name of the recipient; empty for a broadcast.
    pub to: String,
    /// Any text.
    pub content: String,
    /// An empty string on the wire if absent. It has a meaning in messages of type [`MessageType::Signal`] only.
    pub signal: Option<Signal>,
    /// Time of creation; whole seconds on the wire, in UTC (AM-08).
    pub timestamp: Timestamp,
}

impl Message {
    /// The message of `from` that the draft becomes in a run.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`]: names, content or signal are not valid (AM-05 to AM-07).
    pub fn new(run_id: u64, from: &str, draft: Draft, timestamp: Timestamp) -> Result<Self> {
        validate::check_draft(from, &draft)?;
        let Draft { message_type, to, content, signal } = draft;
        let id = message_id(message_type, from, &to, &content);
        // The wire has whole seconds; the message in memory is the one that is stored.
        let timestamp = Timestamp::from_second(timestamp.as_second()).unwrap_or(timestamp);
        Ok(Message { id, run_id, message_type, from: from.to_owned(), to, content, signal, timestamp })
    }

    /// Whether `agent` receives the message: it is addressed to the agent or to all, and not sent by the agent itself.
    pub fn is_for(&self, agent: &str) -> bool {
        (self.to.is_empty() || self.to == agent) && self.from != agent
    }

    /// The signal of a signal message. A signal in a message of another type has no effect: it must not approve work.
    pub fn effective_signal(&self) -> Option<Signal> {
        self.signal.filter(|_| self.message_type == MessageType::Signal)
    }
}

/// The id of a message: lowercase hexadecimal SHA-256 of the concatenated fields (AM-02; seed 001, "ID Generation").
pub fn message_id(message_type: MessageType, from: &str, to: &str, content: &str) -> String {
    hex_digest(&[message_type.as_str().as_bytes(), from.as_bytes(), to.as_bytes(), content.as_bytes()])
}

#[cfg(test)]
pub(crate) mod tests;
