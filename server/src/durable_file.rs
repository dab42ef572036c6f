//! Small files that have their former or their new content after a crash of the machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Replaces a file by one with mode 0600. Its directory is created with mode 0700.
///
/// # Errors
/// Fails if the file cannot be written; the former one then remains.
pub fn replace(file: &Path, content: &str) -> io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let directory = file.parent().ok_or(io::ErrorKind::NotFound)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut options = OpenOptions::new();
    let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    written.write_all(content.as_bytes())?;
    written.sync_all()?;
    fs::rename(&new, file)?;
    File::open(directory)?.sync_all()
}
