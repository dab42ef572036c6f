//! One file of the spool: the header of a segment, then records.

use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use saggar_bridge::proto::spool::{
    LOST_NUMBERS_OFFSET, RECORD_HEADER_SIZE, SEGMENT_HEADER_SIZE, SpoolRecord, SpoolRecordHeader,
    SpoolRecordKind, SpoolSegmentHeader as Head,
};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Temporary name of a segment that is being created.
const TEMPORARY_NAME: &str = "segment.new";
const SUFFIX: &str = ".seg";

/// An existing segment.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) head: Head,
    file: File,
    /// End of the valid records; a partial record may follow.
    pub(super) length: u64,
    /// Offset of the first record that is in no other segment: after the copies of earlier commands.
    pub(super) start: u64,
}

/// The result of a scan of all records of a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentContents {
    /// The highest number that was assigned before its end.
    pub(super) newest: u64,
    /// The highest id of a command.
    pub(super) newest_command: u64,
    /// Commands that start in it and do not end, with the JSON of their ids.
    pub(super) unended: Vec<(u64, Vec<u8>)>,
    /// Its last record marks the orderly end of a run.
    pub(super) is_closed: bool,
}

/// The name of the segment whose first event has this number.
fn segment_name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// The number in the name of a segment.
pub(super) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

impl SegmentFile {
    /// Opens a segment; `None` when the file is not a valid one.
    pub(super) fn open(directory: &OwnedFd, first: u64) -> io::Result<Option<SegmentFile>> {
        SegmentFile::open_with(directory, first, OFlag::O_RDWR)
    }

    /// The same, to read it.
    pub(super) fn open_read_only(directory: &OwnedFd, first: u64) -> io::Result<Option<SegmentFile>> {
        SegmentFile::open_with(directory, first, OFlag::O_RDONLY)
    }

    fn open_with(directory: &OwnedFd, first: u64, access: OFlag) -> io::Result<Option<SegmentFile>> {
        let flags = access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(directory, segment_name(first).as_str(), flags, Mode::empty())?);
        let metadata = file.metadata()?;
        let mut header = [0; SEGMENT_HEADER_SIZE];
        if !metadata.is_file() || !read_exact_at(&file, &mut header, 0)? {
            return Ok(None);
        }
        let head = Head::read(&header).filter(|head| head.first_number == first);
        let start = SEGMENT_HEADER_SIZE as u64;
        Ok(head.map(|head| SegmentFile { head, file, length: metadata.len(), start }))
    }

    /// Creates a segment that begins with these records. It gets its name when it is complete.
    pub(super) fn create(directory: &OwnedFd, head: Head, records: &[u8]) -> io::Result<SegmentFile> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let _ = unlinkat(directory, TEMPORARY_NAME, UnlinkatFlags::NoRemoveDir);
        let file = File::from(openat(directory, TEMPORARY_NAME, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        let made = file
            .write_all_at(&head.encode(), 0)
            .and_then(|()| file.write_all_at(records, SEGMENT_HEADER_SIZE as u64))
            .and_then(|()| {
                Ok(renameat(directory, TEMPORARY_NAME, directory, segment_name(head.first_number).as_str())?)
            });
        if let Err(error) = made {
            let _ = unlinkat(directory, TEMPORARY_NAME, UnlinkatFlags::NoRemoveDir);
            return Err(error);
        }
        let length = SEGMENT_HEADER_SIZE as u64 + records.len() as u64;
        Ok(SegmentFile { head, file, length, start: length })
    }

    /// Removes its file; it can be read as long as it is open.
    pub(super) fn remove(&self, directory: &OwnedFd) {
        let name = segment_name(self.head.first_number);
        // Only our own file: one that another process put there is kept.
        let same = nix::sys::stat::fstatat(directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
            .ok()
            .zip(fstat(self.file.as_fd()).ok())
            .is_some_and(|(there, ours)| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino));
        if same {
            let _ = unlinkat(directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Removes a file with the name of a segment that is not a valid one.
    pub(super) fn remove_invalid(directory: &OwnedFd, first: u64) {
        let _ = unlinkat(directory, segment_name(first).as_str(), UnlinkatFlags::NoRemoveDir);
    }

    /// Appends at the end, completely or not at all.
    pub(super) fn append(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        // A partial record of an earlier failure must never be read as records.
        if self.file.metadata()?.len() > self.length {
            self.file.set_len(self.length)?;
        }
        let mut end = self.length;
        for part in parts {
            if let Err(error) = self.file.write_all_at(part, end) {
                // The next append repeats it if this fails.
                let _ = self.file.set_len(self.length);
                return Err(error);
            }
            end += part.len() as u64;
        }
        self.length = end;
        Ok(())
    }

    /// Records that events up to this number are lost; space for that is always reserved.
    pub(super) fn record_lost(&mut self, up_to: u64) -> io::Result<()> {
        self.file.write_all_at(&Head::encode_lost(up_to), LOST_NUMBERS_OFFSET)?;
        self.head.lost_up_to = up_to;
        Ok(())
    }

    /// Syncs the file to disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The header of the record at `offset`; `None` if it is incomplete.
    pub(super) fn read_header(&self, offset: u64) -> Option<SpoolRecordHeader> {
        let mut bytes = [0; RECORD_HEADER_SIZE];
        let whole = offset.checked_add(RECORD_HEADER_SIZE as u64)? <= self.length;
        if !whole || !read_exact_at(&self.file, &mut bytes, offset).ok()? {
            return None;
        }
        let header = SpoolRecordHeader::read(&bytes)?;
        (offset.checked_add(header.size())? <= self.length).then_some(header)
    }

    /// The body of that record, with room for a number after it; `None` when it is damaged.
    pub(super) fn read_body(&self, offset: u64, header: &SpoolRecordHeader) -> Option<Vec<u8>> {
        let mut body = vec![0; usize::try_from(header.length).ok()?];
        let whole = read_exact_at(&self.file, &mut body, offset + RECORD_HEADER_SIZE as u64).ok()?;
        (whole && header.matches_body(&body)).then_some(body)
    }

    /// Scans all records, and sets the end after the last valid one.
    pub(super) fn scan(&mut self) -> SegmentContents {
        let mut found = SegmentContents::default();
        let mut offset = SEGMENT_HEADER_SIZE as u64;
        let mut at_start = true;
        while let Some(header) = self.read_header(offset) {
            let Some(body) = self.read_body(offset, &header) else { break };
            let begun = header.kind == SpoolRecordKind::CommandStarted;
            offset += header.size();
            at_start &= begun;
            if at_start {
                self.start = offset;
            }
            found.is_closed = header.kind == SpoolRecordKind::RunClosed;
            found.newest_command = found.newest_command.max(header.command);
            found.newest = found.newest.max(header.number);
            match header.kind {
                SpoolRecordKind::CommandStarted => found.unended.push((header.command, body)),
                SpoolRecordKind::LastEvent | SpoolRecordKind::CommandEnded => {
                    found.unended.retain(|(command, _)| *command != header.command);
                }
                SpoolRecordKind::Event | SpoolRecordKind::RunClosed => {}
            }
        }
        self.length = offset;
        found
    }
}

/// Encodes a record into a buffer; a record that is too long is dropped.
pub(super) fn encode(record: &SpoolRecord<'_>, to: &mut Vec<u8>) {
    if let Some(header) = record.header() {
        to.extend_from_slice(&header);
        to.extend_from_slice(record.body);
    }
}

/// Fills `to`; false when the file ends before.
fn read_exact_at(file: &File, to: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(to, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
