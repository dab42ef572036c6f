//! One file of messages and its index.
//!
//! The index has one record for each line and is derived from the messages' file only. Other programs append to the
//! file without knowing the index, so a segment catches up from the end of what is indexed. It is rebuilt if it is
//! missing, damaged or of another file. All functions require the lock of the mailbox.

use super::index_file::IndexFile;
use super::lines::LineScanner;
use super::record::{IndexRecord, Key, LineKind, key_of};
use super::torn::TornLine;
use crate::directory::Directory;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{MAX_LINE, Message, parse_line};
use crate::store::Position;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// Records that are read or written at once: 28 KiB.
const BLOCK_RECORDS: u32 = 512;

/// The position of the first message with each key. Later messages with the same key, which only other programs write,
/// are duplicates.
pub(super) type Keys = HashMap<Key, Position>;

/// An open segment.
#[derive(Debug)]
pub(super) struct Segment {
    /// Number of the segment, from 1. It remains when the file is renamed.
    pub(super) number: u32,
    /// Name of the messages' file.
    pub(super) log_name: String,
    log: File,
    log_path: PathBuf,
    index: IndexFile,
    /// Number of indexed lines.
    pub(super) lines: u32,
    /// Bytes of indexed lines: the offset of the next line.
    pub(super) end: u64,
    run_id: u64,
}

impl Segment {
    /// Opens a segment, brings its index up to date and adds the keys of its messages.
    pub(super) fn open(
        directory: &Directory,
        number: u32,
        base: &str,
        run_id: u64,
        keys: &mut Keys,
    ) -> Result<Self> {
        let log_name = format!("{base}.jsonl");
        let index_name = format!("{base}.index");
        let new_name = format!("{index_name}.new");
        let log = directory.open_or_create_file(&log_name)?;
        let log_path = directory.path_of(&log_name);
        let metadata = log
            .metadata()
            .map_err(|cause| Error::system(format_args!("stat {}", log_path.display()), cause))?;
        let existing = match IndexFile::open(directory, &index_name)? {
            Some(index) if index.is_of(&metadata)? => Some(index),
            _ => None,
        };
        let is_rebuilt = existing.is_none();
        let index = existing.map_or_else(|| IndexFile::create(directory, &new_name, &metadata), Ok)?;
        let mut segment = Segment { number, log_name, log, log_path, index, lines: 0, end: 0, run_id };
        if !is_rebuilt {
            if segment.refresh(directory, keys)? {
                return Ok(segment);
            }
            keys.retain(|_, position| position.segment != number);
            (segment.lines, segment.end) = (0, 0);
            segment.index = IndexFile::create(directory, &new_name, &metadata)?;
        }
        if !segment.catch_up(directory, keys)? {
            return Err(segment.mismatch());
        }
        // A rebuilt index gets its name when it is complete.
        directory.rename(&new_name, &index_name)?;
        Ok(segment)
    }

    /// Adds the lines that other processes appended; `false` if the index does not fit the file and is to be rebuilt.
    pub(super) fn refresh(&mut self, directory: &Directory, keys: &mut Keys) -> Result<bool> {
        Ok(self.load_records(keys)? && self.catch_up(directory, keys)?)
    }

    /// Whether the files of this segment have other names by now, or more: the segment was rotated, the index rebuilt, or a
    /// link made, which is refused when the file is opened again.
    pub(super) fn is_replaced(&self, directory: &Directory) -> Result<bool> {
        let opened = rustix::fs::fstat(&self.log).map_err(|cause| self.failed("stat", cause))?;
        let named = directory.stat(&self.log_name)?;
        let is_same = named.is_some_and(|stat| {
            (stat.st_dev, stat.st_ino) == (opened.st_dev, opened.st_ino) && stat.st_nlink == 1
        });
        Ok(!is_same || self.index.is_replaced()?)
    }

    /// Appends a line with its newline durably. On failure the file is cut back to its length before.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<()> {
        let mut rest = line;
        let written = loop {
            // Under O_APPEND one write has the whole line, except where the disk or the size limit is exhausted: then
            // the next one has the cause.
            match self.log.write(rest) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => break Err(cause),
            }
            if rest.is_empty() {
                break self.log.sync_data();
            }
        };
        let Err(cause) = written else { return Ok(()) };
        let error = self.failed("append to", cause);
        // A program that does not know the lock may have appended as well; its line must not be cut off.
        let own = u64::try_from(line.len() - rest.len()).unwrap_or(u64::MAX);
        let is_cut = self.log_size()? == self.end.saturating_add(own)
            && self.log.set_len(self.end).and_then(|()| self.log.sync_data()).is_ok();
        if is_cut {
            Err(error)
        } else {
            Err(error.with_hint("the next use of the mailbox moves the rest to bridge.torn"))
        }
    }

    /// Indexes a line that was appended. Its offset is known unless another program appended at the same time.
    pub(super) fn add(
        &mut self,
        record: &IndexRecord,
        directory: &Directory,
        keys: &mut Keys,
    ) -> Result<bool> {
        if self.log_size()? != record.end() {
            return self.catch_up(directory, keys);
        }
        self.index.write(self.lines, &record.encode())?;
        self.count(record, keys)?;
        Ok(true)
    }

    /// Calls `visit` with the records from line `first` until it returns `false`. The memory is that of one block.
    pub(super) fn visit_records(
        &self,
        first: u32,
        mut visit: impl FnMut(Position, &IndexRecord) -> Result<bool>,
    ) -> Result<()> {
        let mut next = first;
        while next < self.lines {
            let count = BLOCK_RECORDS.min(self.lines - next);
            let Some(records) = self.index.read(next, count)? else {
                return Err(self.mismatch());
            };
            for (line, record) in (next..).zip(&records) {
                if !visit(Position { segment: self.number, line }, record)? {
                    return Ok(());
                }
            }
            next += count;
        }
        Ok(())
    }

    /// The message of a record.
    pub(super) fn read_message(&self, record: &IndexRecord) -> Result<Message> {
        let parsed = parse_line(self.read_line(record)?.trim_ascii(), self.run_id);
        let message = parsed.map_err(|_| self.mismatch())?;
        match record.kind {
            LineKind::Message { key, .. } if key == key_of(&message.id, message.signal) => Ok(message),
            _ => Err(self.mismatch()),
        }
    }

    /// Why the line of a record is no message.
    pub(super) fn reason_unreadable(&self, record: &IndexRecord) -> Result<String> {
        if usize::try_from(record.length).map_or(true, |length| length > MAX_LINE) {
            return Ok(format!("the line has {} bytes", record.length));
        }
        let line = self.read_line(record)?;
        Ok(parse_line(line.trim_ascii(), self.run_id)
            .err()
            .unwrap_or_else(|| "the line has changed".to_owned()))
    }

    /// Reads the records that other processes added; `false` if one is damaged or does not fit the file. A record
    /// that is incomplete, because its writer crashed, is overwritten later.
    fn load_records(&mut self, keys: &mut Keys) -> Result<bool> {
        let Some(total) = self.index.count()? else { return Ok(false) };
        if total < self.lines {
            return Ok(false);
        }
        keys.reserve((total - self.lines) as usize);
        let mut last = None;
        while self.lines < total {
            let Some(records) = self.index.read(self.lines, BLOCK_RECORDS.min(total - self.lines))? else {
                return Ok(false);
            };
            for record in records {
                if record.offset != self.end {
                    return Ok(false);
                }
                self.count(&record, keys)?;
                last = Some(record);
            }
        }
        match last {
            Some(_) if self.end > self.log_size()? => Ok(false),
            // A file that was cut and written again has other lines.
            Some(record) => {
                let is_message = matches!(record.kind, LineKind::Message { .. });
                Ok(!is_message || self.read_message(&record).is_ok())
            }
            None => Ok(true),
        }
    }

    /// Indexes the lines after the indexed ones; `false` if the file is shorter than those.
    fn catch_up(&mut self, directory: &Directory, keys: &mut Keys) -> Result<bool> {
        loop {
            let size = self.log_size()?;
            if size < self.end {
                return Ok(false);
            }
            if size == self.end {
                return Ok(true);
            }
            // Their writer may have been killed before its sync. From here on their repetitions are duplicates, which
            // promises that they are durable.
            self.log.sync_data().map_err(|cause| self.failed("sync", cause))?;
            if let Some(torn) = self.index_lines(keys)? {
                torn.repair(directory, &mut self.log, &self.log_path)?;
            }
        }
    }

    fn index_lines(&mut self, keys: &mut Keys) -> Result<Option<TornLine>> {
        // A descriptor of its own lets the scanner run while records are added.
        let log = self.log.try_clone().map_err(|cause| self.failed("read", cause))?;
        let mut scanner = LineScanner::new(&log, self.end);
        let mut block = Vec::new();
        let mut records = Vec::new();
        let torn = loop {
            let line = scanner.next_line().map_err(|cause| self.failed("read", cause))?;
            let Some(line) = line else { break None };
            let record = IndexRecord::of_line(line.offset, line.length, line.text, self.run_id);
            if !line.is_complete {
                let is_message = matches!(record.kind, LineKind::Message { .. });
                break Some(TornLine { offset: line.offset, is_message });
            }
            block.extend(record.encode());
            records.push(record);
            if records.len() >= BLOCK_RECORDS as usize {
                self.add_all(&mut block, &mut records, keys)?;
            }
        };
        self.add_all(&mut block, &mut records, keys)?;
        Ok(torn)
    }

    fn add_all(
        &mut self,
        block: &mut Vec<u8>,
        records: &mut Vec<IndexRecord>,
        keys: &mut Keys,
    ) -> Result<()> {
        self.index.write(self.lines, block)?;
        block.clear();
        records.drain(..).try_for_each(|record| self.count(&record, keys))
    }

    fn count(&mut self, record: &IndexRecord, keys: &mut Keys) -> Result<()> {
        if let LineKind::Message { key, .. } = record.kind {
            keys.entry(key).or_insert(Position { segment: self.number, line: self.lines });
        }
        self.end = record.end();
        self.lines =
            self.lines.checked_add(1).ok_or_else(|| self.failed("index", io::ErrorKind::FileTooLarge))?;
        Ok(())
    }

    fn read_line(&self, record: &IndexRecord) -> Result<Vec<u8>> {
        let length = usize::try_from(record.length).ok().filter(|length| *length <= MAX_LINE);
        let mut line = vec![0; length.ok_or_else(|| self.mismatch())?];
        self.log.read_exact_at(&mut line, record.offset).map_err(|cause| self.failed("read", cause))?;
        Ok(line)
    }

    fn log_size(&self) -> Result<u64> {
        Ok(self.log.metadata().map_err(|cause| self.failed("stat", cause))?.size())
    }

    fn failed(&self, operation: &str, cause: impl Into<io::Error>) -> Error {
        Error::system(format_args!("{operation} {}", self.log_path.display()), cause)
    }

    fn mismatch(&self) -> Error {
        let path = self.log_path.display();
        Error::new(ErrorKind::Changed, format!("read {path}: indexed lines have changed")).with_hint(
            "repeat the operation, which indexes the file anew; other programs may only append to it",
        )
    }
}
