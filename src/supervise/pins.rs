//! Watches that the protected paths stay pinned and the hidden ones masked (DECISIONS 5): a rename on the host takes
//! the sandbox's mount away with it, and the path could then be written or read. The kernel tells of every change of a mount table by
//! POLLPRI on mountinfo (proc_pid_mountinfo(5)).

use super::status::{Outcome, Reason, runtime};
use crate::error::{Code, Error};
use crate::spec::Pin;
use crate::stage::launcher::Launcher;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// The mount table of pid 1, and the pins that must be in it.
#[derive(Debug)]
pub(super) struct PinWatch {
    table: File,
    pins: Vec<PathBuf>,
}

impl PinWatch {
    /// Watches the pins of the sandbox whose first process has this mount table, and has made them; `None` when there
    /// are none.
    ///
    /// # Errors
    /// As [`PinWatch::check`]: what was undone before we looked would not be told by the kernel.
    pub(super) fn new(
        table: impl FnOnce() -> io::Result<File>,
        pins: &[Pin],
        registry: &Registry,
        token: Token,
    ) -> Outcome<Option<Self>> {
        if pins.is_empty() {
            return Ok(None);
        }
        let table = match table() {
            Ok(table) => table,
            // A process on its way out has first no root (ENOENT), then no mounts (EINVAL): a short program, and
            // its sandbox is over.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOENT | libc::ESRCH)) => {
                return Ok(None);
            }
            Err(e) => return Err(runtime(unwatched(e))),
        };
        let watched = registry.register(&mut SourceFd(&table.as_raw_fd()), token, Interest::PRIORITY);
        watched.map_err(|e| runtime(unwatched(e)))?;
        let mut watch = PinWatch { table, pins: pins.iter().map(|pin| pin.at.clone()).collect() };
        watch.check().map(|()| Some(watch))
    }

    /// Looks whether every pin is still there.
    ///
    /// # Errors
    /// [`Reason::Policy`], naming the first that is not.
    pub(super) fn check(&mut self) -> Outcome<()> {
        let Some(lost) = self.lost() else { return Ok(()) };
        let message =
            format!("{} was replaced on the host while the sandbox protected or hid it", lost.display());
        let error = Error::new(Code::Refused, message)
            .hint("a rename takes the mount over the old file away with it; start again");
        Err((Reason::Policy, error))
    }

    /// A pin that is no longer there.
    fn lost(&mut self) -> Option<&PathBuf> {
        let mut text = Vec::new();
        let read = self.table.rewind().and_then(|()| self.table.read_to_end(&mut text));
        // Without its mounts the sandbox is gone, and that is told elsewhere.
        if read.is_err() || text.is_empty() {
            return None;
        }
        let points: std::collections::HashSet<Vec<u8>> = text
            .split(|byte| *byte == b'\n')
            .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
            .map(unescape)
            .collect();
        self.pins.iter().find(|pin| !points.contains(pin.as_os_str().as_encoded_bytes()))
    }
}

/// The mount table of this first process of a sandbox: from the launcher, which can see every process.
pub(super) fn table(launcher: Option<&Launcher>, pid: i32) -> io::Result<File> {
    match launcher {
        Some(launcher) => launcher.mounts().map(File::from).map_err(io::Error::from),
        None => File::open(format!("/proc/{pid}/mountinfo")),
    }
}

fn unwatched(error: io::Error) -> Error {
    Error::system("watch the mounts of the sandbox", error)
}

/// Space, tab, newline and backslash stand as `\ooo`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match octal {
            Some(value) => {
                plain.push(value);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #[test]
    fn odd_bytes_of_a_mount_point_are_read_back() {
        assert_eq!(super::unescape(br"/a\040b\134c"), b"/a b\\c");
        assert_eq!(super::unescape(br"/a\0"), br"/a\0");
    }
}
