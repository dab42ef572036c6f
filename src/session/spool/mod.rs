//! The events of a session on disk, for servers that come back: `<session>/spool/`.
//!
//! ```text
//! spool/{00000000000000000001.seg, …}   segments, each named by the first event that it may hold
//! spool/{told, told.old, taken, …}      uuids of the second dialect
//! ```
//! Only the newest segment is written to. When all are larger together than the bound, the oldest is removed as a
//! whole. Each begins with a copy of the commands that had begun and not ended, so that the newest one alone says
//! what an earlier run left undone.
//!
//! What is written survives the death of this process, since the kernel has it. It is not forced to the disk, as
//! little as what the agent writes itself; after a restart of the machine the numbers go on far beyond what can
//! have been told, so that none is ever given twice.

mod names;
mod segment;

use crate::bridge::proto::spool::{
    Found, Kind, Left, Place, Record, SEGMENT_HEADER, Segment as Head, Store, Trouble, Unended,
};
use crate::error::{Error, Result};
use crate::state::{self, lent};
use names::Names;
use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use segment::{Segment, encode};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Into how many segments the bound is divided.
const PARTS: u64 = 16;
/// What is appended waits in memory up to this size.
const PENDING: usize = 256 << 10;
/// So many numbers are given up at once while nothing can be kept.
const LOST_AHEAD: u64 = 1024;
/// So many are left out when the machine went down: more than can have been told and not be on the disk.
const UNSYNCED: u64 = 1 << 24;

/// An open spool. One at a time: the session is locked.
#[derive(Debug)]
pub struct Spool {
    directory: OwnedFd,
    /// Oldest first; never empty.
    segments: VecDeque<Segment>,
    bound: u64,
    boot: [u8; 16],
    told: Names,
    taken: Names,
    /// Records that wait to be written.
    pending: Vec<u8>,
    /// The first and the last number among them.
    waits: Option<(u64, u64)>,
    /// The newest number that was given.
    newest: u64,
    /// Commands that have begun and not ended.
    begun: BTreeMap<u64, Vec<u8>>,
    /// Something was lost, perhaps of how commands began and ended: the next segment begins before anything else.
    has_hole: bool,
    /// What went wrong since the last flush.
    trouble: Option<Trouble>,
}

/// Where the events of the session in `directory` are.
pub fn place(directory: &Path) -> PathBuf {
    directory.join("spool")
}

impl Spool {
    /// Makes or opens the spool of a session, with at most `bound` bytes of events; repairs its end, and says what
    /// is in it. `remembered` uuids are kept, of each kind.
    ///
    /// # Errors
    /// [`crate::error::Code::System`], [`crate::error::Code::Refused`] for a directory that is not ours alone.
    pub fn open(session: &Path, bound: u64, remembered: usize) -> Result<(Spool, Left)> {
        let path = place(session);
        let directory = lent::open_directory(&path)?;
        let fail = |e: io::Error| {
            Error::system(format_args!("open the spool {}", path.display()), e)
                .hint("make room there, or move the directory of the spool away: its events are lost then")
        };
        Self::opened(directory, &path, bound, remembered).map_err(fail)
    }

    fn opened(directory: OwnedFd, path: &Path, bound: u64, remembered: usize) -> io::Result<(Spool, Left)> {
        let mut segments = VecDeque::new();
        for first in numbers(path)? {
            match Segment::open(&directory, first)? {
                Some(segment) => segments.push_back(segment),
                None => Segment::remove_other(&directory, first),
            }
        }
        let boot = boot();
        let (told, was_told) = Names::open(&directory, "told", remembered);
        let (taken, was_taken) = Names::open(&directory, "taken", remembered);
        let mut left = Left { told: was_told, taken: was_taken, ..Left::default() };
        let mut begun = BTreeMap::new();
        let mut has_moved = true;
        if let Some(last) = segments.back_mut() {
            let found = last.look();
            left.next =
                found.newest.saturating_add(1).max(last.head.first).max(last.head.lost.saturating_add(1));
            left.next_command = found.newest_command.saturating_add(1);
            let id = |id: &[u8]| String::from_utf8_lossy(id).into_owned();
            left.unended = found
                .unended
                .iter()
                .map(|(command, body)| Unended { command: *command, id: id(body) })
                .collect();
            begun.extend(found.unended);
            has_moved = last.head.boot != boot;
            if has_moved && !found.is_closed {
                left.next = left.next.saturating_add(UNSYNCED);
            }
        }
        let mut spool = Spool {
            directory,
            segments,
            bound,
            boot,
            told,
            taken,
            pending: Vec::new(),
            waits: None,
            newest: left.next - 1,
            begun,
            has_hole: false,
            trouble: None,
        };
        if has_moved {
            spool.begin_segment(left.next)?;
        }
        spool.make_room(0);
        Ok((spool, left))
    }

    fn part(&self) -> u64 {
        self.bound / PARTS
    }

    /// The end of the newest segment, with what waits for it.
    fn end(&self) -> Place {
        let last = self.segments.back();
        let (segment, length) = last.map_or((0, 0), |last| (last.head.first, last.length));
        Place { segment, offset: length + self.pending.len() as u64 }
    }

    /// Begins a new segment, whose first event has this number. What waits for the one before must have been
    /// written.
    fn begin_segment(&mut self, first: u64) -> io::Result<()> {
        let head = Head { first, lost: 0, boot: self.boot };
        let mut copies = Vec::new();
        for (command, id) in &self.begun {
            let record = Record { kind: Kind::Begun, number: self.newest, command: *command, body: id };
            encode(&record, &mut copies);
        }
        // One of the same name holds no event: the copies are all that was in it.
        let is_same = self.segments.back().is_some_and(|last| last.head.first == first);
        let same = if is_same { self.segments.pop_back() } else { None };
        match Segment::create(&self.directory, head, &copies) {
            Ok(segment) => {
                self.segments.push_back(segment);
                self.has_hole = false;
                Ok(())
            }
            Err(error) => {
                self.segments.extend(same);
                Err(error)
            }
        }
    }

    /// Removes the oldest segments until `more` bytes fit below the bound; the newest stays.
    fn make_room(&mut self, more: u64) {
        let mut all: u64 = self.segments.iter().map(|segment| segment.length).sum();
        while self.segments.len() > 1 && all.saturating_add(more) > self.bound {
            if let Some(oldest) = self.segments.pop_front() {
                all -= oldest.length;
                oldest.remove(&self.directory);
            }
        }
    }

    /// Writes what waits.
    fn write(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.write_parts(&[&pending]);
    }

    fn write_parts(&mut self, parts: &[&[u8]]) {
        let waits = self.waits.take();
        if parts.iter().all(|part| part.is_empty()) && waits.is_none() {
            return;
        }
        if let Err(error) = self.try_write(parts, waits) {
            self.lose(waits, &error);
        }
    }

    fn try_write(&mut self, parts: &[&[u8]], waits: Option<(u64, u64)>) -> io::Result<()> {
        if self.has_hole {
            self.begin_segment(waits.map_or(self.newest.saturating_add(1), |(first, _)| first))?;
        }
        let size = parts.iter().map(|part| part.len() as u64).sum();
        self.make_room(size);
        let bound = self.bound;
        let last = self.segments.back_mut().ok_or(io::ErrorKind::NotFound)?;
        if last.length > last.start && last.length.saturating_add(size) > bound {
            // It grew so because no other could be begun.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        last.append(parts)
    }

    /// What waited could not be kept. It may be told: another event must never have one of its numbers.
    fn lose(&mut self, waited: Option<(u64, u64)>, error: &io::Error) {
        self.has_hole = true;
        let mut numbers_hold = true;
        if let (Some((_, newest)), Some(last)) = (waited, self.segments.back_mut())
            && last.head.lost < newest
        {
            numbers_hold = last.lose(newest.saturating_add(LOST_AHEAD)).is_ok();
        }
        let held = self.trouble.take().is_none_or(|before| before.numbers_hold);
        self.trouble = Some(Trouble { why: error.to_string(), numbers_hold: held && numbers_hold });
    }

    fn count(&mut self, record: &Record<'_>) {
        if record.kind.is_event() {
            self.newest = record.number;
            self.waits = Some((self.waits.map_or(record.number, |(first, _)| first), record.number));
        }
        match record.kind {
            Kind::Begun => {
                self.begun.insert(record.command, record.body.to_vec());
            }
            Kind::Last | Kind::Ended => {
                self.begun.remove(&record.command);
            }
            Kind::Event | Kind::Closed => {}
        }
    }
}

impl Store for Spool {
    fn append(&mut self, records: &[Record<'_>]) -> Place {
        let size: usize = records.iter().map(Record::size).sum();
        let full = self.segments.back().is_some_and(|last| {
            let held = last.length.saturating_sub(last.start) + self.pending.len() as u64;
            held > 0 && held.saturating_add(size as u64) > self.part()
        });
        if full {
            self.write();
            // One that cannot be begun is tried again with the next record; until then this one grows on.
            let _ = self.begin_segment(self.newest.saturating_add(1));
        }
        let place = self.end();
        for record in records {
            let waits = self.waits;
            self.count(record);
            if SEGMENT_HEADER as u64 + record.size() as u64 > self.bound {
                // A gap; that its number was given, and its command is over, must be known.
                let command = if record.kind == Kind::Last { record.command } else { 0 };
                encode(&Record { kind: Kind::Ended, command, body: &[], ..*record }, &mut self.pending);
            } else if record.body.len() >= PENDING
                && let Some(header) = record.header()
            {
                // Not copied: what waits goes before it.
                self.waits = waits;
                self.write();
                self.waits = record.kind.is_event().then_some((record.number, record.number));
                self.write_parts(&[&header, record.body]);
            } else {
                encode(record, &mut self.pending);
            }
        }
        if self.pending.len() >= PENDING {
            self.write();
        }
        place
    }

    fn flush(&mut self) -> std::result::Result<(), Trouble> {
        self.write();
        let names = [&mut self.told, &mut self.taken];
        for names in names {
            if let Err(error) = names.flush(&self.directory) {
                let why = error.to_string();
                self.trouble.get_or_insert(Trouble { why, numbers_hold: true });
            }
        }
        self.trouble.take().map_or(Ok(()), Err)
    }

    fn find(&self, number: u64) -> Place {
        let at = self.segments.iter().rfind(|segment| segment.head.first <= number);
        let segment = at.or(self.segments.front()).map_or(0, |segment| segment.head.first);
        Place { segment, offset: SEGMENT_HEADER as u64 }
    }

    fn read(&mut self, place: &mut Place, number: u64, room: usize) -> Found {
        loop {
            let at = self.segments.partition_point(|segment| segment.head.first < place.segment);
            let Some(segment) = self.segments.get(at) else { return Found::End };
            if segment.head.first != place.segment {
                *place = Place { segment: segment.head.first, offset: SEGMENT_HEADER as u64 };
            }
            let Some(header) = segment.header(place.offset) else {
                // The end of it, or what is not as it was written: the next one goes on.
                let Some(next) = self.segments.get(at + 1) else { return Found::End };
                *place = Place { segment: next.head.first, offset: SEGMENT_HEADER as u64 };
                continue;
            };
            let offset = place.offset;
            let wanted = header.kind.is_event() && header.number >= number;
            let length = usize::try_from(header.length).unwrap_or(usize::MAX);
            if wanted && length > room {
                return Found::Large(length);
            }
            place.offset += header.size();
            if wanted && let Some(line) = segment.body(offset, &header) {
                return Found::Event { number: header.number, line };
            }
        }
    }

    fn note(&mut self, told: bool, uuid: &str) {
        let names = if told { &mut self.told } else { &mut self.taken };
        names.add(uuid);
    }

    fn close(&mut self) {
        let closed = Record { kind: Kind::Closed, number: self.newest, command: 0, body: &[] };
        encode(&closed, &mut self.pending);
        self.write();
        if let Some(last) = self.segments.back() {
            let _ = last.sync();
        }
    }
}

/// The numbers in the names of all segments, in order.
fn numbers(path: &Path) -> io::Result<Vec<u64>> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut directory = Dir::open(path, flags, Mode::empty())?;
    let mut found = Vec::new();
    for entry in directory.iter() {
        found.extend(entry?.file_name().to_str().ok().and_then(segment::number));
    }
    found.sort_unstable();
    Ok(found)
}

/// The name of this run of the machine, as bytes.
fn boot() -> [u8; 16] {
    let digits: String = state::process::boot_id().chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests;
