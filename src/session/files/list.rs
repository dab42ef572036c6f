//! Names of a directory.

use super::{Workspace, plain, refused};
use crate::error::Result;
use crate::session::beneath::{self, Kind, Meta};
use rustix::fs::{RawDir, SeekFrom, seek};
use serde::Serialize;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One name.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The name; what of it is not UTF-8 is U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// Bytes of a file.
    pub size: u64,
    /// Permissions, as a number.
    pub mode: u32,
    /// When its content was changed, in milliseconds since 1970.
    pub mtime: i64,
}

/// Some names.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// In the order that the directory has them in.
    pub entries: Vec<Entry>,
    /// Where the next ones begin; nothing after the last.
    pub next: Option<String>,
}

impl Workspace {
    /// At most `limit` names of the directory at `path`, from `after` on, which an earlier listing gave.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::error::Code) for a path that is not below the workspace, `Refused` for what is no directory,
    /// `System`.
    pub fn list(&self, path: &str, after: u64, limit: usize) -> Result<Listing> {
        let path = plain(path)?;
        self.listed(&path, after, limit).map_err(|e| refused("list", &path, &e))
    }

    fn listed(&self, path: &Path, after: u64, limit: usize) -> io::Result<Listing> {
        let directory = beneath::directory(self.root.as_fd(), path)?;
        if after > 0 {
            seek(&directory, SeekFrom::Start(after))?;
        }
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut names = RawDir::new(&directory, &mut buffer);
        let (mut entries, mut last) = (Vec::new(), after);
        while let Some(name) = names.next() {
            let name = name?;
            if entries.len() == limit {
                return Ok(Listing { entries, next: Some(last.to_string()) });
            }
            last = name.next_entry_cookie();
            let bytes = name.file_name().to_bytes();
            if !matches!(bytes, b"." | b"..") {
                entries.extend(entry(directory.as_fd(), bytes)?);
            }
        }
        Ok(Listing { entries, next: None })
    }
}

/// One that is gone by now is none.
fn entry(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Entry>> {
    let found = beneath::look(directory, std::ffi::OsStr::from_bytes(name))?;
    Ok(found.map(|Meta { kind, size, mode, mtime, .. }| Entry {
        name: String::from_utf8_lossy(name).into_owned(),
        kind: kind.name(),
        size: if kind == Kind::File { size } else { 0 },
        mode,
        mtime: milliseconds(mtime),
    }))
}

/// Of nanoseconds.
pub(super) fn milliseconds(time: i128) -> i64 {
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
        let workspace = Workspace::new(beneath::root(scratch.path()).unwrap(), Vec::new());
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let Listing { entries, next } = workspace.list(".", after, 7).unwrap();
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
