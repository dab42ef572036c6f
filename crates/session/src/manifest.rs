//! The manifest of a workspace: for each name of the folder, its state when it was copied and the state of the copy. It
//! tells later changes of the folder from those of the agent.
//!
//! Format: one line per name, `kind mode size mtime inode, the same of the copy and its ctime, path`. Bytes of the path
//! that are not plain are written as `%XX`. The file is not accessible to programs of the sandbox.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use saggar_sandbox::state;
use saggar_sys::beneath::{FileKind, FileMeta};
use saggar_sys::error::{Error, Result};
use saggar_sys::read;
use saggar_sys::replace_file::SyncPolicy;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Name of the file in the directory of a session.
const FILE_NAME: &str = "workspace.manifest";
/// Largest manifest that is read in bytes: 200 000 entries with long names.
const MAX_SIZE: u64 = 256 << 20;

/// The state of a name; equal stamps mean that it has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    kind: u8,
    mode: u32,
    size: u64,
    mtime: i128,
    inode: u64,
}

impl FileStamp {
    /// The current stamp. Of a directory only type and mode count: its entries have stamps of their own.
    pub(crate) fn from_meta(meta: &FileMeta) -> Self {
        let kind = match meta.kind {
            FileKind::File => b'f',
            FileKind::Directory => b'd',
            FileKind::Symlink => b'l',
            FileKind::Other(_) => b'o',
        };
        if meta.kind == FileKind::Directory {
            return FileStamp { kind, mode: meta.mode, size: 0, mtime: 0, inode: 0 };
        }
        FileStamp { kind, mode: meta.mode, size: meta.size, mtime: meta.mtime, inode: meta.inode }
    }
}

/// The manifest entry of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Its state in the folder.
    pub source: FileStamp,
    /// The state of the copy, and its ctime: an agent cannot set a ctime.
    pub copy: (FileStamp, i128),
}

impl ManifestEntry {
    /// The entry for the current states in the folder and in the workspace.
    pub(crate) fn from_metas(source: &FileMeta, copy: &FileMeta) -> Self {
        ManifestEntry { source: FileStamp::from_meta(source), copy: stamp_copy(copy) }
    }

    /// Whether the copy has not changed.
    pub(crate) fn is_untouched(&self, copy: &FileMeta) -> bool {
        self.copy == stamp_copy(copy)
    }

    /// Whether it was a directory.
    pub(crate) fn was_directory(&self) -> bool {
        self.source.kind == b'd'
    }

    /// Whether the file in the folder has not changed.
    pub(crate) fn is_source_unchanged(&self, source: &FileMeta) -> bool {
        self.source == FileStamp::from_meta(source)
    }
}

fn stamp_copy(meta: &FileMeta) -> (FileStamp, i128) {
    (FileStamp::from_meta(meta), if meta.kind == FileKind::Directory { 0 } else { meta.ctime })
}

/// The manifest entries by path.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Manifest {
    entries: BTreeMap<PathBuf, ManifestEntry>,
}

impl Manifest {
    /// The entry of `path`.
    pub fn get(&self, path: &Path) -> Option<&ManifestEntry> {
        self.entries.get(path)
    }

    /// Sets the entry of `path`; `None` removes it.
    pub fn set(&mut self, path: &Path, known: Option<ManifestEntry>) {
        match known {
            Some(known) => drop(self.entries.insert(path.to_owned(), known)),
            None => drop(self.entries.remove(path)),
        }
    }

    /// Removes the entries of `path` and everything below it.
    pub fn forget(&mut self, path: &Path) {
        self.entries.retain(|name, _| !name.starts_with(path));
    }

    /// Reads the manifest of a session. If it cannot be read it is empty: every name then counts as changed on both
    /// sides.
    pub fn load(session: &Path) -> Self {
        Manifest::parse(&read::small_file(&session.join(FILE_NAME), MAX_SIZE).unwrap_or_default())
    }

    /// Parses the text of [`Manifest::to_text`]; invalid lines are skipped.
    pub fn parse(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Manifest { entries: lines.filter_map(parse_line).collect() }
    }

    /// The manifest as text, a line for each name.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (path, known) in &self.entries {
            let (copy, ctime) = &known.copy;
            for stamp in [&known.source, copy] {
                let FileStamp { kind, mode, size, mtime, inode } = stamp;
                let _ = write!(text, "{} {mode:o} {size} {mtime} {inode} ", char::from(*kind));
            }
            let _ = write!(text, "{ctime} ");
            escape(path, &mut text);
            text.push('\n');
        }
        text
    }

    /// Removes the manifest of a session.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`].
    pub fn remove(session: &Path) -> Result<()> {
        let path = session.join(FILE_NAME);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::system(format_args!("remove {}", path.display()), e))
            }
            _ => Ok(()),
        }
    }

    /// Writes the manifest of a session atomically.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`].
    pub fn store(&self, session: &Path) -> Result<()> {
        // Not synced, since a start writes it: a manifest that a power failure has cut short counts as empty.
        let text = self.to_text();
        state::replace_record(&session.join(FILE_NAME), text.as_bytes(), 0o666, SyncPolicy::None)
    }
}

fn escape(path: &Path, text: &mut String) {
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | 0..=b' ' | 0x7f.. => drop(write!(text, "%{byte:02x}")),
            byte => text.push(char::from(*byte)),
        }
    }
}

fn parse_line(line: &[u8]) -> Option<(PathBuf, ManifestEntry)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let source = parse_stamp(&mut words)?;
    let copy = parse_stamp(&mut words)?;
    let ctime = words.next()?.parse().ok()?;
    let path = unescape(words.next()?)?;
    Some((path, ManifestEntry { source, copy: (copy, ctime) }))
}

fn parse_stamp<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<FileStamp> {
    let kind = *words.next()?.as_bytes().first()?;
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let (size, mtime) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(FileStamp { kind, mode, size, mtime, inode: words.next()?.parse().ok()? })
}

fn unescape(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let hex = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_stored_is_loaded(names in proptest::collection::btree_map(
            proptest::collection::vec(1u8..=255, 1..40),
            (any::<u32>(), any::<u64>(), any::<i64>(), any::<u64>()), 0..20)
        ) {
            let scratch = tempfile::tempdir().unwrap();
            let mut manifest = Manifest::default();
            for (name, (mode, size, time, inode)) in names {
                let source = FileStamp { kind: b'f', mode, size, mtime: time.into(), inode };
                let copy = (FileStamp { kind: b'd', ..source }, i128::from(time) - 1);
                manifest.set(Path::new(&OsString::from_vec(name)), Some(ManifestEntry { source, copy }));
            }
            manifest.store(scratch.path()).unwrap();
            prop_assert_eq!(Manifest::load(scratch.path()), manifest);
        }

        #[test]
        fn garbage_is_no_manifest_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let scratch = tempfile::tempdir().unwrap();
            fs::write(scratch.path().join(FILE_NAME), bytes).unwrap();
            Manifest::load(scratch.path());
        }
    }
}
