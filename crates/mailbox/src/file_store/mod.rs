//! The mailbox of one run on disk.
//!
//! | name in the directory of the run | content |
//! |---|---|
//! | `bridge.jsonl` | the messages, one a line (AM-09) |
//! | `bridge-NNNN.jsonl` | earlier messages, after a rotation |
//! | `bridge.index`, `bridge-NNNN.index` | where the messages are; derived, and rebuilt if missing |
//! | `bridge.torn` | incomplete lines of crashed writers (AM-11) |
//! | `bridge.lock` | the flock(2) lock of all operations |
//! | `cursors/NAME` | the last message that an agent received |
//!
//! Invariants, between processes and through crashes (AM-10, AM-12):
//! - A message is durable before `append` returns: one write, then fdatasync(2), then the index.
//! - The index never has a line that the messages' file lacks, unless another program cut the file; then it is rebuilt.
//! - Every operation holds the lock from its first read to its last write. Programs that do not know the lock may
//!   append lines; nothing else is permitted to them.
//!
//! An open store holds a key of 16 bytes and a position for each retained message, 30 to 60 bytes of memory with the
//! table, and reads only what was added since its last operation. A page needs memory for its own messages only.
//!
//! Growth ([`Limits`]): an append that would make `bridge.jsonl` larger than its limit renames it first, and removes the
//! oldest earlier segments beyond theirs. Nothing else removes messages. Duplicates, pages and cursors span the retained
//! segments.

mod cursor;
mod index_file;
mod lines;
mod page;
mod record;
mod segment;
mod segments;
mod torn;

use crate::directory::Directory;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::LockFile;
use crate::message::{MAX_LINE, Message, check_agent_name};
use crate::store::{Appended, Page, Position, Statistics, Store};
use cursor::{ResolvedCursor, StoredCursor};
use segments::Segments;
use std::path::Path;

pub(crate) const LOCK_NAME: &str = "bridge.lock";

/// How far a mailbox grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of `bridge.jsonl`, 256 MiB by default. One message may be larger.
    pub segment_bytes: u64,
    /// Most earlier segments, 8 by default. The messages of an older one are removed, received or not.
    pub old_segments: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { segment_bytes: 256 << 20, old_segments: 8 }
    }
}

/// The mailbox of one run in a directory.
#[derive(Debug)]
pub struct FileStore {
    directory: Directory,
    run_id: u64,
    limits: Limits,
    lock: LockFile,
    /// `None` until the first operation, and after one that failed.
    segments: Option<Segments>,
}

impl FileStore {
    /// Opens the mailbox of run `run_id` in an existing directory, and creates missing files.
    ///
    /// # Errors
    /// The directory or a file in it is missing, read-only, or not a private file of this user.
    pub fn open(path: &Path, run_id: u64, limits: Limits) -> Result<Self> {
        FileStore::open_in(Directory::open_root(path)?, run_id, limits)
    }

    /// Opens the mailbox in an open directory.
    pub(crate) fn open_in(directory: Directory, run_id: u64, limits: Limits) -> Result<Self> {
        let lock = LockFile::open(&directory, LOCK_NAME)?;
        let mut store = FileStore { directory, run_id, limits, lock, segments: None };
        // The first operation would report a file that cannot be used as well, but not at the best time.
        store.with_segments(|_, _| Ok(()))?;
        Ok(store)
    }

    /// The directory of the mailbox.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The line of a message that this mailbox can read again.
    fn checked_line(&self, message: &Message) -> Result<Vec<u8>> {
        let invalid =
            |message: String, hint: &str| Err(Error::new(ErrorKind::Invalid, message).with_hint(hint));
        if message.run_id != self.run_id {
            return invalid(
                format!(
                    "cannot store message of run {} in the mailbox of run {}",
                    message.run_id, self.run_id
                ),
                "send it to the mailbox of its run",
            );
        }
        let line = message.to_line()?;
        if line.len() > MAX_LINE {
            return invalid(
                format!("cannot store message {}: its line has {} bytes", message.id, line.len()),
                "send at most 16 MiB of content",
            );
        }
        Ok(line)
    }

    /// Runs an operation under the lock, on segments that are up to date.
    fn with_segments<T>(
        &mut self,
        operation: impl FnOnce(&Directory, &mut Segments) -> Result<T>,
    ) -> Result<T> {
        let _guard = self.lock.acquire(&self.directory)?;
        // They are put back at the end only, so that a failed operation leaves nothing half-updated in memory.
        let mut open = self.segments.take();
        if let Some(segments) = &mut open
            && !segments.refresh(&self.directory)?
        {
            open = None;
        }
        let mut segments = match open {
            Some(segments) => segments,
            None => Segments::open(&self.directory, self.run_id)?,
        };
        let result = operation(&self.directory, &mut segments);
        match result.as_ref().map_err(Error::kind) {
            Ok(_) | Err(ErrorKind::UnknownCursor) => self.segments = Some(segments),
            Err(ErrorKind::Changed) => Segments::remove_indexes(&self.directory)?,
            Err(_) => {}
        }
        result
    }
}

impl Store for FileStore {
    fn append(&mut self, message: &Message) -> Result<Appended> {
        let line = self.checked_line(message)?;
        let (run_id, limits) = (self.run_id, self.limits);
        self.with_segments(|directory, segments| {
            if segments.contains(message) {
                return Ok(Appended::Duplicate { id: message.id.clone() });
            }
            if segments.is_full(&line, limits) {
                segments.rotate(directory, limits)?;
                *segments = Segments::open(directory, run_id)?;
            }
            segments.append(directory, message, &line)
        })
    }

    fn receive(&mut self, agent: &str, since: Option<&str>) -> Result<Page> {
        check_agent_name(agent)?;
        self.with_segments(|directory, segments| {
            let stored = match StoredCursor::read(directory, agent)? {
                Some(cursor) => cursor.resolve(segments),
                None => ResolvedCursor::default(),
            };
            let after = match since {
                None => stored.position,
                Some(id) => Some(segments.find(id, stored.position).ok_or_else(|| unknown_cursor(id))?),
            };
            let mut page = page::read_page(segments, after, Some(agent))?;
            page.gap = since.is_none() && stored.gap;
            if let (Some(message), Some(last)) = (page.messages.last(), page.last)
                && Some(last) > stored.position
            {
                StoredCursor::new(message, last).write(directory, agent)?;
            }
            Ok(page)
        })
    }

    fn read(&mut self, after: Option<Position>) -> Result<Page> {
        self.with_segments(|_, segments| page::read_page(segments, after, None))
    }

    fn statistics(&mut self) -> Result<Statistics> {
        self.with_segments(|_, segments| page::read_statistics(segments))
    }
}

fn unknown_cursor(id: &str) -> Error {
    let shown: String = id.chars().take(64).flat_map(char::escape_debug).collect();
    Error::new(
        ErrorKind::UnknownCursor,
        format!("cannot continue after message \"{shown}\": no retained message has this id"),
    )
    .with_hint("use the id of a message that was received, or none to continue after the last one")
}

#[cfg(test)]
mod tests;
