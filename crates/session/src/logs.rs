//! The log entries of a session: a ring of files on disk, readable while no supervisor runs (KC-32).
//!
//! The files are `<session>/logs/<number of the first entry>.jsonl`. Each holds [`ENTRIES_PER_FILE`] entries or
//! [`MAX_FILE_BYTES`], one JSON object per line, and the oldest files are removed. Entries are numbered from 1 without
//! gaps, over all starts. One process writes: the holder of the session's lock. Any process of its owner may read at
//! any time; an unfinished line at the end is ignored.

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use saggar_bridge::proto::LogLevel;
use saggar_sandbox::state::delegated_directory;
use saggar_sys::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Most entries that are returned.
pub const MAX_ENTRIES: u64 = 10_000;
/// Limits of one file. One more file than [`MAX_ENTRIES`] needs exists while the newest one fills.
const ENTRIES_PER_FILE: u64 = 2_500;
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 5;
/// Longest text of one entry in bytes; the rest is cut off.
const MAX_TEXT: usize = 16 << 10;
/// Longest line that is read: each byte of a text can become six bytes of JSON.
const MAX_LINE: u64 = 6 * MAX_TEXT as u64 + 256;

/// One log entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Number of the entry; counts from 1 without gaps.
    pub index: u64,
    /// Time of the entry in milliseconds since the Unix epoch.
    pub ts: u64,
    /// Severity.
    pub level: LogLevel,
    /// The message, at most 16 KiB.
    pub text: String,
}

impl LogEntry {
    /// An entry, with the text cut to its longest length.
    pub fn new(index: u64, ts: u64, level: LogLevel, text: &str) -> Self {
        LogEntry { index, ts, level, text: saggar_sys::text::prefix(text, MAX_TEXT).to_owned() }
    }

    /// The entry on one line, for people: number, time in UTC, level and text.
    pub fn to_line(&self) -> String {
        let LogEntry { index, ts, level, text } = self;
        let time = i64::try_from(*ts).ok().and_then(|ts| jiff::Timestamp::from_millisecond(ts).ok());
        let time = time.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
        format!("{index} {time} {:<5} {}\n", level.name(), saggar_sys::text::one_line(text))
    }
}

/// The directory of the entries of the session in `directory`.
pub fn log_directory(directory: &Path) -> PathBuf {
    directory.join("logs")
}

/// The files of a log, below a descriptor: the supervisor may not open any path that leads there.
#[derive(Debug)]
pub struct LogFiles(OwnedFd);

/// Appends entries.
#[derive(Debug)]
pub struct LogWriter {
    /// Path for messages.
    shown_directory: PathBuf,
    files: LogFiles,
    /// The newest file, the number of its first entry, and its length in bytes.
    file: Option<(File, u64, u64)>,
    last: u64,
}

impl LogWriter {
    /// Opens the log, and continues after its newest entry.
    ///
    /// # Errors
    /// As [`delegated_directory::open_delegated`]; [`saggar_sys::error::Code::System`].
    pub fn open(directory: &Path) -> Result<Self> {
        let place = log_directory(directory);
        let pieces = LogFiles(delegated_directory::open_delegated(&place)?);
        let mut writer = LogWriter { file: None, last: 0, files: pieces, shown_directory: place };
        if let Some(first) = writer.files.first_indexes().last().copied() {
            let path = writer.shown_directory.join(file_name(first));
            let fail = |e| Error::system(format_args!("open {}", path.display()), e);
            let mut text = Vec::new();
            let read = writer.files.open(first);
            read.and_then(|file| file.take(2 * MAX_FILE_BYTES).read_to_end(&mut text)).map_err(fail)?;
            // A killed writer may have left a partial line.
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let last = text[..whole].split(|byte| *byte == b'\n').filter_map(parse_line).next_back();
            writer.last = last.map_or(first.saturating_sub(1), |entry| entry.index);
            let file = writer.files.open_for_append(first).map_err(fail)?;
            file.set_len(whole as u64).map_err(fail)?;
            writer.file = Some((file, first, whole as u64));
        }
        Ok(writer)
    }

    /// The number of the newest entry; 0 before the first entry.
    pub fn last_index(&self) -> u64 {
        self.last
    }

    /// Appends an entry, and removes the oldest file if there are too many.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`]; the number of the entry is used up all the same.
    pub fn append(&mut self, ts: u64, level: LogLevel, text: &str) -> Result<()> {
        self.last += 1;
        let index = self.last;
        let mut line = serde_json::to_vec(&LogEntry::new(index, ts, level, text)).unwrap_or_default();
        line.push(b'\n');
        let is_full = |(_, first, length): &(File, u64, u64)| {
            index >= first + ENTRIES_PER_FILE || length + line.len() as u64 > MAX_FILE_BYTES
        };
        if self.file.as_ref().is_none_or(is_full) {
            let file = self.files.open_for_append(index);
            let path = || self.shown_directory.join(file_name(index));
            let file = file.map_err(|e| Error::system(format_args!("make {}", path().display()), e))?;
            self.file = Some((file, index, 0));
            let mut old = self.files.first_indexes();
            old.truncate(old.len().saturating_sub(MAX_FILES));
            old.into_iter().for_each(|first| self.files.remove(first));
        }
        let place = &self.shown_directory;
        let Some((file, _, length)) = &mut self.file else { return Ok(()) };
        *length += line.len() as u64;
        // One write per line: a reader sees the whole line or, for a moment, a part of it.
        file.write_all(&line).map_err(|e| Error::system(format_args!("write to {}", place.display()), e))
    }

    /// The files of the log.
    pub fn files(&self) -> &LogFiles {
        &self.files
    }
}

impl LogFiles {
    /// The files of the log of the session in `directory`; `None` when there are none.
    #[expect(
        clippy::disallowed_methods,
        reason = "the session's own directory, where no program of a sandbox can write"
    )]
    pub fn open_read_only(directory: &Path) -> Option<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        open(&log_directory(directory), flags, Mode::empty()).ok().map(LogFiles)
    }

    /// The entries with a number above `after`, oldest first, at most `limit`; removed entries are skipped.
    pub fn entries_after(&self, after: u64, limit: usize) -> Vec<LogEntry> {
        let firsts = self.first_indexes();
        // The last file that begins at or before the wanted entry.
        let begin = firsts.partition_point(|first| *first <= after.saturating_add(1)).saturating_sub(1);
        let mut found = Vec::new();
        for first in &firsts[begin..] {
            // A file that was removed meanwhile is skipped.
            let Ok(file) = self.open(*first) else { continue };
            let mut reader = BufReader::new(file);
            let mut line = Vec::new();
            while found.len() < limit {
                line.clear();
                let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
                if !read.is_ok_and(|count| count > 0) || line.last() != Some(&b'\n') {
                    break;
                }
                found.extend(parse_line(&line).filter(|entry| entry.index > after));
            }
        }
        found
    }

    /// The numbers of the files' first entries, sorted.
    fn first_indexes(&self) -> Vec<u64> {
        let number = |name: &[u8]| str::from_utf8(name).ok()?.strip_suffix(".jsonl")?.parse().ok();
        let entries = rustix::fs::Dir::read_from(&self.0).into_iter().flatten().flatten();
        let mut numbers: Vec<u64> =
            entries.filter_map(|entry| number(entry.file_name().to_bytes())).collect();
        numbers.sort_unstable();
        numbers
    }

    fn open(&self, first: u64) -> io::Result<File> {
        self.open_file(first, OFlag::O_RDONLY | OFlag::O_NONBLOCK)
    }

    fn open_for_append(&self, first: u64) -> io::Result<File> {
        self.open_file(first, OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT)
    }

    fn open_file(&self, first: u64, how: OFlag) -> io::Result<File> {
        let flags = how | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, file_name(first).as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map(File::from)?)
    }

    fn remove(&self, first: u64) {
        let _ = unlinkat(&self.0, file_name(first).as_str(), UnlinkatFlags::NoRemoveDir);
    }
}

impl AsFd for LogFiles {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The number of the oldest entry that is still returned when `last` is the newest.
pub fn oldest_index(last: u64) -> u64 {
    last.saturating_sub(MAX_ENTRIES) + 1
}

fn parse_line(line: &[u8]) -> Option<LogEntry> {
    serde_json::from_slice(line).ok()
}

fn file_name(first: u64) -> String {
    format!("{first:020}.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(directory: &Path, after: u64, limit: usize) -> Vec<LogEntry> {
        LogFiles::open_read_only(directory)
            .map(|pieces| pieces.entries_after(after, limit))
            .unwrap_or_default()
    }

    fn numbers(directory: &Path, from: u64, limit: usize) -> Vec<u64> {
        read(directory, from, limit).iter().map(|entry| entry.index).collect()
    }

    #[test]
    fn kc_32_the_oldest_go_a_cursor_finds_its_place_and_numbers_go_on() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        assert!(read(directory, 0, 10).is_empty());
        let mut writer = LogWriter::open(directory).unwrap();
        for count in 1..=20_000u64 {
            if count % 7_001 == 0 {
                writer = LogWriter::open(directory).unwrap();
            }
            writer.append(count, LogLevel::Info, &count.to_string()).unwrap();
        }
        assert_eq!(writer.last_index(), 20_000);
        let kept = numbers(directory, 0, usize::MAX);
        assert!(
            (MAX_ENTRIES..=MAX_ENTRIES + ENTRIES_PER_FILE).contains(&(kept.len() as u64)),
            "{}",
            kept.len()
        );
        assert!(kept.windows(2).all(|two| two[1] == two[0] + 1) && kept.last() == Some(&20_000));
        assert_eq!(numbers(directory, 15_000, 3), [15_001, 15_002, 15_003]);
        assert_eq!(numbers(directory, 20_000, 3), [0; 0]);
        assert_eq!(numbers(directory, u64::MAX, 3), [0; 0]);
        assert_eq!(oldest_index(20_000), 10_001);
    }

    #[test]
    fn the_disk_is_bounded_whatever_the_entries_are() {
        let place = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::open(place.path()).unwrap();
        for _ in 0..1000 {
            writer.append(0, LogLevel::Info, &"\u{1}".repeat(MAX_TEXT + 1)).unwrap();
        }
        let files = fs::read_dir(log_directory(place.path())).unwrap().flatten();
        let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes <= MAX_FILES as u64 * MAX_FILE_BYTES, "{bytes}");
        let newest = read(place.path(), 999, 10);
        assert_eq!((newest.len(), newest[0].text.len()), (1, MAX_TEXT));
    }

    #[test]
    fn half_a_line_is_as_none_and_the_next_writer_takes_its_number() {
        let place = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::open(place.path()).unwrap();
        writer.append(1, LogLevel::Warn, "one").unwrap();
        let file = log_directory(place.path()).join(file_name(1));
        let mut text = fs::read(&file).unwrap();
        text.extend_from_slice(b"{\"index\":2,\"ts\":3,\"lev");
        fs::write(&file, text).unwrap();
        assert_eq!(numbers(place.path(), 0, 10), [1]);
        let mut writer = LogWriter::open(place.path()).unwrap();
        writer.append(1, LogLevel::Warn, "two").unwrap();
        assert_eq!(numbers(place.path(), 0, 10), [1, 2]);
    }
}
