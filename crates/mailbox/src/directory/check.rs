//! What the mailbox requires of its files and directories before it uses them.

use crate::error::{Error, ErrorKind, Result};
use rustix::fs::{FileType, Stat};
use std::path::Path;

/// A file must be a regular file of this user with one link, so that its content is not shared with another name.
pub(super) fn check_file(path: &Path, stat: &Stat, is_written: bool) -> Result<()> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(unsafe_file(path, "it is not a regular file"));
    }
    check_owner(path, stat)?;
    if stat.st_nlink != 1 {
        return Err(unsafe_file(path, &format!("it has {} hard links", stat.st_nlink)));
    }
    if is_written { check_writable(path, stat) } else { Ok(()) }
}

/// A directory must be writable for this user only: another user with write access could replace every file in it.
pub(super) fn check_directory(path: &Path, stat: &Stat) -> Result<()> {
    check_owner(path, stat)?;
    if stat.st_mode & 0o022 != 0 {
        return Err(unsafe_file(path, "other users can write to it"));
    }
    check_writable(path, stat)
}

fn check_owner(path: &Path, stat: &Stat) -> Result<()> {
    if stat.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(unsafe_file(path, &format!("it belongs to user id {}", stat.st_uid)))
}

/// The kernel lets root write to read-only files; the mailbox respects the mode for every user.
fn check_writable(path: &Path, stat: &Stat) -> Result<()> {
    if stat.st_mode & 0o200 != 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsafe, format!("cannot use {}: it is read-only", path.display()))
        .with_hint("make it writable for its owner (chmod u+w)"))
}

/// The error of a file that the mailbox does not use.
pub(super) fn unsafe_file(path: &Path, cause: &str) -> Error {
    Error::new(ErrorKind::Unsafe, format!("cannot use {}: {cause}", path.display()))
        .with_hint("move it away or correct it; only this user may own and write the files of a mailbox")
}
