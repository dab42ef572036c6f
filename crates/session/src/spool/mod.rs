//! The events of a session on disk, for servers that reconnect: `<session>/spool/`.
//!
//! ```text
//! spool/{00000000000000000001.seg, …}   segments, each named by the first event that it may contain
//! spool/{told, told.old, taken, …}      uuids of messages sent (told) and received (taken) in the SDK dialect
//! ```
//! Only the newest segment is written to. When all segments together exceed the limit, the oldest one is removed. Each
//! segment begins with a copy of the commands that had started and not ended, so that the newest one alone lists the
//! unfinished commands of an earlier run.
//!
//! Written data survives the death of this process, since the kernel has it. It is not synced to disk, like the files
//! that the agent writes. After a restart of the machine the numbers continue far beyond any that can have been sent,
//! so that no number is ever used twice.

mod import;
mod segment;
mod stored_events;
mod uuid_log;

pub use import::{SpoolBounds, import_events};
pub use stored_events::{StoredEvent, read_stored_events};

use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use saggar_bridge::proto::spool::{
    SEGMENT_HEADER_SIZE, SavedSpool, SpoolError, SpoolPosition, SpoolReadResult, SpoolRecord,
    SpoolRecordKind, SpoolSegmentHeader as Head, SpoolStore, UnfinishedCommand,
};
use saggar_sandbox::state::{self, delegated_directory};
use saggar_sys::error::{Error, Result};
use segment::{SegmentFile, encode};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use uuid_log::UuidLog;

/// Number of segments into which the limit is divided.
const SEGMENTS: u64 = 16;
/// Bytes of appended records that are buffered in memory.
const MAX_PENDING: usize = 256 << 10;
/// Numbers that are skipped at once while no event can be stored.
const LOST_AHEAD: u64 = 1024;
/// Numbers that are skipped after a restart of the machine: more than can have been sent and not be on disk.
const UNSYNCED_GAP: u64 = 1 << 24;

/// An open spool; exclusive, as the session is locked.
#[derive(Debug)]
pub struct SessionSpool {
    directory: OwnedFd,
    /// Oldest first; never empty.
    segments: VecDeque<SegmentFile>,
    max_bytes: u64,
    boot: [u8; 16],
    notified: UuidLog,
    accepted: UuidLog,
    /// Records to be written.
    pending: Vec<u8>,
    /// The first and the last number among them.
    pending_range: Option<(u64, u64)>,
    /// The newest number that was assigned.
    newest: u64,
    /// Commands that have started and not ended.
    unended_commands: BTreeMap<u64, Vec<u8>>,
    /// Records were lost, perhaps of starts and ends of commands: a new segment must begin before the next record.
    has_gap: bool,
    /// The error since the last flush.
    error: Option<SpoolError>,
}

/// The directory of the events of the session in `directory`.
pub fn spool_directory(directory: &Path) -> PathBuf {
    directory.join("spool")
}

impl SessionSpool {
    /// Creates or opens the spool of a session, with at most `bound` bytes of events; repairs its end, and returns its
    /// content. Of each kind of uuid the newest `remembered` are kept.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`]; [`saggar_sys::error::Code::Refused`] for a directory that another user owns or can
    /// write.
    pub fn open(session: &Path, bound: u64, remembered: usize) -> Result<(SessionSpool, SavedSpool)> {
        let path = spool_directory(session);
        let directory = delegated_directory::open_delegated(&path)?;
        let fail = |e: io::Error| {
            Error::system(format_args!("open the spool {}", path.display()), e)
                .hint("make room there, or move the directory of the spool away: its events are lost then")
        };
        Self::open_in(directory, &path, bound, remembered).map_err(fail)
    }

    fn open_in(
        directory: OwnedFd,
        path: &Path,
        bound: u64,
        remembered: usize,
    ) -> io::Result<(SessionSpool, SavedSpool)> {
        let mut segments = VecDeque::new();
        for first in segment_numbers(path)? {
            match SegmentFile::open(&directory, first)? {
                Some(segment) => segments.push_back(segment),
                None => SegmentFile::remove_invalid(&directory, first),
            }
        }
        let boot = boot_id_bytes();
        let (told, was_told) = UuidLog::open(&directory, "told", remembered);
        let (taken, was_taken) = UuidLog::open(&directory, "taken", remembered);
        let mut left =
            SavedSpool { sent_messages: was_told, received_messages: was_taken, ..SavedSpool::default() };
        let mut begun = BTreeMap::new();
        let mut has_moved = true;
        if let Some(last) = segments.back_mut() {
            let found = last.scan();
            left.next_event = found
                .newest
                .saturating_add(1)
                .max(last.head.first_number)
                .max(last.head.lost_up_to.saturating_add(1));
            left.next_command = found.newest_command.saturating_add(1);
            let id = |id: &[u8]| String::from_utf8_lossy(id).into_owned();
            left.unfinished = found
                .unended
                .iter()
                .map(|(command, body)| UnfinishedCommand { command: *command, id: id(body) })
                .collect();
            begun.extend(found.unended);
            has_moved = last.head.boot_id != boot;
            if has_moved && !found.is_closed {
                left.next_event = left.next_event.saturating_add(UNSYNCED_GAP);
            }
        }
        let mut spool = SessionSpool {
            directory,
            segments,
            max_bytes: bound,
            boot,
            notified: told,
            accepted: taken,
            pending: Vec::new(),
            pending_range: None,
            newest: left.next_event - 1,
            unended_commands: begun,
            has_gap: false,
            error: None,
        };
        if has_moved {
            spool.begin_segment(left.next_event)?;
        }
        spool.make_room(0);
        Ok((spool, left))
    }

    fn segment_size(&self) -> u64 {
        self.max_bytes / SEGMENTS
    }

    /// The end of the newest segment, with the pending records.
    fn end_position(&self) -> SpoolPosition {
        let last = self.segments.back();
        let (segment, length) = last.map_or((0, 0), |last| (last.head.first_number, last.length));
        SpoolPosition { segment, offset: length + self.pending.len() as u64 }
    }

    /// Begins a new segment, whose first event has this number. The pending records must have been written to the one
    /// before.
    fn begin_segment(&mut self, first: u64) -> io::Result<()> {
        let head = Head { first_number: first, lost_up_to: 0, boot_id: self.boot };
        let mut copies = Vec::new();
        for (command, id) in &self.unended_commands {
            let record = SpoolRecord {
                kind: SpoolRecordKind::CommandStarted,
                number: self.newest,
                command: *command,
                body: id,
            };
            encode(&record, &mut copies);
        }
        // A segment of the same name has no event: it contained only the copies.
        let is_same = self.segments.back().is_some_and(|last| last.head.first_number == first);
        let same = if is_same { self.segments.pop_back() } else { None };
        match SegmentFile::create(&self.directory, head, &copies) {
            Ok(segment) => {
                self.segments.push_back(segment);
                self.has_gap = false;
                Ok(())
            }
            Err(error) => {
                self.segments.extend(same);
                Err(error)
            }
        }
    }

    /// Removes the oldest segments until `more` bytes fit below the limit; the newest one stays.
    fn make_room(&mut self, more: u64) {
        let mut all: u64 = self.segments.iter().map(|segment| segment.length).sum();
        while self.segments.len() > 1 && all.saturating_add(more) > self.max_bytes {
            if let Some(oldest) = self.segments.pop_front() {
                all -= oldest.length;
                oldest.remove(&self.directory);
            }
        }
    }

    /// Writes the pending records.
    fn write_pending(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.append_parts(&[&pending]);
    }

    fn append_parts(&mut self, parts: &[&[u8]]) {
        let waits = self.pending_range.take();
        if parts.iter().all(|part| part.is_empty()) && waits.is_none() {
            return;
        }
        if let Err(error) = self.try_append(parts, waits) {
            self.record_lost(waits, &error);
        }
    }

    fn try_append(&mut self, parts: &[&[u8]], waits: Option<(u64, u64)>) -> io::Result<()> {
        if self.has_gap {
            self.begin_segment(waits.map_or(self.newest.saturating_add(1), |(first, _)| first))?;
        }
        let size = parts.iter().map(|part| part.len() as u64).sum();
        self.make_room(size);
        let bound = self.max_bytes;
        let last = self.segments.back_mut().ok_or(io::ErrorKind::NotFound)?;
        if last.length > last.start && last.length.saturating_add(size) > bound {
            // The segment is too large because no new one could be created.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        last.append(parts)
    }

    /// The pending records could not be stored. They may have been sent: no other event may get one of their numbers.
    fn record_lost(&mut self, waited: Option<(u64, u64)>, error: &io::Error) {
        self.has_gap = true;
        let mut numbers_hold = true;
        if let (Some((_, newest)), Some(last)) = (waited, self.segments.back_mut())
            && last.head.lost_up_to < newest
        {
            numbers_hold = last.record_lost(newest.saturating_add(LOST_AHEAD)).is_ok();
        }
        let held = self.error.take().is_none_or(|before| before.numbers_reserved);
        self.error = Some(SpoolError { why: error.to_string(), numbers_reserved: held && numbers_hold });
    }

    fn track_command(&mut self, record: &SpoolRecord<'_>) {
        if record.kind.is_event() {
            self.newest = record.number;
            self.pending_range =
                Some((self.pending_range.map_or(record.number, |(first, _)| first), record.number));
        }
        match record.kind {
            SpoolRecordKind::CommandStarted => {
                self.unended_commands.insert(record.command, record.body.to_vec());
            }
            SpoolRecordKind::LastEvent | SpoolRecordKind::CommandEnded => {
                self.unended_commands.remove(&record.command);
            }
            SpoolRecordKind::Event | SpoolRecordKind::RunClosed => {}
        }
    }
}

impl SpoolStore for SessionSpool {
    fn append(&mut self, records: &[SpoolRecord<'_>]) -> SpoolPosition {
        let size: usize = records.iter().map(SpoolRecord::size).sum();
        let full = self.segments.back().is_some_and(|last| {
            let held = last.length.saturating_sub(last.start) + self.pending.len() as u64;
            held > 0 && held.saturating_add(size as u64) > self.segment_size()
        });
        if full {
            self.write_pending();
            // If no segment can be created, the next record tries again; until then this one grows.
            let _ = self.begin_segment(self.newest.saturating_add(1));
        }
        let place = self.end_position();
        for record in records {
            let waits = self.pending_range;
            self.track_command(record);
            if SEGMENT_HEADER_SIZE as u64 + record.size() as u64 > self.max_bytes {
                // A gap; but that its number was assigned, and its command has ended, must be recorded.
                let command = if record.kind == SpoolRecordKind::LastEvent { record.command } else { 0 };
                encode(
                    &SpoolRecord { kind: SpoolRecordKind::CommandEnded, command, body: &[], ..*record },
                    &mut self.pending,
                );
            } else if record.body.len() >= MAX_PENDING
                && let Some(header) = record.header()
            {
                // Not copied: the pending records are written before it.
                self.pending_range = waits;
                self.write_pending();
                self.pending_range = record.kind.is_event().then_some((record.number, record.number));
                self.append_parts(&[&header, record.body]);
            } else {
                encode(record, &mut self.pending);
            }
        }
        if self.pending.len() >= MAX_PENDING {
            self.write_pending();
        }
        place
    }

    fn flush(&mut self) -> std::result::Result<(), SpoolError> {
        self.write_pending();
        let names = [&mut self.notified, &mut self.accepted];
        for names in names {
            if let Err(error) = names.flush(&self.directory) {
                let why = error.to_string();
                self.error.get_or_insert(SpoolError { why, numbers_reserved: true });
            }
        }
        self.error.take().map_or(Ok(()), Err)
    }

    fn find(&self, number: u64) -> SpoolPosition {
        let at = self.segments.iter().rfind(|segment| segment.head.first_number <= number);
        let segment = at.or(self.segments.front()).map_or(0, |segment| segment.head.first_number);
        SpoolPosition { segment, offset: SEGMENT_HEADER_SIZE as u64 }
    }

    fn read(&mut self, place: &mut SpoolPosition, number: u64, room: usize) -> SpoolReadResult {
        loop {
            let at = self.segments.partition_point(|segment| segment.head.first_number < place.segment);
            let Some(segment) = self.segments.get(at) else { return SpoolReadResult::End };
            if segment.head.first_number != place.segment {
                *place =
                    SpoolPosition { segment: segment.head.first_number, offset: SEGMENT_HEADER_SIZE as u64 };
            }
            let Some(header) = segment.read_header(place.offset) else {
                // The end of the segment, or a damaged record: continue with the next segment.
                let Some(next) = self.segments.get(at + 1) else { return SpoolReadResult::End };
                *place =
                    SpoolPosition { segment: next.head.first_number, offset: SEGMENT_HEADER_SIZE as u64 };
                continue;
            };
            let offset = place.offset;
            let wanted = header.kind.is_event() && header.number >= number;
            let length = usize::try_from(header.length).unwrap_or(usize::MAX);
            if wanted && length > room {
                return SpoolReadResult::TooLarge(length);
            }
            place.offset += header.size();
            if wanted && let Some(line) = segment.read_body(offset, &header) {
                return SpoolReadResult::Event { number: header.number, line };
            }
        }
    }

    fn store_uuid(&mut self, told: bool, uuid: &str) {
        let names = if told { &mut self.notified } else { &mut self.accepted };
        names.append(uuid);
    }

    fn close(&mut self) {
        let closed =
            SpoolRecord { kind: SpoolRecordKind::RunClosed, number: self.newest, command: 0, body: &[] };
        encode(&closed, &mut self.pending);
        self.write_pending();
        if let Some(last) = self.segments.back() {
            let _ = last.sync();
        }
    }
}

/// The numbers in the names of all segments, sorted.
fn segment_numbers(path: &Path) -> io::Result<Vec<u64>> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut directory = Dir::open(path, flags, Mode::empty())?;
    let mut found = Vec::new();
    for entry in directory.iter() {
        found.extend(entry?.file_name().to_str().ok().and_then(segment::parse_segment_name));
    }
    found.sort_unstable();
    Ok(found)
}

/// The boot id as bytes.
fn boot_id_bytes() -> [u8; 16] {
    let digits: String = state::process::boot_id().chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests;
