//! Small files that have their former or their new content after a crash of the machine.

use saggar_sys::replace_file::{SyncPolicy, Writers, replace_file};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Replaces a file by one with mode 0600. Its directory is created with mode 0700. A lock of the caller excludes other
/// writers.
///
/// # Errors
/// Fails if the file cannot be written; the former one then remains.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let directory = file.parent().ok_or(io::ErrorKind::NotFound)?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    replace_file(file, Writers::One, 0o600, SyncPolicy::Content, |output| output.write_all(content))?;
    File::open(directory)?.sync_all()
}
