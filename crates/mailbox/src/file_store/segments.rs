//! All retained segments of a mailbox, and the rule by which it grows: when `bridge.jsonl` would exceed its limit, it is
//! renamed to `bridge-NNNN.jsonl` and a new one begins; the oldest are removed.

use super::Limits;
use super::record::{IndexRecord, LineKind, key_of};
use super::segment::{Keys, Segment};
use crate::directory::Directory;
use crate::error::Result;
use crate::message::{Message, Signal};
use crate::store::{Appended, Position};

const ACTIVE_BASE: &str = "bridge";

/// The open segments and the keys of their messages. The table needs 30 to 60 bytes for each retained message.
#[derive(Debug)]
pub(super) struct Segments {
    /// Renamed segments, oldest first.
    old: Vec<Segment>,
    /// The segment that grows. Its number is one more than that of the newest old one.
    active: Segment,
    keys: Keys,
    /// The index of the active segment could not be written, so that it is to be opened again.
    pub(super) is_stale: bool,
}

impl Segments {
    /// Opens all segments. The caller holds the lock.
    pub(super) fn open(directory: &Directory, run_id: u64) -> Result<Self> {
        let numbers = old_numbers(directory)?;
        let mut keys = Keys::new();
        let mut old = Vec::new();
        for number in &numbers {
            old.push(Segment::open(directory, *number, &base_of(*number), run_id, &mut keys)?);
        }
        let number = numbers.last().map_or(1, |last| last.saturating_add(1));
        let active = Segment::open(directory, number, ACTIVE_BASE, run_id, &mut keys)?;
        Ok(Segments { old, active, keys, is_stale: false })
    }

    /// Adds what other processes appended; `false` if the segments are to be opened again.
    pub(super) fn refresh(&mut self, directory: &Directory) -> Result<bool> {
        Ok(!self.is_stale
            && !self.active.is_replaced(directory)?
            && self.active.refresh(directory, &mut self.keys)?)
    }

    /// Whether the mailbox has a message with this id and signal.
    pub(super) fn contains(&self, message: &Message) -> bool {
        self.keys.contains_key(&key_of(&message.id, message.signal))
    }

    /// Whether the active segment is full: the line does not fit any more. A segment has at least one line.
    pub(super) fn is_full(&self, line: &[u8], limits: Limits) -> bool {
        let needed = self.active.end.saturating_add(line.len().try_into().unwrap_or(u64::MAX));
        self.active.end > 0 && needed > limits.segment_bytes
    }

    /// Renames the active segment and removes the oldest; the caller opens the segments again. After a crash in between,
    /// an index without its file's name is rebuilt, a missing active file is created at the next use, and surplus
    /// segments are removed by the next rotation. Only rotations remove messages.
    pub(super) fn rotate(&self, directory: &Directory, limits: Limits) -> Result<()> {
        let base = base_of(self.active.number);
        directory.rename(&format!("{ACTIVE_BASE}.jsonl"), &format!("{base}.jsonl"))?;
        directory.rename(&format!("{ACTIVE_BASE}.index"), &format!("{base}.index"))?;
        let numbers = old_numbers(directory)?;
        let surplus = numbers.len().saturating_sub(limits.old_segments);
        for number in numbers.into_iter().take(surplus) {
            let base = base_of(number);
            directory.remove_file(&format!("{base}.jsonl"))?;
            directory.remove_file(&format!("{base}.index"))?;
        }
        directory.sync()
    }

    /// Removes every index, so that the next use rebuilds them.
    pub(super) fn remove_indexes(directory: &Directory) -> Result<()> {
        let bases = old_numbers(directory)?.into_iter().map(base_of).chain([ACTIVE_BASE.to_owned()]);
        bases.map(|base| format!("{base}.index")).try_for_each(|name| directory.remove_file(&name))
    }

    /// Appends the line of a message that is not in the mailbox yet.
    pub(super) fn append(
        &mut self,
        directory: &Directory,
        message: &Message,
        line: &[u8],
    ) -> Result<Appended> {
        self.active.append(line)?;
        let length = line.len().saturating_sub(1).try_into().unwrap_or(u64::MAX);
        let record = IndexRecord::of_message(self.active.end, length, message);
        // The message is stored, whatever happens to the index.
        self.is_stale = !self.active.add(&record, directory, &mut self.keys).unwrap_or(false);
        Ok(Appended::Stored { id: message.id.clone() })
    }

    /// The position of the message with this id and signal.
    pub(super) fn position_of(&self, id: &str, signal: Option<Signal>) -> Option<Position> {
        self.keys.get(&key_of(id, signal)).copied()
    }

    /// The position of the message with this id. If several signals share it: the last one up to `received`, which is
    /// the agent's cursor, otherwise the first.
    pub(super) fn find(&self, id: &str, received: Option<Position>) -> Option<Position> {
        let signals = std::iter::once(None).chain(Signal::ALL.map(Some));
        let found: Vec<Position> = signals.filter_map(|signal| self.position_of(id, signal)).collect();
        let last_received = found.iter().filter(|position| Some(**position) <= received).max();
        last_received.or_else(|| found.iter().min()).copied()
    }

    /// Calls `visit` with the records after a position until it returns `false`; duplicates are left out.
    pub(super) fn visit(
        &self,
        after: Option<Position>,
        mut visit: impl FnMut(&Segment, Position, &IndexRecord) -> Result<bool>,
    ) -> Result<()> {
        let mut continues = true;
        for segment in self.old.iter().chain([&self.active]) {
            let first = match after {
                Some(after) if after.segment > segment.number => continue,
                Some(after) if after.segment == segment.number => after.line.saturating_add(1),
                _ => 0,
            };
            segment.visit_records(first, |position, record| {
                let is_duplicate = matches!(record.kind, LineKind::Message { key, .. } if self.keys.get(&key) != Some(&position));
                if !is_duplicate {
                    continues = visit(segment, position, record)?;
                }
                Ok(continues)
            })?;
            if !continues {
                break;
            }
        }
        Ok(())
    }
}

/// The numbers of the renamed segments, ascending.
fn old_numbers(directory: &Directory) -> Result<Vec<u32>> {
    let mut numbers: Vec<u32> = directory.names()?.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn base_of(number: u32) -> String {
    format!("{ACTIVE_BASE}-{number:04}")
}

/// The number in the name of an old segment, `bridge-NNNN.jsonl`.
fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix("bridge-")?.strip_suffix(".jsonl")?.parse().ok()?;
    (name == format!("{}.jsonl", base_of(number)) && number > 0).then_some(number)
}
