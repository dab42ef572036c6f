//! The log entries of a session: a ring on disk, so that they can be read when nobody serves it (KC-32).
//!
//! `<session>/logs/<number of the first entry>.jsonl`: each file takes [`PIECE`] entries or [`PIECE_BYTES`], one JSON
//! object a line, and the oldest go. Entries count from 1 without a gap, over all starts. One writes, who holds the
//! session's lock; anybody of its owner reads, at any time: an unfinished line at the end is as none.

use crate::bridge::proto::LogLevel;
use crate::error::{Error, Result};
use crate::state::lent;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How many entries there are at most.
pub const ENTRIES: u64 = 10_000;
/// What one file takes. One more than [`ENTRIES`] need is there while the newest fills.
const PIECE: u64 = 2_500;
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: usize = 5;
/// How much of one text is kept.
const TEXT: usize = 16 << 10;
/// The longest line that a reader takes: each byte of a text can become six.
const LINE: u64 = 6 * TEXT as u64 + 256;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

impl Entry {
    /// An entry with as much of the text as is kept.
    pub fn new(index: u64, ts: u64, level: LogLevel, text: &str) -> Self {
        let end = (0..=TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        Entry { index, ts, level, text: text[..end].to_owned() }
    }
}

/// Where the entries of the session in `directory` are.
pub fn place(directory: &Path) -> PathBuf {
    directory.join("logs")
}

/// The files of a log, below a descriptor: its supervisor has no right to any path that leads there.
#[derive(Debug)]
pub struct Pieces(OwnedFd);

/// Who adds entries.
#[derive(Debug)]
pub struct Writer {
    /// For messages.
    place: PathBuf,
    pieces: Pieces,
    /// The newest file, what number it begins with, and how long it is.
    file: Option<(File, u64, u64)>,
    last: u64,
}

impl Writer {
    /// Goes on where the last one stopped.
    ///
    /// # Errors
    /// As [`lent::open_directory`]; [`crate::error::Code::System`].
    pub fn open(directory: &Path) -> Result<Self> {
        let place = place(directory);
        let pieces = Pieces(lent::open_directory(&place)?);
        let mut writer = Writer { file: None, last: 0, pieces, place };
        if let Some(first) = writer.pieces.numbers().last().copied() {
            let path = writer.place.join(name(first));
            let fail = |e| Error::system(format_args!("open {}", path.display()), e);
            let mut text = Vec::new();
            let read = writer.pieces.open(first);
            read.and_then(|file| file.take(2 * PIECE_BYTES).read_to_end(&mut text)).map_err(fail)?;
            // A writer that was killed may have left half a line.
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let last = text[..whole].split(|byte| *byte == b'\n').filter_map(parse).next_back();
            writer.last = last.map_or(first.saturating_sub(1), |entry| entry.index);
            let file = writer.pieces.append(first).map_err(fail)?;
            file.set_len(whole as u64).map_err(fail)?;
            writer.file = Some((file, first, whole as u64));
        }
        Ok(writer)
    }

    /// The number of the newest entry; 0 when there was none.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Adds an entry at the end; the oldest make room for it.
    ///
    /// # Errors
    /// [`crate::error::Code::System`]; its number is taken even so.
    pub fn add(&mut self, ts: u64, level: LogLevel, text: &str) -> Result<()> {
        self.last += 1;
        let index = self.last;
        let mut line = serde_json::to_vec(&Entry::new(index, ts, level, text)).unwrap_or_default();
        line.push(b'\n');
        let is_full = |(_, first, length): &(File, u64, u64)| {
            index >= first + PIECE || length + line.len() as u64 > PIECE_BYTES
        };
        if self.file.as_ref().is_none_or(is_full) {
            let file = self.pieces.append(index);
            let path = || self.place.join(name(index));
            let file = file.map_err(|e| Error::system(format_args!("make {}", path().display()), e))?;
            self.file = Some((file, index, 0));
            let mut old = self.pieces.numbers();
            old.truncate(old.len().saturating_sub(PIECES));
            old.into_iter().for_each(|first| self.pieces.remove(first));
        }
        let place = &self.place;
        let Some((file, _, length)) = &mut self.file else { return Ok(()) };
        *length += line.len() as u64;
        // One write a line: a reader sees all of it or, for a moment, half of it.
        file.write_all(&line).map_err(|e| Error::system(format_args!("write to {}", place.display()), e))
    }

    /// Its files.
    pub fn pieces(&self) -> &Pieces {
        &self.pieces
    }
}

impl Pieces {
    /// Those of the session in `directory`; `None` when there are none.
    #[expect(
        clippy::disallowed_methods,
        reason = "the session's own directory, where no program of a sandbox can write"
    )]
    pub fn of(directory: &Path) -> Option<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        open(&place(directory), flags, Mode::empty()).ok().map(Pieces)
    }

    /// The entries after number `after`, the oldest first, at most `limit`; those that are gone are skipped.
    pub fn after(&self, after: u64, limit: usize) -> Vec<Entry> {
        let firsts = self.numbers();
        // The last file that begins at or before the wanted entry.
        let begin = firsts.partition_point(|first| *first <= after.saturating_add(1)).saturating_sub(1);
        let mut found = Vec::new();
        for first in &firsts[begin..] {
            // One that has gone since is as one that was gone before.
            let Ok(file) = self.open(*first) else { continue };
            let mut reader = BufReader::new(file);
            let mut line = Vec::new();
            while found.len() < limit {
                line.clear();
                let read = reader.by_ref().take(LINE).read_until(b'\n', &mut line);
                if !read.is_ok_and(|count| count > 0) || line.last() != Some(&b'\n') {
                    break;
                }
                found.extend(parse(&line).filter(|entry| entry.index > after));
            }
        }
        found
    }

    /// The numbers that the files begin with, in order.
    fn numbers(&self) -> Vec<u64> {
        let number = |name: &[u8]| str::from_utf8(name).ok()?.strip_suffix(".jsonl")?.parse().ok();
        let entries = rustix::fs::Dir::read_from(&self.0).into_iter().flatten().flatten();
        let mut numbers: Vec<u64> =
            entries.filter_map(|entry| number(entry.file_name().to_bytes())).collect();
        numbers.sort_unstable();
        numbers
    }

    fn open(&self, first: u64) -> io::Result<File> {
        self.piece(first, OFlag::O_RDONLY | OFlag::O_NONBLOCK)
    }

    fn append(&self, first: u64) -> io::Result<File> {
        self.piece(first, OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT)
    }

    fn piece(&self, first: u64, how: OFlag) -> io::Result<File> {
        let flags = how | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name(first).as_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR).map(File::from)?)
    }

    fn remove(&self, first: u64) {
        let _ = unlinkat(&self.0, name(first).as_str(), UnlinkatFlags::NoRemoveDir);
    }
}

impl AsFd for Pieces {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The number of the oldest entry that is still shown when `last` is the newest.
pub fn oldest(last: u64) -> u64 {
    last.saturating_sub(ENTRIES) + 1
}

fn parse(line: &[u8]) -> Option<Entry> {
    serde_json::from_slice(line).ok()
}

fn name(first: u64) -> String {
    format!("{first:020}.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(directory: &Path, after: u64, limit: usize) -> Vec<Entry> {
        Pieces::of(directory).map(|pieces| pieces.after(after, limit)).unwrap_or_default()
    }

    fn numbers(directory: &Path, from: u64, limit: usize) -> Vec<u64> {
        read(directory, from, limit).iter().map(|entry| entry.index).collect()
    }

    #[test]
    fn kc_32_the_oldest_go_a_cursor_finds_its_place_and_numbers_go_on() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        assert!(read(directory, 0, 10).is_empty());
        let mut writer = Writer::open(directory).unwrap();
        for count in 1..=20_000u64 {
            if count % 7_001 == 0 {
                writer = Writer::open(directory).unwrap();
            }
            writer.add(count, LogLevel::Info, &count.to_string()).unwrap();
        }
        assert_eq!(writer.last(), 20_000);
        let kept = numbers(directory, 0, usize::MAX);
        assert!((ENTRIES..=ENTRIES + PIECE).contains(&(kept.len() as u64)), "{}", kept.len());
        assert!(kept.windows(2).all(|two| two[1] == two[0] + 1) && kept.last() == Some(&20_000));
        assert_eq!(numbers(directory, 15_000, 3), [15_001, 15_002, 15_003]);
        assert_eq!(numbers(directory, 20_000, 3), [0; 0]);
        assert_eq!(numbers(directory, u64::MAX, 3), [0; 0]);
        assert_eq!(oldest(20_000), 10_001);
    }

    #[test]
    fn the_disk_is_bounded_whatever_the_entries_are() {
        let place = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(place.path()).unwrap();
        for _ in 0..1000 {
            writer.add(0, LogLevel::Info, &"\u{1}".repeat(TEXT + 1)).unwrap();
        }
        let files = fs::read_dir(super::place(place.path())).unwrap().flatten();
        let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes <= PIECES as u64 * PIECE_BYTES, "{bytes}");
        let newest = read(place.path(), 999, 10);
        assert_eq!((newest.len(), newest[0].text.len()), (1, TEXT));
    }

    #[test]
    fn half_a_line_is_as_none_and_the_next_writer_takes_its_number() {
        let place = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(place.path()).unwrap();
        writer.add(1, LogLevel::Warn, "one").unwrap();
        let file = super::place(place.path()).join(name(1));
        let mut text = fs::read(&file).unwrap();
        text.extend_from_slice(b"{\"index\":2,\"ts\":3,\"lev");
        fs::write(&file, text).unwrap();
        assert_eq!(numbers(place.path(), 0, 10), [1]);
        let mut writer = Writer::open(place.path()).unwrap();
        writer.add(1, LogLevel::Warn, "two").unwrap();
        assert_eq!(numbers(place.path(), 0, 10), [1, 2]);
    }
}
