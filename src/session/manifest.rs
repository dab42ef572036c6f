//! What a workspace was made of: for each name of the folder what it was when it was copied, and what the copy was
//! then. So a later edit of the folder is told from one of the agent's.
//!
//! One line for a name, `kind mode size mtime inode, the same of the copy and its ctime, path`, the path with every
//! byte that is not plain as `%XX`. It lies where programs of the sandbox do not get.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::beneath::{Kind, Meta};
use crate::error::{Error, Result};
use crate::sys::read;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Its name in the directory of a session.
const NAME: &str = "workspace.manifest";
/// The largest one that is read: 200 000 entries with long names.
const LIMIT: u64 = 256 << 20;

/// What tells whether a name is still what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    kind: u8,
    mode: u32,
    size: u64,
    mtime: i128,
    inode: u64,
}

impl Stamp {
    /// Of what is there now. Of a directory its kind and its mode count: what is in it has stamps of its own.
    pub fn of(meta: &Meta) -> Self {
        let kind = match meta.kind {
            Kind::File => b'f',
            Kind::Directory => b'd',
            Kind::Link => b'l',
            Kind::Other(_) => b'o',
        };
        if meta.kind == Kind::Directory {
            return Stamp { kind, mode: meta.mode, size: 0, mtime: 0, inode: 0 };
        }
        Stamp { kind, mode: meta.mode, size: meta.size, mtime: meta.mtime, inode: meta.inode }
    }
}

/// What is known of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What it was in the folder.
    pub source: Stamp,
    /// What the copy was, and when anything of that was changed last: an agent can set no ctime.
    pub copy: (Stamp, i128),
}

impl Known {
    /// Of what is in the folder and in the workspace now.
    pub fn of(source: &Meta, copy: &Meta) -> Self {
        Known { source: Stamp::of(source), copy: copy_of(copy) }
    }

    /// Whether the copy is as it was made.
    pub fn is_untouched(&self, copy: &Meta) -> bool {
        self.copy == copy_of(copy)
    }

    /// Whether it was a directory.
    pub fn was_directory(&self) -> bool {
        self.source.kind == b'd'
    }

    /// Whether the name in the folder is as it was.
    pub fn is_source(&self, source: &Meta) -> bool {
        self.source == Stamp::of(source)
    }
}

fn copy_of(meta: &Meta) -> (Stamp, i128) {
    (Stamp::of(meta), if meta.kind == Kind::Directory { 0 } else { meta.ctime })
}

/// What is known of each name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Manifest {
    names: BTreeMap<PathBuf, Known>,
}

impl Manifest {
    /// What is known of `path`.
    pub fn get(&self, path: &Path) -> Option<&Known> {
        self.names.get(path)
    }

    /// From now on this is known of `path`; with `None` nothing.
    pub fn set(&mut self, path: &Path, known: Option<Known>) {
        match known {
            Some(known) => drop(self.names.insert(path.to_owned(), known)),
            None => drop(self.names.remove(path)),
        }
    }

    /// From now on nothing is known of `path` and what is below.
    pub fn forget(&mut self, path: &Path) {
        self.names.retain(|name, _| !name.starts_with(path));
    }

    /// The one in the directory of a session. One that cannot be read is as none: every name then counts as changed
    /// on both sides.
    pub fn load(session: &Path) -> Self {
        Manifest::parse(&read::small_file(&session.join(NAME), LIMIT).unwrap_or_default())
    }

    /// The one that [`Manifest::to_text`] wrote; lines that cannot be read are left out.
    pub fn parse(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Manifest { names: lines.filter_map(parse).collect() }
    }

    /// As text, a line for each name.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (path, known) in &self.names {
            let (copy, ctime) = &known.copy;
            for stamp in [&known.source, copy] {
                let Stamp { kind, mode, size, mtime, inode } = stamp;
                let _ = write!(text, "{} {mode:o} {size} {mtime} {inode} ", char::from(*kind));
            }
            let _ = write!(text, "{ctime} ");
            escape(path, &mut text);
            text.push('\n');
        }
        text
    }

    /// Takes away the one in the directory of a session.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn remove(session: &Path) -> Result<()> {
        let path = session.join(NAME);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::system(format_args!("remove {}", path.display()), e))
            }
            _ => Ok(()),
        }
    }

    /// Writes it there, whole or not at all.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub fn store(&self, session: &Path) -> Result<()> {
        let text = self.to_text();
        let (new, path) = (session.join("workspace.manifest.new"), session.join(NAME));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            // Not synced, since a start writes it: one that a power failure has cut short is as none.
            fs::rename(&new, &path)
        };
        write().map_err(|e| Error::system(format_args!("write {}", path.display()), e))
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

fn parse(line: &[u8]) -> Option<(PathBuf, Known)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let source = stamp(&mut words)?;
    let copy = stamp(&mut words)?;
    let ctime = words.next()?.parse().ok()?;
    let path = unescape(words.next()?)?;
    Some((path, Known { source, copy: (copy, ctime) }))
}

fn stamp<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Stamp> {
    let kind = *words.next()?.as_bytes().first()?;
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let (size, mtime) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Stamp { kind, mode, size, mtime, inode: words.next()?.parse().ok()? })
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
                let source = Stamp { kind: b'f', mode, size, mtime: time.into(), inode };
                let copy = (Stamp { kind: b'd', ..source }, i128::from(time) - 1);
                manifest.set(Path::new(&OsString::from_vec(name)), Some(Known { source, copy }));
            }
            manifest.store(scratch.path()).unwrap();
            prop_assert_eq!(Manifest::load(scratch.path()), manifest);
        }

        #[test]
        fn garbage_is_no_manifest_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let scratch = tempfile::tempdir().unwrap();
            fs::write(scratch.path().join(NAME), bytes).unwrap();
            Manifest::load(scratch.path());
        }
    }
}
