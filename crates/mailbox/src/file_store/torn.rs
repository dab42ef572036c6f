//! The repair of a last line without a newline, which the crash of a writer left (AM-11).

use super::lines::FileReader;
use crate::directory::Directory;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Torn lines, moved out of the messages' file. Each has a newline here.
const TORN_NAME: &str = "bridge.torn";

/// A last line without a newline.
#[derive(Debug)]
pub(super) struct TornLine {
    /// Offset of the line in bytes.
    pub(super) offset: u64,
    /// Whether the line is a whole message, so that only its newline is missing.
    pub(super) is_message: bool,
}

impl TornLine {
    /// Gives a whole message its newline, and moves the bytes of another line to `bridge.torn`. They are durable there
    /// before the file is cut, so that a crash in between loses nothing.
    pub(super) fn repair(&self, directory: &Directory, log: &mut File, log_path: &Path) -> Result<()> {
        let failed = |operation: &str, path: &Path, cause: io::Error| {
            Error::system(format_args!("{operation} {}", path.display()), cause)
        };
        if self.is_message {
            return log
                .write_all(b"\n")
                .and_then(|()| log.sync_data())
                .map_err(|cause| failed("complete the last line of", log_path, cause));
        }
        let size = log.metadata().map_err(|cause| failed("stat", log_path, cause))?.len();
        let mut torn = directory.open_or_create_file(TORN_NAME)?;
        io::copy(&mut FileReader::new(log, self.offset).take(size.saturating_sub(self.offset)), &mut torn)
            .and_then(|_| torn.write_all(b"\n"))
            .and_then(|()| torn.sync_data())
            .map_err(|cause| failed("append to", &directory.path_of(TORN_NAME), cause))?;
        log.set_len(self.offset)
            .and_then(|()| log.sync_data())
            .map_err(|cause| failed("cut the torn last line of", log_path, cause))
    }
}
