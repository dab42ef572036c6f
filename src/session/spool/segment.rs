//! One file of the spool: the header of a segment, then records.

use crate::bridge::proto::spool::{
    Header, Kind, NUMBERS_LOST, RECORD_HEADER, Record, SEGMENT_HEADER, Segment as Head,
};
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Under this name a segment is made; it is renamed when it is whole.
const UNFINISHED: &str = "segment.new";
const SUFFIX: &str = ".seg";

/// A segment that is there.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) head: Head,
    file: File,
    /// Up to here it holds what it should; behind it may be half a record.
    pub(super) length: u64,
    /// Where its records begin that no other segment has: behind the copies of what had begun before it.
    pub(super) start: u64,
}

/// What a look through all records of a segment finds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The highest number that was given before its end.
    pub(super) newest: u64,
    /// The highest name of a command.
    pub(super) newest_command: u64,
    /// Commands that begin in it and do not end, with the JSON of their ids.
    pub(super) unended: Vec<(u64, Vec<u8>)>,
    /// Its last record is the end of a run in good order.
    pub(super) is_closed: bool,
}

/// The name of the segment whose first event has this number.
fn name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// The number in the name of a segment.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

impl Segment {
    /// Opens what is there; `None` when it is no segment.
    pub(super) fn open(directory: &OwnedFd, first: u64) -> io::Result<Option<Segment>> {
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(directory, name(first).as_str(), flags, Mode::empty())?);
        let metadata = file.metadata()?;
        let mut header = [0; SEGMENT_HEADER];
        if !metadata.is_file() || !read_all(&file, &mut header, 0)? {
            return Ok(None);
        }
        let head = Head::read(&header).filter(|head| head.first == first);
        let start = SEGMENT_HEADER as u64;
        Ok(head.map(|head| Segment { head, file, length: metadata.len(), start }))
    }

    /// Makes a segment that begins with these records. It has its name when it is whole.
    pub(super) fn create(directory: &OwnedFd, head: Head, records: &[u8]) -> io::Result<Segment> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let _ = unlinkat(directory, UNFINISHED, UnlinkatFlags::NoRemoveDir);
        let file = File::from(openat(directory, UNFINISHED, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        let made = file
            .write_all_at(&head.encode(), 0)
            .and_then(|()| file.write_all_at(records, SEGMENT_HEADER as u64))
            .and_then(|()| Ok(renameat(directory, UNFINISHED, directory, name(head.first).as_str())?));
        if let Err(error) = made {
            let _ = unlinkat(directory, UNFINISHED, UnlinkatFlags::NoRemoveDir);
            return Err(error);
        }
        let length = SEGMENT_HEADER as u64 + records.len() as u64;
        Ok(Segment { head, file, length, start: length })
    }

    /// Removes its file; it is read as long as it is held.
    pub(super) fn remove(&self, directory: &OwnedFd) {
        let name = name(self.head.first);
        // Only our own: whoever put another file there may keep it.
        let same = nix::sys::stat::fstatat(directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
            .ok()
            .zip(fstat(self.file.as_fd()).ok())
            .is_some_and(|(there, ours)| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino));
        if same {
            let _ = unlinkat(directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Removes what stands under the name of a segment and is none.
    pub(super) fn remove_other(directory: &OwnedFd, first: u64) {
        let _ = unlinkat(directory, name(first).as_str(), UnlinkatFlags::NoRemoveDir);
    }

    /// Writes at the end. What cannot be written whole is not there.
    pub(super) fn append(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        // Half a record of an earlier failure: what is in it must never be read as records.
        if self.file.metadata()?.len() > self.length {
            self.file.set_len(self.length)?;
        }
        let mut end = self.length;
        for part in parts {
            if let Err(error) = self.file.write_all_at(part, end) {
                // Or before the next one, if this fails.
                let _ = self.file.set_len(self.length);
                return Err(error);
            }
            end += part.len() as u64;
        }
        self.length = end;
        Ok(())
    }

    /// Says that events up to this number are lost, where there is room for it in any case.
    pub(super) fn lose(&mut self, up_to: u64) -> io::Result<()> {
        self.file.write_all_at(&Head::encode_lost(up_to), NUMBERS_LOST)?;
        self.head.lost = up_to;
        Ok(())
    }

    /// On the disk, also when the power goes.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The header of the record at `offset`; `None` where there is no whole one.
    pub(super) fn header(&self, offset: u64) -> Option<Header> {
        let mut bytes = [0; RECORD_HEADER];
        let whole = offset.checked_add(RECORD_HEADER as u64)? <= self.length;
        if !whole || !read_all(&self.file, &mut bytes, offset).ok()? {
            return None;
        }
        let header = Header::read(&bytes)?;
        (offset.checked_add(header.size())? <= self.length).then_some(header)
    }

    /// The body of that record, with room for a number behind it; `None` when it is not as it was written.
    pub(super) fn body(&self, offset: u64, header: &Header) -> Option<Vec<u8>> {
        let mut body = vec![0; usize::try_from(header.length).ok()?];
        let whole = read_all(&self.file, &mut body, offset + RECORD_HEADER as u64).ok()?;
        (whole && header.fits(&body)).then_some(body)
    }

    /// Looks through all of it, and finds its end: behind the last record that is as it was written.
    pub(super) fn look(&mut self) -> Contents {
        let mut found = Contents::default();
        let mut offset = SEGMENT_HEADER as u64;
        let mut at_start = true;
        while let Some(header) = self.header(offset) {
            let Some(body) = self.body(offset, &header) else { break };
            let begun = header.kind == Kind::Begun;
            offset += header.size();
            at_start &= begun;
            if at_start {
                self.start = offset;
            }
            found.is_closed = header.kind == Kind::Closed;
            found.newest_command = found.newest_command.max(header.command);
            found.newest = found.newest.max(header.number);
            match header.kind {
                Kind::Begun => found.unended.push((header.command, body)),
                Kind::Last | Kind::Ended => {
                    found.unended.retain(|(command, _)| *command != header.command);
                }
                Kind::Event | Kind::Closed => {}
            }
        }
        self.length = offset;
        found
    }
}

/// Appends a record to bytes that are to be written; nothing, when it is longer than a record may be.
pub(super) fn encode(record: &Record<'_>, to: &mut Vec<u8>) {
    if let Some(header) = record.header() {
        to.extend_from_slice(&header);
        to.extend_from_slice(record.body);
    }
}

/// Fills `to`; false when the file ends before.
fn read_all(file: &File, to: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(to, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
