//! Lists the names in a directory.

use super::{Workspace, file_error, parse_workspace_path};
use rustix::fs::{RawDir, SeekFrom, seek};
use saggar_sys::beneath::{self, FileKind, FileMeta};
use saggar_sys::error::Result;
use serde::Serialize;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One name.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct DirectoryEntry {
    /// The name; bytes that are not UTF-8 are replaced by U+FFFD.
    pub name: String,
    /// Type of the file.
    pub kind: &'static str,
    /// Size in bytes.
    pub size: u64,
    /// Permissions, as a number.
    pub mode: u32,
    /// Time of the last change of the content, in milliseconds since the Unix epoch.
    pub mtime: i64,
}

/// A part of a directory's names.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct DirectoryListing {
    /// The names, in the order of the directory.
    pub entries: Vec<DirectoryEntry>,
    /// Cursor of the next part; `None` after the last one.
    pub next: Option<String>,
}

impl Workspace {
    /// Lists at most `limit` names of the directory at `path`, from the cursor `after` of an earlier listing on.
    ///
    /// # Errors
    /// [`Code::Invalid`](saggar_sys::error::Code) for a path that is not below the workspace, `Refused` for a file that is
    /// not a directory, `System`.
    pub fn list(&self, path: &str, after: u64, limit: usize) -> Result<DirectoryListing> {
        let path = parse_workspace_path(path)?;
        self.read_listing(&path, after, limit).map_err(|e| file_error("list", &path, &e))
    }

    fn read_listing(&self, path: &Path, after: u64, limit: usize) -> io::Result<DirectoryListing> {
        let directory = beneath::open_directory(self.root.as_fd(), path)?;
        if after > 0 {
            seek(&directory, SeekFrom::Start(after))?;
        }
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut names = RawDir::new(&directory, &mut buffer);
        let (mut entries, mut last) = (Vec::new(), after);
        while let Some(name) = names.next() {
            let name = name?;
            if entries.len() == limit {
                return Ok(DirectoryListing { entries, next: Some(last.to_string()) });
            }
            last = name.next_entry_cookie();
            let bytes = name.file_name().to_bytes();
            if !matches!(bytes, b"." | b"..") {
                entries.extend(read_entry(directory.as_fd(), bytes)?);
            }
        }
        Ok(DirectoryListing { entries, next: None })
    }
}

/// The entry of a name; `None` if it was removed meanwhile.
fn read_entry(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<DirectoryEntry>> {
    let name = OsStr::from_bytes(name);
    Ok(beneath::stat_beneath(directory, name)?.map(|meta| describe(name, &meta)))
}

/// The entry of a name with this metadata.
pub(super) fn describe(name: &OsStr, meta: &FileMeta) -> DirectoryEntry {
    DirectoryEntry {
        name: name.to_string_lossy().into_owned(),
        kind: meta.kind.name(),
        size: if meta.kind == FileKind::File { meta.size } else { 0 },
        mode: meta.mode,
        mtime: to_milliseconds(meta.mtime),
    }
}

/// Converts nanoseconds.
pub(super) fn to_milliseconds(time: i128) -> i64 {
    i64::try_from(time / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_comes_once_some_at_a_time() {
        let scratch = tempfile::tempdir().unwrap();
        let names: BTreeSet<String> =
            (0..500).map(|number| format!("name-{number}-{}", "x".repeat(100))).collect();
        names.iter().for_each(|name| std::fs::write(scratch.path().join(name), "abc").unwrap());
        let workspace = Workspace::new(beneath::open_root(scratch.path()).unwrap(), Vec::new());
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let DirectoryListing { entries, next } = workspace.list(".", after, 7).unwrap();
            assert!(entries.len() <= 7);
            assert!(entries.iter().all(|entry| (entry.kind, entry.size) == ("file", 3)));
            found.extend(entries.into_iter().map(|entry| entry.name));
            match next {
                Some(next) => after = next.parse().unwrap(),
                None => break,
            }
        }
        assert_eq!(found.len(), names.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
    }
}
