//! The stored cursors of agents: `cursors/NAME`, with the last message that was returned to the agent.

use super::segments::Segments;
use crate::directory::Directory;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Signal, check_agent_name};
use crate::store::Position;
use serde::{Deserialize, Serialize};

const DIRECTORY_NAME: &str = "cursors";
/// Largest file that is read, in bytes.
const MAX_SIZE: u64 = 64 << 10;

/// The content of the file. The id and the signal identify the message; the position finds it at once, and orders it
/// before the retained messages when it was removed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredCursor {
    id: String,
    signal: Option<Signal>,
    segment: u32,
    line: u32,
}

/// Where an agent continues.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ResolvedCursor {
    /// The last message that the agent received; `None` before the first retained message.
    pub(super) position: Option<Position>,
    /// Messages that the agent has not received may have been removed.
    pub(super) gap: bool,
}

impl StoredCursor {
    pub(super) fn new(message: &Message, position: Position) -> Self {
        StoredCursor {
            id: message.id.clone(),
            signal: message.signal,
            segment: position.segment,
            line: position.line,
        }
    }

    /// The position in the retained messages. A message that is no longer retained has none, and all retained messages
    /// follow it. A message with its key at a later position is another program's repetition of the removed one; the
    /// messages between the two must not be skipped.
    pub(super) fn resolve(&self, segments: &Segments) -> ResolvedCursor {
        let recorded = Position { segment: self.segment, line: self.line };
        let position = segments.position_of(&self.id, self.signal).filter(|position| *position <= recorded);
        ResolvedCursor { position, gap: position.is_none() }
    }

    /// Reads the cursor of an agent; `None` if it has received nothing yet.
    pub(super) fn read(mailbox: &Directory, agent: &str) -> Result<Option<Self>> {
        check_agent_name(agent)?;
        let Some(directory) = mailbox.open_directory(DIRECTORY_NAME)? else { return Ok(None) };
        let Some(content) = directory.read_file(agent, MAX_SIZE)? else { return Ok(None) };
        serde_json::from_slice(&content).map(Some).map_err(|cause| {
            let path = directory.path_of(agent);
            Error::new(ErrorKind::Unsafe, format!("read cursor {}: {cause}", path.display()))
                .with_hint("remove the file; the agent then receives all retained messages")
        })
    }

    /// Writes the cursor of an agent durably.
    pub(super) fn write(&self, mailbox: &Directory, agent: &str) -> Result<()> {
        check_agent_name(agent)?;
        let directory = mailbox.open_or_create_directory(DIRECTORY_NAME)?;
        let content = serde_json::to_vec(self)
            .map_err(|cause| Error::new(ErrorKind::Invalid, format!("write cursor of {agent}: {cause}")))?;
        directory.write_atomically(agent, &content)
    }
}
