//! The newest uuids of one kind, a line of JSON each, in two files: the newer one is added to until it holds as
//! many as are remembered, then it takes the place of the older one.

use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// However many are to be remembered, neither file grows beyond this.
const LONGEST: u64 = 16 << 20;

/// Uuids on disk.
#[derive(Debug)]
pub(super) struct Names {
    name: &'static str,
    file: Option<File>,
    limit: usize,
    count: usize,
    length: u64,
    /// Not yet written.
    pending: Vec<u8>,
}

impl Names {
    /// Opens what is there; with the newest `limit` uuids, oldest first.
    pub(super) fn open(directory: &OwnedFd, name: &'static str, limit: usize) -> (Self, Vec<String>) {
        let mut all = VecDeque::new();
        read(directory, &older(name), &mut all);
        let (count, torn) = read(directory, name, &mut all);
        while all.len() > limit {
            all.pop_front();
        }
        let file = open(directory, name).ok();
        let length = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        // Half a line of a run that was killed is ended, so that it spoils no other.
        let pending = if torn { vec![b'\n'] } else { Vec::new() };
        (Names { name, file, limit, count, length, pending }, all.into())
    }

    /// Adds a uuid; it is there after the next [`Names::flush`].
    pub(super) fn add(&mut self, uuid: &str) {
        // Writing a string to memory cannot fail.
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
            self.file = Some(open(directory, self.name)?);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&pending)?;
            self.length += pending.len() as u64;
        }
        if self.count >= self.limit || self.length >= LONGEST {
            renameat(directory, self.name, directory, older(self.name).as_str())?;
            (self.file, self.count, self.length) = (None, 0, 0);
        }
        Ok(())
    }
}

fn older(name: &str) -> String {
    format!("{name}.old")
}

fn open(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?))
}

/// Adds what a file holds; how many lines that are, and whether the last one is torn.
fn read(directory: &OwnedFd, name: &str, to: &mut VecDeque<String>) -> (usize, bool) {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut text = Vec::new();
    let Ok(file) = openat(directory, name, flags, Mode::empty()) else { return (0, false) };
    // What cannot be read is not remembered: at worst something comes twice.
    let _ = File::from(file).take(LONGEST + (1 << 20)).read_to_end(&mut text);
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let before = to.len();
    to.extend(lines);
    (to.len() - before, !text.is_empty() && !text.ends_with(b"\n"))
}
