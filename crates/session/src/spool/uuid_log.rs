//! The newest uuids of one kind, one line of JSON each, in two files: the newer one is appended to until it has as many
//! as are kept, then it replaces the older one.

use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// Largest file in bytes, whatever the number of uuids to keep.
const MAX_FILE_SIZE: u64 = 16 << 20;

/// Uuids on disk.
#[derive(Debug)]
pub(super) struct UuidLog {
    name: &'static str,
    file: Option<File>,
    limit: usize,
    count: usize,
    length: u64,
    /// Bytes to be written.
    pending: Vec<u8>,
}

impl UuidLog {
    /// Opens the files; returns the newest `limit` uuids, oldest first.
    pub(super) fn open(directory: &OwnedFd, name: &'static str, limit: usize) -> (Self, Vec<String>) {
        let mut all = VecDeque::new();
        read_uuids(directory, &old_file_name(name), &mut all);
        let (count, torn) = read_uuids(directory, name, &mut all);
        while all.len() > limit {
            all.pop_front();
        }
        let file = open_file(directory, name).ok();
        let length = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        // A partial line of a run that was killed is ended, so that it does not corrupt the next one.
        let pending = if torn { vec![b'\n'] } else { Vec::new() };
        (UuidLog { name, file, limit, count, length, pending }, all.into())
    }

    /// Appends a uuid; it is written by the next [`UuidLog::flush`].
    pub(super) fn append(&mut self, uuid: &str) {
        // Serialization to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.pending, uuid);
        self.pending.push(b'\n');
        self.count += 1;
    }

    pub(super) fn flush(&mut self, directory: &OwnedFd) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        if self.file.is_none() {
            self.file = Some(open_file(directory, self.name)?);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&pending)?;
            self.length += pending.len() as u64;
        }
        if self.count >= self.limit || self.length >= MAX_FILE_SIZE {
            renameat(directory, self.name, directory, old_file_name(self.name).as_str())?;
            (self.file, self.count, self.length) = (None, 0, 0);
        }
        Ok(())
    }
}

fn old_file_name(name: &str) -> String {
    format!("{name}.old")
}

fn open_file(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?))
}

/// Adds the uuids of a file; returns the number of lines, and whether the last one is partial.
fn read_uuids(directory: &OwnedFd, name: &str, to: &mut VecDeque<String>) -> (usize, bool) {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut text = Vec::new();
    let Ok(file) = openat(directory, name, flags, Mode::empty()) else { return (0, false) };
    // A file that cannot be read is ignored: at worst a message is sent twice.
    let _ = File::from(file).take(MAX_FILE_SIZE + (1 << 20)).read_to_end(&mut text);
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let before = to.len();
    to.extend(lines);
    (to.len() - before, !text.is_empty() && !text.ends_with(b"\n"))
}
